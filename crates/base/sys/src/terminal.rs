//! Who has the terminal.

use std::io;

use rustix::process::getpgrp;
use rustix::termios::tcsetpgrp;

/// Makes the calling process's group the one that the terminal at standard input listens to, as it was before an interactive
/// shell that has ended since. Without a terminal there it does nothing.
pub fn take_back() {
    // Who does this from the background is stopped, unless it holds the signal off: on this thread alone.
    // SAFETY: the sets are plain data that sigemptyset makes valid, and live until pthread_sigmask has returned.
    #[allow(unsafe_code)]
    unsafe {
        let mut held: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut held);
        libc::sigaddset(&raw mut held, libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const held, &raw mut before);
        let _ = tcsetpgrp(io::stdin(), getpgrp());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}
