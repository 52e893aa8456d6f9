//! Transfers of a given size, each on a connection of its own, one after the other.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use midspan_scenario::record::TransferRecord;
use midspan_sys::socket;

use super::{CHUNK, Ends, accept, expect_eof};

/// What to send.
#[derive(Debug, Clone, Copy)]
pub struct TransferPlan {
    /// Whether the client sends (upload) or the server (download).
    pub upload: bool,
    /// Application bytes of each transfer.
    pub bytes: u64,
    /// How many transfers.
    pub count: usize,
    /// When all of them must be through.
    pub deadline: Instant,
}

/// How often the sender looks whether all has been acknowledged: the resolution of that time.
const LOOK: Duration = Duration::from_micros(50);

impl TransferPlan {
    /// Runs the transfers.
    ///
    /// # Errors
    /// When a connection cannot be made, breaks, or delivers another number of bytes.
    pub fn run(&self, ends: Ends<'_>) -> Result<Vec<TransferRecord>> {
        let listener = ends.listen().context("server application cannot listen")?;
        let mut records = Vec::with_capacity(self.count);
        for number in 0..self.count {
            let record = self.transfer(ends, &listener);
            records.push(record.with_context(|| format!("transfer {number}"))?);
        }
        Ok(records)
    }

    /// Connects, moves the bytes and closes both directions, each end as an application would: the
    /// client goes on as soon as it is connected, the server as soon as it has accepted.
    fn transfer(&self, ends: Ends<'_>, listener: &TcpListener) -> Result<TransferRecord> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "the workload's limit has passed");
        let opened = ends.open().context("client")?;
        let begin = Instant::now();
        let play = |stream: TcpStream, sends: bool| -> io::Result<Times> {
            stream.set_read_timeout(Some(left))?;
            stream.set_write_timeout(Some(left))?;
            if sends { self.send(&stream, begin) } else { self.receive(&stream, begin) }
        };
        thread::scope(|scope| {
            let serving = scope.spawn(|| play(accept(listener)?, !self.upload));
            let client = ends.connect(opened).and_then(|stream| {
                let connected = begin.elapsed();
                Ok((connected, play(stream, self.upload)?))
            });
            let server = serving.join().expect("traffic threads do not panic");
            let (connected, client) = client.context("client")?;
            let server = server.context("server")?;
            let (sender, receiver) =
                if self.upload { (&client, &server) } else { (&server, &client) };
            ensure!(
                receiver.bytes == self.bytes,
                "{} of {} bytes arrived",
                receiver.bytes,
                self.bytes
            );
            Ok(TransferRecord {
                bytes: self.bytes,
                connected_s: connected.as_secs_f64(),
                acknowledged_s: sender.last_byte.as_secs_f64(),
                closed_s: client.closed.as_secs_f64(),
                received_s: receiver.last_byte.as_secs_f64(),
            })
        })
    }

    /// Sends all, ends its direction and reads the other's end.
    fn send(&self, mut stream: &TcpStream, begin: Instant) -> io::Result<Times> {
        let chunk = vec![0x5a; CHUNK.min(usize::try_from(self.bytes).unwrap_or(CHUNK))];
        let mut left = self.bytes;
        while left > 0 {
            let part = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            stream.write_all(&chunk[..part])?;
            left -= part as u64;
        }
        stream.shutdown(Shutdown::Write)?;
        // The FIN counts as one byte and may be acknowledged together with the last.
        let acknowledged = self.when_unacknowledged_is(stream, 1, begin)?;
        expect_eof(stream)?;
        Ok(Times { bytes: self.bytes, last_byte: acknowledged, closed: begin.elapsed() })
    }

    /// Reads to the end, then ends its own direction.
    fn receive(&self, mut stream: &TcpStream, begin: Instant) -> io::Result<Times> {
        let mut chunk = vec![0; CHUNK];
        let mut bytes = 0;
        let mut last = Duration::ZERO;
        loop {
            match stream.read(&mut chunk)? {
                0 => break,
                read => {
                    bytes += read as u64;
                    last = begin.elapsed();
                }
            }
        }
        stream.shutdown(Shutdown::Write)?;
        let closed = self.when_unacknowledged_is(stream, 0, begin)?;
        Ok(Times { bytes, last_byte: last, closed })
    }

    fn when_unacknowledged_is(
        &self,
        stream: &TcpStream,
        at_most: u32,
        begin: Instant,
    ) -> io::Result<Duration> {
        while socket::unacknowledged(stream)? > at_most {
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
            if Instant::now() >= self.deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(LOOK);
        }
        Ok(begin.elapsed())
    }
}

/// What one end saw.
struct Times {
    /// Bytes sent or read.
    bytes: u64,
    /// When the last of them was acknowledged, or read.
    last_byte: Duration,
    /// When both directions were closed.
    closed: Duration,
}
