//! Buffers and pipes, lent to directions that hold data and to no others.

use std::io;
use std::os::fd::OwnedFd;

use midspan_split::Budget;
use midspan_units::ByteSize;
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

/// A pipe to splice through, empty whenever it is in the pool.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
    size: u64,
}

/// One worker's buffers and pipes.
#[derive(Debug)]
pub struct Pool {
    budget: Budget,
    limit: u64,
    buffer_size: usize,
    buffers: Vec<Box<[u8]>>,
    /// So many of those were idle all the time since it was last asked.
    unneeded: usize,
    pipe_size: usize,
    pipes: Vec<Pipe>,
    /// Pipes lent and idle, and how many there may be.
    pipes_open: usize,
    pipes_most: usize,
    /// Requests still to be refused without asking the kernel again.
    pause: u32,
}

/// Copying goes through buffers of this size, in bytes.
pub const BUFFER: u64 = 64 * 1024;
/// A pipe below this would only add system calls: small ones come from the kernel when a user
/// has more pipe pages than `fs.pipe-user-pages-soft`.
const SMALLEST_PIPE: u64 = 64 * 1024;
/// Idle ones kept for the next who asks.
const IDLE_BUFFERS: usize = 64;
const IDLE_PIPES: usize = 32;
/// After the kernel refused a pipe, this many requests are refused without asking it.
const PAUSE: u32 = 1000;

impl Pool {
    /// A pool that lends up to `limit` bytes, of which one direction has at most `most`, with up
    /// to `pipes` pipes.
    pub fn new(limit: ByteSize, most: ByteSize, pipes: usize) -> Pool {
        let most = most.as_bytes();
        Pool {
            budget: Budget::new(limit.as_bytes()),
            limit: limit.as_bytes(),
            buffer_size: most.min(BUFFER) as usize,
            buffers: Vec::with_capacity(IDLE_BUFFERS),
            unneeded: 0,
            pipe_size: most as usize,
            pipes: Vec::with_capacity(IDLE_PIPES),
            pipes_open: 0,
            pipes_most: if most < SMALLEST_PIPE { 0 } else { pipes },
            pause: 0,
        }
    }

    /// Lends up to so many bytes from now on. What is lent already stays.
    pub fn set_limit(&mut self, limit: ByteSize) {
        self.limit = limit.as_bytes();
        self.budget.set_limit(self.limit);
    }

    /// Bytes lent.
    pub fn used(&self) -> u64 {
        self.budget.used()
    }

    /// Pipes open, lent or idle.
    pub fn pipes(&self) -> usize {
        self.pipes_open
    }

    /// How many buffers there are to be had.
    pub fn free_buffers(&self) -> u64 {
        self.limit.saturating_sub(self.budget.used()) / self.buffer_size as u64
    }

    /// Whether a new flow would find buffers for both directions.
    pub fn has_room(&self) -> bool {
        self.free_buffers() >= 2
    }

    /// A buffer with whatever its last user left in it, or none if all that are allowed are lent.
    pub(crate) fn take_buffer(&mut self) -> Option<Box<[u8]>> {
        if !self.budget.take(self.buffer_size as u64) {
            return None;
        }
        let idle = self.buffers.pop();
        self.unneeded = self.unneeded.min(self.buffers.len());
        Some(idle.unwrap_or_else(|| vec![0; self.buffer_size].into_boxed_slice()))
    }

    pub(crate) fn give_buffer(&mut self, buffer: Box<[u8]>) {
        self.budget.give_back(self.buffer_size as u64);
        if self.buffers.len() < IDLE_BUFFERS {
            self.buffers.push(buffer);
        }
    }

    /// Gives a buffer back to the system, if it was idle since the last call.
    pub fn let_go(&mut self) {
        if self.unneeded > 0 {
            self.buffers.pop();
        }
        self.unneeded = self.buffers.len();
    }

    /// An empty pipe, or none if the limits or the kernel allow no more.
    pub(crate) fn take_pipe(&mut self) -> Option<Pipe> {
        // Pipes may not take what flows that only copy need.
        if self.budget.used() + self.pipe_size as u64 > self.limit / 4 * 3 {
            return None;
        }
        let pipe = match self.pipes.pop() {
            Some(pipe) => pipe,
            None => self.open_pipe()?,
        };
        // Within the limit, as was seen above, but for a pipe that came larger than asked.
        if self.budget.take(pipe.size) {
            return Some(pipe);
        }
        self.keep_idle(pipe);
        None
    }

    /// Takes an *empty* pipe back.
    pub(crate) fn give_pipe(&mut self, pipe: Pipe) {
        self.budget.give_back(pipe.size);
        self.keep_idle(pipe);
    }

    /// Closes a pipe with data in it.
    pub(crate) fn discard_pipe(&mut self, pipe: Pipe) {
        self.budget.give_back(pipe.size);
        self.pipes_open -= 1;
    }

    fn keep_idle(&mut self, pipe: Pipe) {
        if self.pipes.len() < IDLE_PIPES {
            self.pipes.push(pipe);
        } else {
            self.pipes_open -= 1;
        }
    }

    fn open_pipe(&mut self) -> Option<Pipe> {
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        if self.pipes_open >= self.pipes_most {
            return None;
        }
        match Pipe::open(self.pipe_size) {
            Ok(pipe) if pipe.size >= SMALLEST_PIPE => {
                self.pipes_open += 1;
                Some(pipe)
            }
            Ok(_) | Err(_) => {
                self.pause = PAUSE;
                None
            }
        }
    }
}

impl Pipe {
    fn open(size: usize) -> io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        // Refused past the user's share or fs.pipe-max-size; what the pipe has then may still do.
        let size = match fcntl_setpipe_size(&write, size) {
            Ok(size) => size,
            Err(_) => fcntl_getpipe_size(&write)?,
        };
        Ok(Pipe { read, write, size: size as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_nobody_needs_are_given_back_one_by_one() {
        let mut pool = Pool::new(ByteSize::from_kib(1 << 20), ByteSize::from_kib(64), 0);
        let lent: Vec<_> = (0..3).map(|_| pool.take_buffer().unwrap()).collect();
        lent.into_iter().for_each(|buffer| pool.give_buffer(buffer));
        pool.let_go();
        assert_eq!(pool.buffers.len(), 3, "they were needed until now");
        // One is all the time, two at times.
        for (taken, left) in [(1, 2), (2, 2), (1, 1)] {
            let lent: Vec<_> = (0..taken).map(|_| pool.take_buffer().unwrap()).collect();
            lent.into_iter().for_each(|buffer| pool.give_buffer(buffer));
            pool.let_go();
            assert_eq!(pool.buffers.len(), left);
        }
    }

    #[test]
    fn what_is_lent_stays_within_the_limit() {
        let mut pool = Pool::new(ByteSize::from_kib(256), ByteSize::from_kib(1024), 10);
        let lent: Vec<_> = std::iter::from_fn(|| pool.take_buffer()).collect();
        assert_eq!(lent.len(), 4);
        assert!(!pool.has_room() && pool.take_pipe().is_none());
        lent.into_iter().for_each(|buffer| pool.give_buffer(buffer));
        assert_eq!((pool.used(), pool.free_buffers()), (0, 4));
    }

    #[test]
    fn pipes_leave_a_quarter_to_copying_flows() {
        let mut pool = Pool::new(ByteSize::from_kib(1024), ByteSize::from_kib(256), 10);
        let pipes: Vec<_> = std::iter::from_fn(|| pool.take_pipe()).collect();
        assert_eq!(pipes.len(), 3);
        assert!(pool.take_buffer().is_some());
        pipes.into_iter().for_each(|pipe| pool.give_pipe(pipe));
        assert_eq!(pool.pipes_open, 3);
    }

    #[test]
    fn no_more_pipes_than_allowed() {
        let mut pool = Pool::new(ByteSize::from_kib(1 << 20), ByteSize::from_kib(64), 2);
        let pipes: Vec<_> = std::iter::from_fn(|| pool.take_pipe()).collect();
        assert_eq!(pipes.len(), 2);
        pipes.into_iter().for_each(|pipe| pool.discard_pipe(pipe));
        assert!(pool.take_pipe().is_some());
    }

    #[test]
    fn a_small_buffer_never_splices() {
        let mut pool = Pool::new(ByteSize::from_kib(1024), ByteSize::from_kib(16), 10);
        assert!(pool.take_pipe().is_none());
        assert_eq!(pool.take_buffer().map(|buffer| buffer.len()), Some(16 * 1024));
    }
}
