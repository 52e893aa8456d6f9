//! Who is the relay of a network namespace.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use midspan_sys::netns::Netns;
use midspan_sys::unix::{Name, is_trusted};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use socket2::{Domain, SockAddr, Socket, Type};

/// Where the sockets are.
const FOLDER: &str = "/run/midspan";
/// What has the place of a socket there for users who may not write there. Theirs are namespaces that they made,
/// where nobody else is.
const ABSTRACT: &str = "midspan-relay";
/// How long a predecessor may take to answer, and its name to become free.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a successor may take to say what it wants, which it sends with its connection.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(100);
/// More than any request has.
const REQUEST: u64 = 64;
/// How often it is said, at most, that somebody was refused.
const COMPLAINT: Duration = Duration::from_secs(60);

/// Being the one relay that takes connections in a network namespace.
#[derive(Debug)]
pub struct InstanceLock {
    listener: UnixListener,
    refusals: Refusals,
    _name: Option<Name>,
}

impl InstanceLock {
    /// Takes the lock of the calling thread's namespace; `AddrInUse` if another relay has it.
    ///
    /// # Errors
    /// That; or what the system says.
    pub fn take() -> io::Result<InstanceLock> {
        match InstanceLock::take_in(Path::new(FOLDER)) {
            Err(error) if is_denied(&error) => {
                tracing::info!(%error, "{FOLDER} is not used; an abstract socket is");
                InstanceLock::take_abstract()
            }
            taken => taken,
        }
    }

    fn take_in(folder: &Path) -> io::Result<InstanceLock> {
        let _alone = lock(folder)?;
        remove_dead(folder);
        let path = socket_in(folder)?;
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        InstanceLock::at(listener, Some(Name::of(&path)?))
    }

    fn take_abstract() -> io::Result<InstanceLock> {
        let name = SocketAddr::from_abstract_name(ABSTRACT)?;
        match UnixListener::bind_addr(&name) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let other = connect(&SockAddr::unix(format!("\0{ABSTRACT}"))?);
                Err(other.err().filter(|error| error.kind() == ErrorKind::Other).unwrap_or(error))
            }
            listener => InstanceLock::at(listener?, None),
        }
    }

    fn at(listener: UnixListener, name: Option<Name>) -> io::Result<InstanceLock> {
        listener.set_nonblocking(true)?;
        Ok(InstanceLock { listener, refusals: Refusals::default(), _name: name })
    }

    /// Takes it as soon as it is free.
    ///
    /// # Errors
    /// When it does not become free in time; or what the system says.
    pub fn take_soon() -> io::Result<InstanceLock> {
        let deadline = Instant::now() + TAKEOVER_TIMEOUT;
        loop {
            match InstanceLock::take() {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    if Instant::now() >= deadline {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                taken => return taken,
            }
        }
    }

    /// Readable when somebody comes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Who has come to succeed; none if nobody has, or nobody who may.
    pub fn successor(&mut self) -> Option<Successor> {
        let (stream, _) = self.listener.accept().ok()?;
        match Successor::read(stream) {
            Ok(successor) => successor,
            Err(error) => {
                if let Some(more) = self.refusals.told(Instant::now()) {
                    tracing::warn!(%error, more, "a request to retire is refused");
                }
                None
            }
        }
    }
}

/// Requests that were refused, and when that was last said.
#[derive(Debug, Default)]
struct Refusals {
    said: Option<Instant>,
    unsaid: u64,
}

impl Refusals {
    /// If one more is to be told: how many were not since the last that was.
    fn told(&mut self, now: Instant) -> Option<u64> {
        if self.said.is_some_and(|said| now < said + COMPLAINT) {
            self.unsaid += 1;
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// A relay that has taken over from this one.
#[derive(Debug)]
pub struct Successor {
    stream: UnixStream,
    /// Its firewall mark.
    pub mark: u32,
}

impl Successor {
    /// None if it has only looked whether somebody is there.
    fn read(stream: UnixStream) -> io::Result<Option<Successor>> {
        refuse_others(&stream)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        let mut request = String::new();
        BufReader::new((&stream).take(REQUEST)).read_line(&mut request)?;
        if request.is_empty() {
            return Ok(None);
        }
        let mark = request.trim_end().strip_prefix("retire ").and_then(|mark| mark.parse().ok());
        let mark = mark.ok_or_else(|| io::Error::other("it is none"))?;
        Ok(Some(Successor { stream, mark }))
    }

    /// Says that it has the lock for itself.
    pub fn acknowledge(mut self) {
        // One that does not listen any more has the lock all the same.
        let _ = self.stream.write_all(b"retired\n");
    }
}

/// Has the relay that has the lock retire, to which nothing comes any more.
///
/// # Errors
/// When it does not answer, as one that hangs.
pub fn retire_predecessor(mark: u32) -> io::Result<()> {
    let mut stream = match connect(&SockAddr::unix(socket_in(Path::new(FOLDER))?)?) {
        Err(error) if is_denied(&error) => connect(&SockAddr::unix(format!("\0{ABSTRACT}"))?)?,
        stream => stream?,
    };
    stream.set_read_timeout(Some(TAKEOVER_TIMEOUT))?;
    writeln!(stream, "retire {mark}")?;
    let mut answer = String::new();
    BufReader::new(stream.take(REQUEST)).read_line(&mut answer)?;
    match answer.trim_end() {
        "retired" => Ok(()),
        _ => Err(io::Error::other("it does not answer")),
    }
}

/// Connects to a relay of this user or root's, if it has room for who waits.
fn connect(to: &SockAddr) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    socket.set_nonblocking(false)?;
    let stream = UnixStream::from(std::os::fd::OwnedFd::from(socket));
    refuse_others(&stream)?;
    Ok(stream)
}

fn refuse_others(stream: &UnixStream) -> io::Result<()> {
    let peer = socket_peercred(stream)?.uid.as_raw();
    match is_trusted(peer) {
        true => Ok(()),
        false => Err(io::Error::other(format!("user {peer} has the other end"))),
    }
}

/// Whether this user has no folder for sockets.
fn is_denied(error: &io::Error) -> bool {
    use ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), NotFound | PermissionDenied | ReadOnlyFilesystem)
}

/// The socket of the calling thread's namespace.
fn socket_in(folder: &Path) -> io::Result<PathBuf> {
    Ok(folder.join(format!("net-{}.sock", Netns::current()?.inode()?)))
}

/// Keeps others from taking a lock in `folder` as long as this is open. The folder is made if it is not there.
fn lock(folder: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || !is_trusted(metadata.uid()) || metadata.mode() & 0o022 != 0 {
        let said = format!("others may write to {}", folder.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, said));
    }
    let file =
        OpenOptions::new().append(true).create(true).mode(0o600).open(folder.join("lock"))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Removes what relays that were killed have left.
fn remove_dead(folder: &Path) {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_socket = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("net-") && name.ends_with(".sock")
    };
    for path in names.filter(is_socket) {
        let answer = SockAddr::unix(&path).and_then(|address| connect(&address));
        if answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn there_is_one_at_a_time_and_a_dead_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("midspan");
        let mut lock = InstanceLock::take_in(&folder).unwrap();
        assert_eq!(InstanceLock::take_in(&folder).unwrap_err().kind(), ErrorKind::AddrInUse);
        // That was only a look.
        assert!(lock.successor().is_none() && lock.refusals.said.is_none());
        let path = socket_in(&folder).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(lock);
        assert!(!path.exists());
        // As after SIGKILL, of this namespace and of another.
        for dead in [&path, &folder.join("net-1.sock")] {
            drop(UnixListener::bind(dead).unwrap());
        }
        let lock = InstanceLock::take_in(&folder).unwrap();
        assert!(path.exists() && !folder.join("net-1.sock").exists());
        drop(lock);
    }

    #[test]
    fn no_folder_is_used_that_others_may_write_to() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(is_denied(&InstanceLock::take_in(folder.path()).unwrap_err()));
        assert!(is_denied(&InstanceLock::take_in(Path::new("/nonexistent/midspan")).unwrap_err()));
    }

    #[test]
    fn requests_are_heard_and_others_refused_with_few_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut lock = InstanceLock::take_in(folder.path()).unwrap();
        let path = socket_in(folder.path()).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"retire 7\n").unwrap();
        let successor = lock.successor().unwrap();
        assert_eq!(successor.mark, 7);
        successor.acknowledge();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "retired\n");
        for round in 0..100 {
            UnixStream::connect(&path).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            assert!(lock.successor().is_none());
            assert_eq!(lock.refusals.unsaid, round);
        }
    }

    #[test]
    fn so_many_were_refused_since_it_was_last_said() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.told(now), Some(0));
        assert_eq!((refusals.told(now), refusals.told(now + COMPLAINT / 2)), (None, None));
        assert_eq!(refusals.told(now + COMPLAINT), Some(2));
        assert_eq!(refusals.told(now + COMPLAINT), None);
    }

    #[test]
    fn another_user_may_not_have_a_relay_retire() {
        use std::os::unix::process::CommandExt;
        let folder = tempfile::tempdir().unwrap();
        let mut lock = InstanceLock::take_in(folder.path()).unwrap();
        let path = socket_in(folder.path()).unwrap();
        // As if it were open to all: that is not what keeps others away.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let script = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                      s.send(b'retire 1\\n')\nprint('sent', flush=True)\nprint(s.recv(9))";
        let mut other = Command::new("python3");
        other.args(["-c", script]).arg(&path).uid(65534).gid(65534);
        other.stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut other) = other.spawn() else {
            eprintln!("skipped: no other user, or no python3");
            return;
        };
        let mut said = BufReader::new(other.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "sent\n");
        assert!(lock.successor().is_none() && lock.refusals.said.is_some());
        line.clear();
        said.read_line(&mut line).unwrap();
        assert!(!line.contains("retired"), "{line}");
        other.wait().unwrap();
    }
}
