//! The applications at both ends: what a phone and a server would run, measured from inside.
//!
//! Both ends are threads of this process, so that their times come from one clock.

mod bulk;
mod cross;
mod crowd;
mod page;
mod transfer;

use std::io::{self, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use midspan_sys::netns::Netns;
use socket2::{Domain, Socket, Type};

pub use bulk::{BulkPlan, BulkResult, Snapshot};
pub(crate) use cross::CrossTraffic;
pub(crate) use crowd::{CrowdPlan, CrowdResult, Standing};
pub use page::{PagePlan, PageResult};
pub use transfer::TransferPlan;

/// Where the service listens.
pub const SERVICE_PORT: u16 = 5201;

/// How long an end waits for the other before it says that the run failed.
const PATIENCE: Duration = Duration::from_secs(15);

/// Application buffer: large enough that system calls do not limit a flow.
const CHUNK: usize = 256 * 1024;

/// Where the two applications stand.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// Opens the connections.
    pub client: &'a Netns,
    /// From which of its addresses, if not from the first.
    pub source: Option<IpAddr>,
    /// Accepts them.
    pub server: &'a Netns,
    /// Where the server listens.
    pub address: SocketAddr,
}

impl Ends<'_> {
    /// Makes a connection that carries nothing, and ends it. In the field hardly anybody is the first to connect to
    /// a server: a relay on the way knows that it answers (`handshake = "learned"`).
    ///
    /// # Errors
    /// When it cannot be made, or carries something.
    pub fn meet(&self) -> io::Result<()> {
        let listener = self.listen()?;
        let client = self.connect(self.open()?)?;
        let server = accept(&listener)?;
        for (says, hears) in [(&client, &server), (&server, &client)] {
            hears.set_read_timeout(Some(PATIENCE))?;
            says.shutdown(Shutdown::Write)?;
            expect_eof(hears)?;
        }
        Ok(())
    }

    /// Starts listening at the server's end, for accepts that do not wait.
    fn listen(&self) -> io::Result<TcpListener> {
        let listener = self.listen_patiently()?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Starts listening at the server's end.
    fn listen_patiently(&self) -> io::Result<TcpListener> {
        self.server.run(|| listen_on(self.address))?
    }

    /// A socket at the client's end, so that its making takes no time of the connection's.
    fn open(&self) -> io::Result<Socket> {
        self.client.run(|| {
            let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, None)?;
            if let Some(source) = self.source {
                socket.bind(&SocketAddr::new(source, 0).into())?;
            }
            Ok(socket)
        })?
    }

    /// Connects it to the server's end.
    fn connect(&self, opened: Socket) -> io::Result<TcpStream> {
        opened.connect_timeout(&self.address.into(), PATIENCE)?;
        Ok(opened.into())
    }
}

/// Starts listening in the calling thread's namespace.
fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Waits for the other end's FIN.
fn expect_eof(mut stream: &TcpStream) -> io::Result<()> {
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected data")),
    }
}

/// The next connection, within [`PATIENCE`].
fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() >= deadline {
                    let reason = "the connection did not reach the server application";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
                }
                std::thread::sleep(Duration::from_micros(100));
            }
            Err(error) => return Err(error),
        }
    }
}
