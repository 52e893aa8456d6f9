//! Where one direction's bytes are between reading and writing: nowhere, in a buffer, in a pipe.

use std::ops::Range;
use std::os::fd::AsFd;

use midspan_split::{CopyMode, Failure, Read, Write};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::pipe::{SpliceFlags, splice};

use crate::counters::Counters;
use crate::pool::{Pipe, Pool};

#[derive(Debug)]
pub(crate) enum RelayBuffer {
    /// Nothing is held, and nothing is needed to hold it: the state of an idle flow.
    Empty,
    Buffer {
        buffer: Box<[u8]>,
        held: Range<usize>,
    },
    Pipe {
        pipe: Pipe,
        held: usize,
    },
}

impl RelayBuffer {
    /// Gets something to hold data in, if there is nothing yet. False if none is to be had.
    pub(crate) fn prepare(&mut self, mode: CopyMode, pool: &mut Pool, counters: &Counters) -> bool {
        if !matches!(self, RelayBuffer::Empty) {
            return true;
        }
        if mode == CopyMode::Splice {
            if let Some(pipe) = pool.take_pipe() {
                *self = RelayBuffer::Pipe { pipe, held: 0 };
                return true;
            }
            counters.pipes_refused.add(1);
        }
        if let Some(buffer) = pool.take_buffer() {
            *self = RelayBuffer::Buffer { buffer, held: 0..0 };
        }
        !matches!(self, RelayBuffer::Empty)
    }

    /// Reads up to `most` bytes from a socket.
    pub(crate) fn read(&mut self, source: impl AsFd, most: u64) -> Read {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        match self {
            RelayBuffer::Empty => Read::NoBuffer,
            RelayBuffer::Buffer { buffer, held } => {
                let end = held.end.saturating_add(most).min(buffer.len());
                let space = &mut buffer[held.end..end];
                let room = space.len();
                if room == 0 {
                    return Read::Full;
                }
                match retry(|| receive(&source, &mut *space, RecvFlags::empty())) {
                    Ok(0) => Read::End,
                    Ok(bytes) => {
                        held.end += bytes;
                        Read::Some { bytes: bytes as u64, dry: bytes < room }
                    }
                    Err(Errno::AGAIN) => Read::Dry,
                    Err(_) => Read::Failed,
                }
            }
            RelayBuffer::Pipe { pipe, held } => {
                let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
                match retry(|| splice(&source, None, &pipe.write, None, most, flags)) {
                    // The end, or an urgent mark before it, which looks the same from here.
                    Ok(0) => match retry(|| peek(&source)) {
                        Ok(0) => Read::End,
                        Ok(_) => Read::Mark,
                        Err(Errno::AGAIN) => Read::Dry,
                        Err(_) => Read::Failed,
                    },
                    Ok(bytes) => {
                        *held += bytes;
                        Read::Some { bytes: bytes as u64, dry: false }
                    }
                    // The source is empty, or the pipe is full: a pipe holds a number of pieces,
                    // not of bytes, so its room cannot be known. Only an empty pipe has some.
                    Err(Errno::AGAIN) if *held == 0 => Read::Dry,
                    Err(Errno::AGAIN) => Read::Full,
                    Err(_) => Read::Failed,
                }
            }
        }
    }

    /// Writes what is held to a socket, as far as it takes it. With `more`, which must then come soon,
    /// the kernel keeps back what does not fill a segment.
    pub(crate) fn write(&mut self, destination: impl AsFd, more: bool) -> Write {
        match self {
            RelayBuffer::Empty => Write::Some { bytes: 0, full: false },
            RelayBuffer::Buffer { buffer, held } => {
                let sent = send(destination, &buffer[held.clone()], more);
                self.sent(sent)
            }
            RelayBuffer::Pipe { pipe, held } => {
                let more = if more { SpliceFlags::MORE } else { SpliceFlags::empty() };
                let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE | more;
                let sent = retry(|| splice(&pipe.read, None, &destination, None, *held, flags));
                // Short for a signal too, with room left: only a refusal promises to be told.
                let result = match sent {
                    Ok(bytes) => Write::Some { bytes: bytes as u64, full: bytes == 0 },
                    refused => outcome(refused, *held),
                };
                if let Write::Some { bytes, .. } = result {
                    *held -= bytes as usize;
                }
                result
            }
        }
    }

    /// What is held in a buffer, to be sent by other means than [`RelayBuffer::write`].
    pub(crate) fn copied(&self) -> Option<&[u8]> {
        match self {
            RelayBuffer::Buffer { buffer, held } => Some(&buffer[held.clone()]),
            RelayBuffer::Empty | RelayBuffer::Pipe { .. } => None,
        }
    }

    /// What became of sending what is [copied](RelayBuffer::copied).
    pub(crate) fn sent(&mut self, sent: Result<usize, Errno>) -> Write {
        let RelayBuffer::Buffer { held, .. } = self else {
            return Write::Some { bytes: 0, full: false };
        };
        let result = outcome(sent, held.len());
        if let Write::Some { bytes, .. } = result {
            held.start += bytes as usize;
            if held.start == held.end {
                *held = 0..0;
            }
        }
        result
    }

    /// Gives back a pipe that nothing is held in.
    pub(crate) fn leave_empty_pipe(&mut self, pool: &mut Pool) {
        if matches!(self, RelayBuffer::Pipe { held: 0, .. }) {
            self.release(pool);
        }
    }

    /// Gives back what nothing is held in.
    pub(crate) fn release_if_empty(&mut self, pool: &mut Pool) {
        let idle = match self {
            RelayBuffer::Empty => false,
            RelayBuffer::Buffer { held, .. } => held.start == held.end,
            RelayBuffer::Pipe { held, .. } => *held == 0,
        };
        if idle {
            self.release(pool);
        }
    }

    /// Gives back whatever this is, and drops what it holds.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        match std::mem::replace(self, RelayBuffer::Empty) {
            RelayBuffer::Empty => {}
            RelayBuffer::Buffer { buffer, .. } => pool.give_buffer(buffer),
            RelayBuffer::Pipe { pipe, held: 0 } => pool.give_pipe(pipe),
            RelayBuffer::Pipe { pipe, .. } => pool.discard_pipe(pipe),
        }
    }
}

/// A short send means that the socket's buffer is full, and that the kernel will tell when it is
/// not; asking again to be told so would be a wasted call.
fn outcome(sent: Result<usize, Errno>, held: usize) -> Write {
    match sent {
        Ok(bytes) => Write::Some { bytes: bytes as u64, full: bytes < held },
        Err(Errno::AGAIN) => Write::Some { bytes: 0, full: true },
        Err(error) => Write::Failed(failure(error)),
    }
}

/// What an error says of a connection.
pub(crate) fn failure(error: Errno) -> Failure {
    match error {
        Errno::CONNRESET => Failure::Reset,
        Errno::PIPE => Failure::BrokenPipe,
        _ => Failure::Other,
    }
}

fn peek(source: impl AsFd) -> Result<usize, Errno> {
    receive(source, &mut [0], RecvFlags::PEEK)
}

fn receive(source: impl AsFd, space: &mut [u8], flags: RecvFlags) -> Result<usize, Errno> {
    rustix::net::recv(source, space, flags).map(|(read, _)| read)
}

/// Sends as much as there is room for. With `more`, which must then come soon, the kernel keeps back
/// what does not fill a segment.
pub(crate) fn send(destination: impl AsFd, data: &[u8], more: bool) -> Result<usize, Errno> {
    let more = if more { SendFlags::MORE } else { SendFlags::empty() };
    retry(|| rustix::net::send(&destination, data, SendFlags::NOSIGNAL | more))
}

fn retry(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
