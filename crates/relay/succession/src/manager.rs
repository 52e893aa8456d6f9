//! What the service manager (systemd) is told of the relay: sd_notify(3). Nothing is told where none listens.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use sd_notify::NotifyState;

/// What a service does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It takes connections, or goes on after [`State::Reloading`].
    Ready,
    /// It reads its configuration again. When that began is told too, as `Type=notify-reload` wants it.
    Reloading,
    /// It ends.
    Stopping,
    /// None of it hangs: systemd's watchdog is fed.
    Lives,
}

/// Tells it. That it cannot be told is logged, and ends no relay.
pub fn tell(state: State) {
    let told = match state {
        State::Ready => sd_notify::notify(&[NotifyState::Ready]),
        State::Reloading => NotifyState::monotonic_usec_now()
            .and_then(|begun| sd_notify::notify(&[NotifyState::Reloading, begun])),
        State::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
        State::Lives => sd_notify::notify(&[NotifyState::Watchdog]),
    };
    if let Err(error) = told {
        tracing::warn!(%error, ?state, "systemd could not be told");
    }
}

/// How often it is to be told that the relay [lives](State::Lives): twice as often as it wants, as
/// sd_watchdog_enabled(3) advises. None if it does not want to be told.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|wanted| wanted / 2)
}

/// Tells which process is the service's main one from now on, and waits until the manager has heard it: what it hears
/// of a process that has ended it does not believe.
pub(crate) fn tell_main_process(pid: u32) -> io::Result<()> {
    sd_notify::notify(&[NotifyState::MainPid(pid)])?;
    let (mut read, write) = io::pipe()?;
    // It closes what comes with this once it has heard all that came before.
    sd_notify::notify_with_fds(&[NotifyState::Custom("BARRIER=1")], &[write.as_fd()])?;
    drop(write);
    read.read(&mut [0]).map(drop)
}
