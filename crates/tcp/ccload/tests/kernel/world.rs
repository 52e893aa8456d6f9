//! A namespace, and controls that no other process has.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use midspan_ccload::{Algorithm, Change, Controls, Error, Options};
use midspan_sys::netns::Netns;
use socket2::{Domain, Socket, Type};

/// A namespace, and controls that only this test has.
pub(crate) struct World {
    pub(crate) controls: Controls,
    pub(crate) netns: Netns,
    pub(crate) folder: PathBuf,
}

impl World {
    pub(crate) fn new() -> Option<World> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let unique =
            std::process::id() % 100_000 * 100 + NUMBER.fetch_add(1, Ordering::Relaxed) % 100;
        let folder = PathBuf::from(format!("/sys/fs/bpf/midspan-test-{unique}"));
        let controls = Controls::new(&folder, format!("{}", Letters(unique)));
        match controls.hold(named("reno"), &Options::default()) {
            Ok(_) => {}
            Err(Error::NotPermitted) => return skipped("this user may not load BPF programs"),
            Err(error @ (Error::NoBtf | Error::NoStructOps { .. })) => {
                return skipped(&error.to_string());
            }
            Err(error) => panic!("{error}"),
        }
        let netns = Netns::create().unwrap();
        Some(World { controls, netns, folder })
    }

    pub(crate) fn name(&self, algorithm: &str) -> String {
        self.controls.name_of(named(algorithm))
    }

    pub(crate) fn load(&self, algorithm: &str, options: &Options) -> Change {
        self.controls.load(named(algorithm), options).unwrap()
    }

    /// A connection over the namespace's loopback, whose first end has the control.
    pub(crate) fn connect(&self, control: &str) -> std::io::Result<(TcpStream, TcpStream)> {
        self.netns.run(|| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_tcp_congestion(control.as_bytes())?;
            socket.connect(&listener.local_addr()?.into())?;
            let (accepted, _) = listener.accept()?;
            accepted.set_read_timeout(Some(Duration::from_secs(30)))?;
            let near = TcpStream::from(socket);
            near.set_write_timeout(Some(Duration::from_secs(30)))?;
            Ok((near, accepted))
        })?
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.folder.exists() {
            self.controls.unload_all().unwrap();
            assert!(!self.folder.exists());
        }
    }
}

/// A number in letters, for a prefix that leaves room for an algorithm's name.
struct Letters(u32);

impl std::fmt::Display for Letters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rest = self.0;
        for _ in 0..5 {
            write!(f, "{}", char::from(b'a' + (rest % 26) as u8))?;
            rest /= 26;
        }
        f.write_str("_")
    }
}

pub(crate) fn skipped<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("MIDSPAN_TEST_NO_SKIP").is_none(), "{why}");
    eprintln!("skipped: {why}");
    None
}

pub(crate) fn named(algorithm: &str) -> Algorithm {
    Algorithm::named(algorithm).unwrap()
}
