//! What a running relay is told, and what it does then: signals, commands, a successor, a worker's end.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{Error, Relay, Way, begin_to_inject};
use crate::command::{Command, Reply};
use crate::confirm::HeldThread;
use crate::counters::Snapshot;
use crate::interception::{InterceptionError, Steered};
use crate::observe::Served;
use crate::reload;
use crate::shared::{Phase, Settings, Shared, lower};
use crate::succession::{Office, Successor};
use crate::watchdog::Watchdog;

/// How often the supervisor looks for new interfaces.
const LOOK: Duration = Duration::from_secs(1);
/// How long workers may take to give up their places; they need a turn of their loops.
const SLOTS: Duration = Duration::from_secs(1);

impl Relay {
    /// Waits for what ends a relay, and ends it.
    pub(super) fn supervise(mut self, signals: &Signals) -> Result<Snapshot, Error> {
        self.shared.privileges.lower();
        let mut watchdog = Watchdog::new();
        notify(NotifyState::Ready);
        let steered_by = self.shared.steered_by.get().copied();
        tracing::info!(
            steered_by,
            workers = self.workers.len(),
            flow_limit = self.monitor().flow_limit(),
            "relay ready"
        );
        let mut give_up = None;
        let mut running = self.workers.len() as u64;
        loop {
            watchdog.feed(&self.shared);
            match self.wait(signals, give_up, watchdog.due()) {
                Happened::Signal if give_up.is_none() => give_up = Some(self.begin_to_end()),
                Happened::Commands(commands) => {
                    for command in commands {
                        match command {
                            Command::Drain(reply) => {
                                give_up.get_or_insert_with(|| self.begin_to_end());
                                let _ = reply.send(Ok("draining".into()));
                            }
                            Command::Reload(reply) => self.reload(Some(reply)),
                            Command::Apply(prepared, reply) => self.apply(prepared, reply),
                        }
                    }
                }
                Happened::Successor => {
                    if let Some(successor) = self.office.as_ref().and_then(Office::successor) {
                        let flows = self.monitor().snapshot().active;
                        tracing::info!(flows, "another relay has taken over; draining");
                        self.retire(successor);
                    }
                }
                // With its flows a relay that was replaced ends too.
                Happened::WorkersEnded(ended)
                    if self.shared.phase() >= Phase::Retire && ended < running =>
                {
                    running -= ended;
                }
                Happened::HangUp => self.reload(None),
                Happened::RulesLost => {
                    tracing::error!("the nft process died, and with it the interception rules");
                    notify(NotifyState::Stopping);
                    let failed = "the nft process died".to_owned();
                    self.end()?;
                    return Err(InterceptionError::Refused(failed).into());
                }
                // One that ends while draining has done its work; the others may not have.
                Happened::WorkersEnded(ended) if give_up.is_some() && ended < running => {
                    running -= ended;
                }
                Happened::Signal | Happened::WorkersEnded(_) | Happened::Timeout => {
                    return self.end();
                }
                Happened::Nothing => self.look_around(),
            }
        }
    }

    /// Drains, and says until when.
    fn begin_to_end(&mut self) -> Instant {
        notify(NotifyState::Stopping);
        let timeout = self.shared.settings().config.drain_timeout;
        let flows = self.monitor().snapshot().active;
        tracing::info!(flows, %timeout, "draining; a second signal ends at once");
        self.drain();
        Instant::now() + Duration::from(timeout)
    }

    /// Has the configuration read again, and the flow log's file opened anew.
    fn reload(&self, reply: Option<Reply>) {
        notify_reloading();
        if let Some(flow_log) = &self.shared.observer.flow_log {
            flow_log.reopen();
        }
        reload::begin(&self.shared, reply);
    }

    /// Has a configuration that was read take effect, if it may, and says so.
    fn apply(&mut self, prepared: Result<Box<Settings>, String>, reply: Option<Reply>) {
        let outcome = prepared.and_then(|settings| self.take_settings(*settings));
        match &outcome {
            Ok(said) => tracing::info!("reload: {said}"),
            Err(said) => tracing::error!("reload: {said}"),
        }
        if let Some(reply) = reply {
            let _ = reply.send(outcome);
        }
        notify(NotifyState::Ready);
    }

    fn take_settings(&mut self, new: Settings) -> Result<String, String> {
        let old = self.shared.settings();
        let by_bpf = matches!(self.way, Way::Bpf(_));
        let changed =
            old.config.change_to(&new.config, by_bpf).map_err(|error| error.to_string())?;
        if let Way::Bpf(steered) = &mut self.way
            && old.config.steering_policy() != new.config.steering_policy()
            && let Err(error) = steered.set_policy(&new.config)
        {
            // What was written in part is written over.
            if let Err(error) = steered.set_policy(&old.config) {
                tracing::error!(%error, "the policy is neither the old nor the new one");
            }
            return Err(format!("{error}; nothing was changed"));
        }
        // Names may stand for other servers by now, whatever the file says.
        self.shared.set_settings(new);
        Ok(match changed.as_slice() {
            [] => "nothing has changed".into(),
            changed => format!("changed {}", changed.join(", ")),
        })
    }

    /// Has BPF steer beside the rules that there are now, and at interfaces that came meanwhile.
    fn look_around(&mut self) {
        let Way::Bpf(steered) = &mut self.way else { return };
        if let Err(error) = steered.follow_rules() {
            tracing::warn!(%error, "rules of this host that have changed are not followed");
        }
        if steered.consults()
            && self.held.is_none()
            && self.shared.phase() == Phase::Run
            && !self.holds_nothing
            && let Err(error) = hold_from_now_on(steered, &self.shared, &mut self.held)
        {
            self.holds_nothing = true;
            tracing::error!(%error, "new connections pass, as rules of this host cannot be asked");
        }
        if let Err(error) = steered.follow_interfaces() {
            tracing::warn!(%error, "not all interfaces are steered");
        }
    }

    fn wait(
        &self,
        signals: &Signals,
        until: Option<Instant>,
        watchdog: Option<Instant>,
    ) -> Happened {
        let mut fds = vec![
            PollFd::new(&signals.stop, PollFlags::IN),
            PollFd::new(&self.shared.ended, PollFlags::IN),
            PollFd::new(&signals.hang_up, PollFlags::IN),
            PollFd::new(&self.shared.commands.given, PollFlags::IN),
        ];
        if let Some(office) = &self.office {
            fds.push(PollFd::from_borrowed_fd(office.fd(), PollFlags::IN));
        }
        match &self.way {
            Way::Nftables(interception) => {
                fds.push(PollFd::from_borrowed_fd(interception.lost(), PollFlags::IN));
            }
            Way::Bpf(steered) => fds.extend(
                steered.rules_changed().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            ),
            Way::Foreign => {}
        }
        let look = matches!(self.way, Way::Bpf(_)).then_some(LOOK);
        let now = Instant::now();
        let [left, feed] =
            [until, watchdog].map(|due| due.map(|due| due.saturating_duration_since(now)));
        let timeout = [look, left, feed].into_iter().flatten().min();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) if until.is_none_or(|until| Instant::now() < until) => Happened::Nothing,
            Ok(0) => Happened::Timeout,
            Ok(_) if !fds[0].revents().is_empty() => {
                take(&signals.stop);
                Happened::Signal
            }
            Ok(_) if !fds[1].revents().is_empty() => {
                Happened::WorkersEnded(lower(&self.shared.ended))
            }
            Ok(_) if !fds[2].revents().is_empty() => {
                take(&signals.hang_up);
                Happened::HangUp
            }
            Ok(_) if !fds[3].revents().is_empty() => {
                Happened::Commands(self.shared.commands.take())
            }
            Ok(_) if self.office.is_some() && !fds[4].revents().is_empty() => Happened::Successor,
            Ok(_) if matches!(self.way, Way::Bpf(_)) => Happened::Nothing,
            Ok(_) => Happened::RulesLost,
            Err(_) => Happened::Nothing,
        }
    }

    /// Leaves everything but the open flows to a relay that has taken over.
    fn retire(&mut self, successor: Successor) {
        // One at a time may take the records, or be looked at.
        self.accounts = None;
        self.held = None;
        self.served = Served::default();
        self.shared.advance(Phase::Retire);
        let deadline = Instant::now() + SLOTS;
        while self.shared.slots.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Way::Bpf(steered) = std::mem::replace(&mut self.way, Way::Foreign) {
            steered.leave(successor.mark);
        }
        self.office = None;
        successor.congratulate();
    }
}

/// Has SYNs held that were not before.
fn hold_from_now_on(
    steered: &mut Steered,
    shared: &Arc<Shared>,
    held: &mut Option<HeldThread>,
) -> Result<(), InterceptionError> {
    if shared.injector.get().is_none() {
        begin_to_inject(steered, shared)?;
    }
    let thread = HeldThread::start(steered.held()?, shared.clone());
    *held = Some(thread.map_err(InterceptionError::Inject)?);
    Ok(())
}

/// What the supervisor waits for.
enum Happened {
    Signal,
    HangUp,
    Commands(Vec<Command>),
    WorkersEnded(u64),
    RulesLost,
    Successor,
    Timeout,
    Nothing,
}

/// Signals, each a byte to read.
pub(super) struct Signals {
    /// SIGTERM and SIGINT.
    stop: UnixStream,
    /// SIGHUP.
    hang_up: UnixStream,
}

impl Signals {
    pub(super) fn catch() -> io::Result<Signals> {
        let pipe = |signals: &[i32]| -> io::Result<UnixStream> {
            let (read, write) = UnixStream::pair()?;
            for &signal in signals {
                signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
            }
            read.set_nonblocking(true)?;
            Ok(read)
        };
        Ok(Signals { stop: pipe(&[SIGTERM, SIGINT])?, hang_up: pipe(&[SIGHUP])? })
    }
}

/// One signal is dealt with.
fn take(signals: &UnixStream) {
    let _ = rustix::io::read(signals.as_fd(), &mut [0]);
}

/// Says to systemd that the configuration is read again, and when that began, as it wants to know.
fn notify_reloading() {
    let begun = match NotifyState::monotonic_usec_now() {
        Ok(begun) => begun,
        Err(error) => return tracing::warn!(%error, "systemd could not be told"),
    };
    if let Err(error) = sd_notify::notify(&[NotifyState::Reloading, begun]) {
        tracing::warn!(%error, "systemd could not be told");
    }
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd could not be told");
    }
}
