//! Shells that run, and how a second terminal gets into one.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use midspan_sys::netns::Netns;
use midspan_sys::userns::{self, User};
use midspan_sys::{pidns, terminal};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use serde::{Deserialize, Serialize};

use super::held_process::{command, run_to_end};
use super::host::Host;

/// What a running shell says of itself, in a file that goes with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// What its path is.
    pub title: String,
    /// When that process started, as the kernel counts: numbers of processes come again.
    started: u64,
    /// The first process beside the user's program, whose /proc shows all of them.
    held: u32,
    /// Who the user is, if it is in a user namespace of its own.
    user: Option<(u32, u32)>,
    /// Descriptors of the hosts' namespaces, in the order of [`Host::ALL`].
    namespaces: [i32; 3],
}

/// An entry in the runtime folder, which is taken away when this value is dropped.
#[derive(Debug)]
pub(super) struct Entry(PathBuf);

impl Entry {
    /// Has this process's shell be found.
    pub(super) fn write(
        title: &str,
        held: u32,
        user: Option<User>,
        hosts: [&Netns; 3],
    ) -> Result<Entry> {
        use std::os::fd::AsFd;
        let pid = std::process::id();
        let running = Running {
            pid,
            title: title.to_owned(),
            started: started(pid).context("cannot read /proc")?,
            held,
            user: user.map(|user| (user.uid, user.gid)),
            namespaces: hosts.map(|netns| netns.as_fd().as_raw_fd()),
        };
        let folder = folders().into_iter().find(|folder| make(folder).is_ok());
        let path = folder.context("no folder for it")?.join(format!("shell-{pid}.json"));
        fs::write(&path, serde_json::to_string(&running)?)?;
        Ok(Entry(path))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The shells of this user that run. Entries of shells that were killed are taken away.
pub fn list() -> Vec<Running> {
    let mut all = Vec::new();
    for folder in folders().into_iter().filter(|folder| is_ours(folder)) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(text) = fs::read_to_string(&path) else { continue };
            match serde_json::from_str::<Running>(&text) {
                Ok(running) if started(running.pid) == Some(running.started) => all.push(running),
                Ok(_) => drop(fs::remove_file(path)),
                Err(_) => {}
            }
        }
    }
    all.sort_by_key(|running| running.pid);
    all
}

/// Runs `program` on a host of a shell until it ends, which is answered as shells number it. Must be called while this process has
/// one thread only. `as_root` has the program be root of the shell's namespaces.
///
/// # Errors
/// When the shell has just ended.
pub fn enter(running: &Running, host: Host, program: &[OsString], as_root: bool) -> Result<u8> {
    let gone = || format!("cannot enter shell {}", running.pid);
    let process = PathBuf::from(format!("/proc/{}", running.pid));
    let place = std::env::current_dir();
    let netns = Netns::open(process.join(format!("fd/{}", running.namespaces[host as usize])));
    let netns = netns.with_context(gone)?;
    let held = i32::try_from(running.held).ok().and_then(Pid::from_raw).with_context(gone)?;
    let held = pidfd_open(held, PidfdFlags::empty()).with_context(gone)?;
    if running.user.is_some() {
        let upper = fs::File::open(process.join("ns/user")).with_context(gone)?;
        userns::join(upper).with_context(gone)?;
    }
    pidns::join(held).with_context(gone)?;
    netns.enter().with_context(gone)?;
    if let Ok(place) = place {
        let _ = std::env::set_current_dir(place);
    }
    let user = running.user.filter(|_| !as_root).map(|(uid, gid)| User { uid, gid });
    let mut command = command(program, user);
    command.envs(host.environment(&running.title));
    let status = run_to_end(command);
    terminal::take_back();
    status
}

/// Where entries may be: the first that can be made is taken.
fn folders() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("midspan"));
    let user = match own_number() {
        Some(number) => number,
        None => geteuid().as_raw(),
    };
    own.into_iter().chain([PathBuf::from(format!("/tmp/midspan-{user}"))]).collect()
}

/// The user's number on the machine, if this process is root of a user namespace.
fn own_number() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    let fields: Vec<u32> = map.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        [0, outside, 1] => Some(outside),
        _ => None,
    }
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // In /tmp anybody may have been first.
    if is_ours(folder) { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

fn is_ours(folder: &Path) -> bool {
    let ours = |metadata: fs::Metadata| {
        metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0
    };
    fs::symlink_metadata(folder).is_ok_and(ours)
}

/// When a process started, in the kernel's ticks since it booted.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, may have anything in it; the start is the 20th field behind it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = started(std::process::id()).unwrap();
        assert!(started(child.id()).unwrap() >= own);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(started(child.id()), None);
    }

    #[test]
    fn somebody_elses_folder_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join("midspan");
        make(&ours).unwrap();
        make(&ours).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&ours, open).unwrap();
        assert!(make(&ours).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(!is_ours(&link));
    }
}
