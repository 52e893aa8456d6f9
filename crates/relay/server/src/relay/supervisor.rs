//! What a running relay is told, and what it does then: signals, commands, a successor, a worker's end.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use midspan_interception::{InterceptionError, Steered, steering_policy};
use midspan_legs::Snapshot;
use midspan_succession::{InstanceLock, Successor, manager};
use midspan_telemetry::Served;
use midspan_threads::wake::lower;
use midspan_threads::{Background, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::start::{begin_to_inject, take_held_for};
use super::{Error, Interceptor, Relay};
use crate::command::{Command, Reply};
use crate::phase::Phase;
use crate::reload;
use crate::settings::Settings;
use crate::watchdog::Watchdog;
use crate::worker::Context;

/// How often the supervisor looks for what nothing tells it of: rules of `iptables-legacy`, and what it missed.
const LOOK: Duration = Duration::from_secs(1);
/// How long workers may take to give up their places; they need a turn of their loops.
const SLOTS: Duration = Duration::from_secs(1);

impl Relay {
    /// Waits for what ends a relay, and ends it.
    pub(super) fn supervise(mut self, signals: &Signals) -> Result<Snapshot, Error> {
        self.privileges.lower();
        let mut watchdog = Watchdog::new();
        manager::tell(manager::State::Ready);
        let steered_by = self.monitor.0.steered_by;
        tracing::info!(
            steered_by,
            workers = self.threads.len(),
            flow_limit = self.monitor().flow_limit(),
            "relay ready"
        );
        // What came before it was watched is looked for at once.
        let mut look = Instant::now();
        let mut give_up = None;
        let mut running = self.threads.len() as u64;
        loop {
            watchdog.feed(&self.context.workers);
            for happened in self.wait(signals, look, give_up, watchdog.due()) {
                match happened {
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
                        if let Some(successor) =
                            self.lock.as_mut().and_then(InstanceLock::successor)
                        {
                            let flows = self.monitor().snapshot().active;
                            tracing::info!(flows, "another relay has taken over; draining");
                            self.retire(successor);
                        }
                    }
                    // With its flows a relay that was replaced ends too.
                    Happened::WorkersEnded(ended)
                        if self.context.workers.phase() >= Phase::Retire && ended < running =>
                    {
                        running -= ended;
                    }
                    Happened::HangUp => self.reload(None),
                    Happened::RulesLost => {
                        tracing::error!("the nft process died, and with it the interception rules");
                        manager::tell(manager::State::Stopping);
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
                    Happened::Changes => {
                        self.look_around();
                        look = Instant::now() + LOOK;
                    }
                }
            }
        }
    }

    /// Drains, and says until when.
    fn begin_to_end(&mut self) -> Instant {
        manager::tell(manager::State::Stopping);
        let timeout = self.context.settings.get().config.drain_timeout;
        let flows = self.monitor().snapshot().active;
        tracing::info!(flows, %timeout, "draining; a second signal ends at once");
        self.drain();
        Instant::now() + Duration::from(timeout)
    }

    /// Has the configuration read again, and the flow log's file opened anew.
    fn reload(&self, reply: Option<Reply>) {
        manager::tell(manager::State::Reloading);
        if let Some(flow_log) = self.observer.flow_log() {
            flow_log.reopen();
        }
        reload::begin(&self.reloader, &self.context.settings, &self.commands, reply);
    }

    /// Has a configuration that was read take effect, if it may, and says so.
    fn apply(&mut self, prepared: Result<Box<Settings>, String>, reply: Option<Reply>) {
        let outcome = prepared.and_then(|settings| self.take_settings(*settings));
        self.reloader.record(outcome.is_ok());
        match &outcome {
            Ok(said) => tracing::info!("reload: {said}"),
            Err(said) => tracing::error!("reload: {said}"),
        }
        if let Some(reply) = reply {
            let _ = reply.send(outcome);
        }
        manager::tell(manager::State::Ready);
    }

    fn take_settings(&mut self, new: Settings) -> Result<String, String> {
        let old = self.context.settings.get();
        let by_bpf = matches!(self.interceptor, Interceptor::Bpf(_));
        let changed =
            old.config.change_to(&new.config, by_bpf).map_err(|error| error.to_string())?;
        if let Interceptor::Bpf(steered) = &mut self.interceptor
            && steering_policy(&old.config) != steering_policy(&new.config)
            && let Err(error) = steered.set_policy(&new.config)
        {
            // What was written in part is written over.
            if let Err(error) = steered.set_policy(&old.config) {
                tracing::error!(%error, "the policy is neither the old nor the new one");
            }
            return Err(format!("{error}; nothing was changed"));
        }
        // Names may stand for other servers by now, whatever the file says.
        let limits = self.context.descriptors.limits(new.config.limits.admission());
        self.context.admission.set_limits(limits);
        self.context.settings.set(new);
        self.context.workers.wake();
        Ok(match changed.as_slice() {
            [] => "nothing has changed".into(),
            changed => format!("changed {}", changed.join(", ")),
        })
    }

    /// Has BPF steer beside the rules that there are now, and at the interfaces.
    fn look_around(&mut self) {
        let Interceptor::Bpf(steered) = &mut self.interceptor else { return };
        let changed = steered.follow_rules();
        if let Err(error) = &changed {
            tracing::warn!(%error, "rules of this host that have changed are not followed");
        }
        if self.context.workers.phase() == Phase::Run
            && let Err(error) =
                steered.prove_again(&self.context.settings.get().config, changed.unwrap_or(true))
        {
            tracing::warn!(%error, "rules of this host have changed");
        }
        if steered.consults()
            && self.held.is_none()
            && self.context.workers.phase() == Phase::Run
            && !self.holds_nothing
            && let Err(error) = hold_from_now_on(steered, &self.context, &mut self.held)
        {
            self.holds_nothing = true;
            tracing::error!(%error, "new connections pass, as rules of this host cannot be asked");
        }
        steered.follow_interfaces();
    }

    /// All that has happened. Who comes to the socket of successors is last: nothing else waits for them.
    fn wait(
        &self,
        signals: &Signals,
        look: Instant,
        until: Option<Instant>,
        watchdog: Option<Instant>,
    ) -> Vec<Happened> {
        let nft = match &self.interceptor {
            Interceptor::Nftables(interception) => Some(interception.lost()),
            _ => None,
        };
        let (interfaces, rules) = match &self.interceptor {
            Interceptor::Bpf(steered) => (steered.interfaces_changed(), steered.rules_changed()),
            _ => (None, None),
        };
        let lock = self.lock.as_ref().map(InstanceLock::fd);
        let watched = [
            Some(signals.stop.as_fd()),
            Some(self.context.workers.ended.as_fd()),
            Some(signals.hang_up.as_fd()),
            Some(self.commands.given.as_fd()),
            nft,
            interfaces,
            rules,
            lock,
        ];
        let mut fds: Vec<_> = watched
            .iter()
            .flatten()
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        let look = matches!(self.interceptor, Interceptor::Bpf(_)).then_some(look);
        let now = Instant::now();
        let due = [look, until, watchdog].into_iter().flatten().min();
        let timeout = due.map(|due| due.saturating_duration_since(now));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // Interrupted: nothing has.
        let _ = poll(&mut fds, timeout.as_ref());
        let mut polled = fds.iter().map(|fd| !fd.revents().is_empty());
        let [stop, ended, hang_up, given, nft, interfaces, rules, lock] =
            watched.map(|fd| fd.is_some() && polled.next() == Some(true));
        let now = Instant::now();
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let mut happened = Vec::new();
        if stop {
            signals.stop.take();
            happened.push(Happened::Signal);
        }
        if ended {
            happened.push(Happened::WorkersEnded(lower(&self.context.workers.ended)));
        }
        if hang_up {
            signals.hang_up.take();
            happened.push(Happened::HangUp);
        }
        if given {
            happened.push(Happened::Commands(self.commands.take()));
        }
        if nft {
            happened.push(Happened::RulesLost);
        }
        if interfaces || rules || is_due(look) {
            happened.push(Happened::Changes);
        }
        if is_due(until) {
            happened.push(Happened::Timeout);
        }
        if lock {
            happened.push(Happened::Successor);
        }
        happened
    }

    /// Leaves everything but the open flows to a relay that has taken over.
    fn retire(&mut self, successor: Successor) {
        // One at a time may take the records, or be looked at.
        self.accounts = None;
        self.decide = None;
        self.held = None;
        self.served = Served::default();
        self.context.workers.advance(Phase::Retire);
        let deadline = Instant::now() + SLOTS;
        while self.context.workers.slots.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Interceptor::Bpf(steered) =
            std::mem::replace(&mut self.interceptor, Interceptor::Foreign)
        {
            steered.leave(successor.mark);
        }
        self.lock = None;
        successor.acknowledge();
    }
}

/// Has SYNs held that were not before.
fn hold_from_now_on(
    steered: &mut Steered,
    context: &Context,
    held: &mut Option<Background>,
) -> Result<(), InterceptionError> {
    let Context { reinjector, workers, .. } = context;
    if reinjector.get().is_none() {
        begin_to_inject(steered, reinjector)?;
    }
    let thread = take_held_for(steered, reinjector, workers)?;
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
    Changes,
    Successor,
    Timeout,
}
