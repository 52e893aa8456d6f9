//! Initial windows: the kernel lets BPF set them, and nobody else.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Link, ObjectBuilder, ProgramMut};
use midspan_sys::{cgroup, socket};

use crate::error::{Error, io_error};
use crate::intf::{FIRST_WINDOW, FIRST_WINDOW_LEVEL};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/first_window.bpf.o"));

/// The program (`bpf/first_window.bpf.c`) that sets initial windows of this process's connections, for as long as this
/// lives. It is at the process's own control group, beside that of any other relay there, whose calls it answers as
/// well; nothing of it is pinned.
#[derive(Debug)]
pub struct FirstWindow {
    _link: Link,
}

impl FirstWindow {
    /// Loads and attaches it.
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
        let program: Option<ProgramMut<'_>> = object.progs_mut().next();
        let program = program.ok_or_else(|| Error::FirstWindow(io::ErrorKind::NotFound.into()))?;
        // The link holds the program.
        let link = program.attach_cgroup(group.as_raw_fd()).map_err(failed)?;
        Ok(FirstWindow { _link: link })
    }

    /// Has a connection begin with so many packets.
    ///
    /// # Errors
    /// When it has sent data already, or nobody can set it.
    pub fn set(&self, connection: impl AsFd, packets: u32) -> io::Result<()> {
        socket::set_by_bpf(connection, FIRST_WINDOW_LEVEL, FIRST_WINDOW, packets)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
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
        let (mut near, mut far) = pair();
        let before = window(&near);
        program.set(&near, 3).unwrap();
        assert_eq!((window(&near), window(&far)), (3, before));
        // Another relay of this group comes and goes.
        let other = FirstWindow::attach().unwrap();
        program.set(&near, 2).unwrap();
        drop(other);
        program.set(&near, 4).unwrap();
        assert_eq!(window(&near), 4);
        assert!(program.set(&near, 0).is_err());
        near.write_all(b"sent").unwrap();
        far.read_exact(&mut [0; 4]).unwrap();
        assert!(program.set(&near, 5).is_err());
        // Options of others are as before, long ones too.
        near.set_nodelay(true).unwrap();
        assert!(near.nodelay().unwrap());
    }
}
