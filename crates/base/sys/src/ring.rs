//! Many sends in one system call (io_uring).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

/// What is to be sent on a socket, without waiting for room.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The socket.
    pub socket: BorrowedFd<'a>,
    /// The bytes.
    pub data: &'a [u8],
    /// Whether more is sure to come soon, for which the kernel then keeps back what does not fill a
    /// segment (MSG_MORE).
    pub more: bool,
}

/// Sends on many sockets at a time.
///
/// It saves the calls, and more than that where processors are busy: between two calls of its own
/// a process is preempted by whoever the first of them has woken; within one call it is not.
pub struct SendRing {
    /// None once it has failed.
    ring: Option<IoUring>,
    results: Vec<Result<usize, Errno>>,
}

impl SendRing {
    /// A ring for up to `most` sends at a time.
    ///
    /// # Errors
    /// Where the kernel has no io_uring, or does not let this process have it
    /// (`kernel.io_uring_disabled`).
    pub fn new(most: u32) -> io::Result<SendRing> {
        let ring = Some(IoUring::new(most)?);
        Ok(SendRing { ring, results: Vec::with_capacity(most as usize) })
    }

    /// Sends, each as send(2) does with `MSG_DONTWAIT`, in the order given. Gives what each came to, which
    /// is `ECANCELED` for those that were not tried because the ring failed; those past its size are
    /// left out.
    pub fn send<'a>(&mut self, all: impl Iterator<Item = Outgoing<'a>>) -> &[Result<usize, Errno>] {
        self.results.clear();
        let Some(ring) = &mut self.ring else {
            let size = self.results.capacity();
            self.results.extend(all.take(size).map(|_| Err(Errno::CANCELED)));
            return &self.results;
        };
        let mut queue = ring.submission();
        for (index, one) in (0u64..).zip(all) {
            let more = if one.more { libc::MSG_MORE } else { 0 };
            let length = u32::try_from(one.data.len()).unwrap_or(u32::MAX);
            let socket = types::Fd(one.socket.as_raw_fd());
            let send = opcode::Send::new(socket, one.data.as_ptr(), length)
                .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more)
                .build()
                .user_data(index);
            // SAFETY: descriptor and data are borrowed for 'a, which outlives this call, and when it ends
            // the kernel has done with all that it took, and will take no more.
            #[allow(unsafe_code)]
            let pushed = unsafe { queue.push(&send) };
            if pushed.is_err() {
                break;
            }
            self.results.push(Err(Errno::CANCELED));
        }
        drop(queue);
        let (mut taken, mut done) = (0, 0);
        while done < self.results.len() {
            match ring.submit_and_wait(self.results.len() - done) {
                Ok(more) => taken += more,
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // What it did not take it never will, as the ring ends here. What it took is done, as
                // none of it may wait; else whoever owns its bytes could not have them back.
                Err(_) if taken == done => {
                    self.ring = None;
                    break;
                }
                Err(_) => std::process::abort(),
            }
            for one in ring.completion() {
                done += 1;
                self.results[one.user_data() as usize] = match one.result() {
                    sent @ 0.. => Ok(sent as usize),
                    error => Err(Errno::from_raw_os_error(-error)),
                };
            }
        }
        &self.results
    }
}

impl std::fmt::Debug for SendRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendRing").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// None where this machine has no io_uring.
    fn ring(most: u32) -> Option<SendRing> {
        SendRing::new(most).map_err(|error| eprintln!("skipped: {error}")).ok()
    }

    #[test]
    fn each_gets_its_own_and_a_full_one_is_said_to_be_full() {
        let Some(mut ring) = ring(4) else { return };
        let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        pairs[1].0.set_nonblocking(true).unwrap();
        while rustix::io::write(&pairs[1].0, &[0; 4096]).is_ok() {}
        let data = [b"a".as_slice(), b"bb", b"ccc"];
        let all = pairs.iter().zip(data);
        let results = ring.send(all.map(|((socket, _), data)| Outgoing {
            socket: socket.as_fd(),
            data,
            more: false,
        }));
        assert_eq!(results, [Ok(1), Err(Errno::AGAIN), Ok(3)]);
        let mut read = [0; 4];
        assert_eq!((&pairs[2].1).read(&mut read).unwrap(), 3);
        assert_eq!(&read[..3], b"ccc");
    }

    #[test]
    fn those_past_its_size_are_left_out() {
        let Some(mut ring) = ring(2) else { return };
        let (socket, _other) = UnixStream::pair().unwrap();
        let one = Outgoing { socket: socket.as_fd(), data: b"x", more: false };
        for _ in 0..3 {
            assert_eq!(ring.send(std::iter::repeat_n(one, 5)), [Ok(1), Ok(1)]);
        }
        assert_eq!(ring.send(std::iter::empty()), []);
    }

    #[test]
    fn a_closed_peer_is_an_error_and_no_signal() {
        let Some(mut ring) = ring(2) else { return };
        let (socket, other) = UnixStream::pair().unwrap();
        drop(other);
        let one = Outgoing { socket: socket.as_fd(), data: b"x", more: false };
        assert_eq!(ring.send(std::iter::once(one)), [Err(Errno::PIPE)]);
    }
}
