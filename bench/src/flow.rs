//! One bulk TCP flow between two namespaces.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use midspan_sys::netns::Netns;

/// Bytes that each call writes or reads.
const CHUNK: usize = 256 * 1024;

/// A flow that sends as much as it can until it is dropped.
pub(crate) struct BulkFlow {
    sender: TcpStream,
    received: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl BulkFlow {
    /// Connects from `from` to `address` in `to`, and starts sending.
    pub(crate) fn start(from: &Netns, to: &Netns, address: SocketAddr) -> io::Result<BulkFlow> {
        let listener = to.run(|| TcpListener::bind(address))??;
        let sender = from.run(|| TcpStream::connect(address))??;
        let (receiver, _) = listener.accept()?;
        let received = Arc::new(AtomicU64::new(0));
        let (counter, source) = (received.clone(), sender.try_clone()?);
        let threads = vec![
            thread::Builder::new()
                .name("receiver".into())
                .spawn(move || count(receiver, &counter))?,
            thread::Builder::new().name("sender".into()).spawn(move || send(source))?,
        ];
        Ok(BulkFlow { sender, received, threads })
    }

    /// Bytes that the receiver has read so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for BulkFlow {
    fn drop(&mut self) {
        // Ends the sender's write at once, and the receiver's read when the queue has drained.
        let _ = self.sender.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sends until the connection is shut down.
fn send(mut stream: TcpStream) {
    let chunk = vec![0x5a; CHUNK];
    while stream.write_all(&chunk).is_ok() {}
}

/// Reads until the end, counting.
fn count(mut stream: TcpStream, received: &AtomicU64) {
    let mut chunk = vec![0; CHUNK];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(bytes) => {
                received.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
