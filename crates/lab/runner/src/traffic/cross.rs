//! Cross traffic: connections that send as fast as they can beside what is measured.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use midspan_sys::netns::Netns;
use socket2::{Domain, SockRef, Socket, Type};

use super::{CHUNK, PATIENCE, accept};

/// Where clients fetch it.
const PORT: u16 = 5202;

/// Running connections. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct CrossTraffic {
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl CrossTraffic {
    /// Starts `flows` downloads from `server`, at `address` there, to `client`. The server's
    /// connections have `congestion_control`, if it is given.
    ///
    /// # Errors
    /// When a connection cannot be made.
    pub(crate) fn start(
        flows: u32,
        congestion_control: Option<&str>,
        server: (&Netns, Ipv4Addr),
        client: &Netns,
    ) -> Result<CrossTraffic> {
        let mut traffic = CrossTraffic { streams: Vec::new(), threads: Vec::new() };
        if flows == 0 {
            return Ok(traffic);
        }
        let address = SocketAddr::from((server.1, PORT));
        let listener = server
            .0
            .run(|| listen(address, congestion_control))?
            .context("cross traffic: cannot listen")?;
        for number in 0..flows {
            let from = client
                .run(|| TcpStream::connect_timeout(&address, PATIENCE))?
                .with_context(|| format!("cross traffic, flow {number}: connect"))?;
            let to = accept(&listener)
                .with_context(|| format!("cross traffic, flow {number}: accept"))?;
            traffic.streams.extend([from.try_clone()?, to.try_clone()?]);
            // Both end with an error when the connection is cut, as intended.
            traffic.threads.push(thread::spawn(move || {
                let chunk = vec![0x5a; CHUNK];
                while (&to).write_all(&chunk).is_ok() {}
            }));
            traffic.threads.push(thread::spawn(move || {
                let mut chunk = vec![0; CHUNK];
                while matches!((&from).read(&mut chunk), Ok(1..)) {}
            }));
        }
        Ok(traffic)
    }
}

impl Drop for CrossTraffic {
    fn drop(&mut self) {
        for stream in &self.streams {
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn listen(address: SocketAddr, congestion_control: Option<&str>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if let Some(name) = congestion_control {
        socket.set_tcp_congestion(name.as_bytes())?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
