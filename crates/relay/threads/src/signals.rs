//! Signals as descriptors, for a thread that waits for more than signals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signals that a relay heeds.
#[derive(Debug)]
pub struct Signals {
    /// SIGTERM and SIGINT.
    pub stop: Caught,
    /// SIGHUP.
    pub hang_up: Caught,
}

impl Signals {
    /// Catches them from now on; they end the process no more.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn catch() -> io::Result<Signals> {
        Ok(Signals { stop: Caught::of(&[SIGTERM, SIGINT])?, hang_up: Caught::of(&[SIGHUP])? })
    }
}

/// Signals of some kinds: the descriptor is readable while one has not been taken.
#[derive(Debug)]
pub struct Caught(UnixStream);

impl Caught {
    fn of(signals: &[i32]) -> io::Result<Caught> {
        let (read, write) = UnixStream::pair()?;
        for &signal in signals {
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        read.set_nonblocking(true)?;
        Ok(Caught(read))
    }

    /// Takes one signal, if one has come. Says whether one had.
    pub fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0]).is_ok_and(|read| read > 0)
    }
}

impl AsFd for Caught {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};
    use signal_hook::consts::SIGUSR1;

    #[test]
    fn each_signal_is_taken_once() {
        let caught = Caught::of(&[SIGUSR1]).unwrap();
        assert!(!caught.take());
        for _ in 0..2 {
            // Two of a kind that wait are one to the kernel: the first is let in before the second.
            kill_process(getpid(), Signal::USR1).unwrap();
            let mut readable = [rustix::event::PollFd::new(&caught, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut readable, None).unwrap();
            assert!(caught.take());
        }
        assert!(!caught.take());
    }
}
