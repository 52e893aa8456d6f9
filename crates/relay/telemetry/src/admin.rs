//! The admin socket: a line of JSON asked, a line answered.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use midspan_observe::admin::{Answer, Counters, Request, Status};
use midspan_sys::unix::{self, Name};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::flow_listing::FlowListing;
use crate::source::{Gone, Source};

/// Connections at one time; others wait.
const CONNECTIONS: usize = 8;
/// How long a connection may say nothing, and an answer may take to be made and taken.
const SILENCE: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait when the system has no descriptor for a connection.
const REST: Duration = Duration::from_millis(100);
/// Bytes of a request, at most.
const REQUEST: u64 = 4096;

/// The socket, with its name in the file system, which goes with it.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    pub(crate) listener: UnixListener,
    pub(crate) name: Name,
}

impl AdminSocket {
    /// Takes the place of a socket that nobody answers at. Only this user may use it.
    pub(crate) fn open(path: &Path) -> io::Result<AdminSocket> {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another program answers there"));
        }
        if let Some(folder) = path.parent()
            && !folder.as_os_str().is_empty()
            && !folder.exists()
        {
            fs::create_dir(folder)?;
        }
        // Under another name until nobody else may use it.
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        listener.set_nonblocking(true)?;
        Ok(AdminSocket { listener, name: Name::of(path)? })
    }
}

/// Answers for as long as it is polled.
pub(crate) async fn serve(listener: tokio::net::UnixListener, source: Arc<dyn Source>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let source = source.clone();
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, source).await {
                        tracing::debug!(%error, "an admin connection ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "an admin connection failed");
                sleep(REST).await;
            }
        }
    }
}

async fn converse(mut stream: tokio::net::UnixStream, source: Arc<dyn Source>) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let (read, mut write) = stream.split();
    if !unix::is_trusted(peer) {
        let answer =
            Answer::Error(format!("user {peer} may not ask: only root and the relay's own user"));
        return write.write_all(&line(&answer)).await;
    }
    let mut read = BufReader::new(read);
    let mut listing = FlowListing::default();
    loop {
        let mut request = Vec::new();
        let mut limited = (&mut read).take(REQUEST);
        let heard = limited.read_until(b'\n', &mut request);
        if timeout(SILENCE, heard).await.map_err(io::Error::from)?? == 0 {
            return Ok(());
        }
        let is_whole = request.ends_with(b"\n");
        let answer = match serde_json::from_slice(&request) {
            _ if !is_whole => {
                Answer::Error(format!("a request must be a line of at most {REQUEST} bytes"))
            }
            Ok(request) => match timeout(PATIENCE, answer(request, &*source, &mut listing)).await {
                Ok(answer) => answer,
                Err(_) => Answer::Error("the relay does not answer".into()),
            },
            Err(error) => Answer::Error(format!("not understood: {error}")),
        };
        timeout(PATIENCE, write.write_all(&line(&answer))).await.map_err(io::Error::from)??;
        if !is_whole {
            return Ok(());
        }
    }
}

fn line(answer: &Answer) -> Vec<u8> {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    line
}

async fn answer(request: Request, source: &dyn Source, listing: &mut FlowListing) -> Answer {
    match request {
        Request::Status => Answer::Status(status(source)),
        Request::Counters => Answer::Counters(counters(source)),
        Request::Flows { order, most } => match listing.call(source, order, most).await {
            Ok(flows) => Answer::Flows(flows),
            Err(Gone) => Answer::Error("a worker has ended".into()),
        },
        Request::Decisions => match source.board() {
            Some(board) => Answer::Decisions(board.decisions()),
            None => Answer::Error(
                "nothing is decided: there is no [decide] in the configuration".into(),
            ),
        },
        Request::Drain => done(source.drain().await),
        Request::Reload => done(source.reload().await),
        Request::Log { level } => match source.set_log_level(&level) {
            Ok(()) => Answer::Done(format!("logging `{level}`")),
            Err(said) => Answer::Error(said),
        },
    }
}

/// What came of what the relay was told to do.
fn done(outcome: Result<Result<String, String>, Gone>) -> Answer {
    match outcome {
        Ok(Ok(said)) => Answer::Done(said),
        Ok(Err(said)) => Answer::Error(said),
        Err(Gone) => Answer::Error("the relay is ending".into()),
    }
}

fn status(source: &dyn Source) -> Status {
    let count = |name| {
        let counters = source.counters();
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    };
    Status {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        phase: source.phase().into(),
        steered_by: source.steered_by().into(),
        uptime_s: source.started().instant.elapsed().as_secs_f64(),
        heartbeat_age_s: source.heartbeat_ages().iter().map(Duration::as_secs_f64).collect(),
        flows: count("active"),
        flow_limit: source.flow_limit(),
        buffered: count("buffered"),
    }
}

fn counters(source: &dyn Source) -> Counters {
    let named = |name: &str, count: u64| (name.to_owned(), count);
    let all = source.counters();
    Counters {
        counters: all.iter().map(|counter| named(counter.name, counter.value)).collect(),
        verdicts: source.verdicts().map(|counts| {
            counts.entries().map(|(verdict, count)| named(verdict.label(), count)).collect()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_nobody_answers_at_is_replaced_and_another_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run").join("relay.sock");
        let socket = AdminSocket::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(AdminSocket::open(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let AdminSocket { listener, name } = socket;
        // As after a kill.
        drop(listener);
        let second = AdminSocket::open(&path).unwrap();
        // The first does not take away what is the second's.
        drop(name);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
