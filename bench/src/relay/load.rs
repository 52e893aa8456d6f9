//! Connections that stay open and are idle, which no public tool makes: both ends, as threads of this process.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::world::{self, World};

/// What is sent to and fro once on each.
const SMALL: usize = 64;
/// How long an end waits before it says that something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);
/// Threads that accept.
const ACCEPTING: usize = 8;

/// Answers small messages for as long as they come, until it is dropped.
pub(super) struct Echo {
    listener: TcpListener,
    threads: Vec<JoinHandle<()>>,
}

impl Echo {
    pub(super) fn start(world: &World) -> io::Result<Echo> {
        let listener = world.server.run(|| listen(world::service()))??;
        let threads = (0..ACCEPTING)
            .map(|_| {
                let listener = listener.try_clone()?;
                Ok(thread::spawn(move || {
                    while let Ok((stream, _)) = listener.accept() {
                        thread::spawn(move || echo(stream));
                    }
                }))
            })
            .collect::<io::Result<_>>()?;
        Ok(Echo { listener, threads })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // Ends the accepting threads; those of connections end with these.
        let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Opens so many connections, and makes sure that each is there from end to end.
pub(super) fn idle(world: &World, to: SocketAddr, count: usize) -> io::Result<Vec<TcpStream>> {
    thread::scope(|scope| {
        let opening = scope.spawn(|| {
            world.client.enter()?;
            (0..count)
                .map(|_| {
                    let mut stream = TcpStream::connect(to)?;
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.write_all(&[1; SMALL])?;
                    stream.read_exact(&mut [0; SMALL])?;
                    Ok(stream)
                })
                .collect()
        });
        opening.join().expect("load threads do not panic")
    })
}

fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

fn echo(mut stream: TcpStream) {
    let mut message = [0; SMALL];
    let _ = stream.set_nodelay(true);
    while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
}
