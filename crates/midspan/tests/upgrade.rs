//! `midspan relay upgrade`, as the reload command of a service: what systemd is told, and what becomes of the relay that
//! runs. With systemd itself: `tests/package.sh upgrade`.

mod common;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is not to outlive the test.
struct Running(u32);

impl Drop for Running {
    fn drop(&mut self) {
        common::signal(self.0, "-KILL");
    }
}

/// A process of another program, in the place of a relay of an older one, of which a watchdog is to hear.
fn other_program() -> Child {
    let mut other = Command::new("sleep");
    other.arg("600").env("WATCHDOG_USEC", "400000").env("WATCHDOG_PID", "1");
    midspan_sys::process::die_with_parent(&mut other).spawn().unwrap()
}

/// Writes a configuration that takes no privileges, and gives the port that it listens at: free a moment ago.
fn configure(file: &Path) -> u16 {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let forward =
        format!("workers = 1\n[[forward]]\nlisten = \"127.0.0.1:{port}\"\nto = \"192.0.2.1:80\"\n");
    fs::write(file, forward).unwrap();
    port
}

fn upgrade(pid: u32, file: &Path, notify: &Path) -> Command {
    let mut command = common::midspan();
    command.args(["relay", "upgrade", &pid.to_string(), "--config"]).arg(file);
    command.env("NOTIFY_SOCKET", notify);
    command
}

#[test]
fn the_relay_that_takes_over_is_the_main_process_and_feeds_the_watchdog() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("relay.toml"), folder.path().join("notify"));
    let port = configure(&file);
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut former = other_program();
    // The manager hears while the command waits for it to have.
    let upgraded = std::thread::spawn({
        let (pid, file, socket) = (former.id(), file.clone(), socket.clone());
        // What has taken over keeps the standard error, so that whoever reads that waits for its end.
        move || upgrade(pid, &file, &socket).stderr(Stdio::null()).output().unwrap()
    });
    let (mut main, mut barrier, mut watchdog) = (None, false, false);
    while main.is_none() || !barrier || !watchdog {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).expect("systemd is told");
        for line in str::from_utf8(&message[..length]).unwrap().lines() {
            match line.split_once('=') {
                Some(("MAINPID", pid)) => main = Some(Running(pid.parse().unwrap())),
                // It comes with a descriptor, which is closed as it is not taken.
                Some(("BARRIER", _)) => barrier = true,
                Some(("WATCHDOG", "1")) => watchdog = true,
                _ => {}
            }
        }
    }
    let output = upgraded.join().unwrap();
    assert!(output.status.success(), "{output:?}");
    let main = main.unwrap();
    assert_ne!(main.0, former.id());
    let program = fs::read_link(format!("/proc/{}/exe", main.0)).unwrap();
    assert_eq!(program, common::program().canonicalize().unwrap());
    TcpStream::connect(("127.0.0.1", port)).expect("it takes connections");
    // There is nothing to do now, and what runs goes on.
    let again = upgrade(main.0, &file, &socket).output().unwrap();
    assert!(again.status.success(), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stdout).contains("already"), "{again:?}");
    TcpStream::connect(("127.0.0.1", port)).expect("it goes on");
    assert!(former.try_wait().unwrap().is_none());
    former.kill().unwrap();
    former.wait().unwrap();
}

#[test]
fn one_that_cannot_start_leaves_the_former_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("relay.toml"), folder.path().join("notify"));
    fs::write(&file, "clients = 7\n").unwrap();
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_nonblocking(true).unwrap();
    let mut former = other_program();
    let output = upgrade(former.id(), &file, &socket).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("relay.toml:1") && said.contains("goes on as it was"), "{said}");
    assert!(manager.recv(&mut [0; 16]).is_err(), "systemd was told something");
    assert!(former.try_wait().unwrap().is_none());
    former.kill().unwrap();
    former.wait().unwrap();
    // Nor can one that is gone be taken over from.
    let output = upgrade(former.id(), &file, &socket).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{output:?}");
}
