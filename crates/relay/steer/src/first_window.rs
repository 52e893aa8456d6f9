//! Initial windows: the kernel lets BPF set them, and nobody else.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ObjectBuilder};
use midspan_sys::cgroup;

use crate::error::{Error, io_error};
use crate::intf::{FIRST_WINDOW_SET, MOST_FIRST_WINDOW};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/first_window.bpf.o"));

/// The programs (`bpf/first_window.bpf.c`, for IPv4 and IPv6) that set initial windows of this process's connections, for as
/// long as this lives. They are at the process's own control group, beside those of any other relay there; nothing of them
/// is pinned.
#[derive(Debug)]
pub struct FirstWindow {
    _links: Vec<Link>,
    /// By socket.
    wanted: MapHandle,
}

impl FirstWindow {
    /// Loads and attaches them.
    ///
    /// # Errors
    /// Where the process is in no control group of version 2, or may not.
    pub fn attach() -> Result<FirstWindow, Error> {
        let failed = |error: libbpf_rs::Error| Error::FirstWindow(io_error(&error));
        let group = cgroup::own().map_err(Error::FirstWindow)?;
        let object = ObjectBuilder::default()
            .open_memory(OBJECT)
            .and_then(libbpf_rs::OpenObject::load)
            .map_err(failed)?;
        // The links hold the programs.
        let links = object.progs_mut().map(|program| program.attach_cgroup(group.as_raw_fd()));
        let links = links.collect::<Result<_, _>>().map_err(failed)?;
        let wanted = object.maps().next();
        let wanted = wanted.ok_or_else(|| Error::FirstWindow(io::ErrorKind::NotFound.into()))?;
        Ok(FirstWindow { _links: links, wanted: MapHandle::try_from(&wanted).map_err(failed)? })
    }

    /// Has a connection begin with so many packets.
    ///
    /// # Errors
    /// When it has sent data already, or nobody can set it.
    pub fn set(&self, connection: impl AsFd, packets: u32) -> io::Result<()> {
        if packets > MOST_FIRST_WINDOW {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let key = connection.as_fd().as_raw_fd().to_ne_bytes();
        let failed = |error: libbpf_rs::Error| io_error(&error);
        self.wanted.update(&key, &packets.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        // The programs' cue.
        rustix::net::getsockname(&connection)?;
        let became = self.wanted.lookup(&key, MapFlags::ANY).map_err(failed)?;
        match became.as_deref() == Some(&FIRST_WINDOW_SET.to_ne_bytes()) {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use midspan_sys::socket;

    use super::*;

    fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn window(of: &TcpStream) -> u32 {
        socket::tcp_info(of).unwrap().snd_cwnd
    }

    #[test]
    fn a_window_is_set_as_long_as_nothing_was_sent() {
        let program = match FirstWindow::attach() {
            Ok(program) => program,
            Err(error) => {
                assert!(std::env::var_os("MIDSPAN_TEST_NO_SKIP").is_none(), "{error}");
                eprintln!("skipped: {error}");
                return;
            }
        };
        for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let (mut near, mut far) = pair(address);
            let before = window(&near);
            program.set(&near, 3).unwrap();
            assert_eq!((window(&near), window(&far)), (3, before), "{address}");
            // Another relay of this group comes and goes.
            let other = FirstWindow::attach().unwrap();
            program.set(&near, 2).unwrap();
            drop(other);
            program.set(&near, 4).unwrap();
            // Whoever else asks.
            near.local_addr().unwrap();
            assert_eq!(window(&near), 4, "{address}");
            assert!(program.set(&near, 0).is_err(), "{address}");
            near.write_all(b"sent").unwrap();
            far.read_exact(&mut [0; 4]).unwrap();
            assert!(program.set(&near, 5).is_err(), "{address}");
        }
    }
}
