use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use midspan_units::{Span, Time};
use rustix::event::{EventfdFlags, eventfd};

use crate::between::Between;
use crate::engine::{Command, Engine};
use crate::link::{RunningLink, Snapshot};
use crate::pace::{Pace, Processor};
use crate::port::{Backend, Monitor, Port, PortConfig};
use crate::report::{Distribution, Report};
use crate::tap::Tap;
use crate::timing::{self, Scheduling};

/// An emulated link: its name in reports and its two ends.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// The link's name, in reports and reasons.
    pub name: String,
    /// How packets pass between the ends' interfaces and the emulator.
    pub backend: Backend,
    /// The end towards the UE: what comes in here goes through the link's `up` elements.
    pub left: PortConfig,
    /// The end towards the server: what comes in here goes through the link's `down` elements.
    pub right: PortConfig,
    /// The shortest round trip of the connections that will cross it: how punctual it must be. A
    /// link may save itself work by being late within a hundredth of that.
    pub shortest_rtt: Span,
    /// Who is told of every packet that the two ends see; nobody without.
    pub tap: Option<Tap>,
}

/// Why a link could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An interface could not be made.
    #[error("link {link}: cannot make interface {interface}: {source}")]
    Port {
        /// The link's name.
        link: String,
        /// The interface's.
        interface: String,
        /// What the system said.
        source: io::Error,
    },
    /// The emulator's thread could not be started.
    #[error("link {link}: cannot start its thread: {source}")]
    Thread {
        /// The link's name.
        link: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Makes both interfaces, up and with their MTUs but without addresses and routes, and starts
/// moving packets between them through what is `between`, on a thread of its own.
///
/// # Errors
/// When an interface cannot be made or the thread cannot be started; nothing is left behind then.
pub fn start(config: LinkConfig, between: impl Into<Between>) -> Result<Emulator, Error> {
    let (left, left_monitor) = open(&config, &config.left)?;
    let (right, right_monitor) = open(&config, &config.right)?;
    let epoch = timing::now();
    let running = RunningLink::new([left, right], between.into(), epoch, config.tap);
    let thread = Thread::start(&config.name, running, config.shortest_rtt)
        .map_err(|source| Error::Thread { link: config.name.clone(), source })?;
    let monitors = [left_monitor, right_monitor];
    Ok(Emulator { name: config.name, epoch, thread, monitors, drops_before: AtomicU64::new(0) })
}

fn open(config: &LinkConfig, port: &PortConfig) -> Result<(Port, Monitor), Error> {
    Port::open(port, config.backend).map_err(|source| Error::Port {
        link: config.name.clone(),
        interface: port.interface.clone(),
        source,
    })
}

/// A running link. It stops, and its interfaces vanish, when this value is dropped.
#[derive(Debug)]
pub struct Emulator {
    name: String,
    epoch: Time,
    thread: Thread,
    monitors: [Monitor; 2],
    /// Drops that the monitors had counted when measuring last began.
    drops_before: AtomicU64,
}

impl Emulator {
    /// What the link did since it started, or since [`Emulator::restart_statistics`].
    pub fn report(&self) -> Report {
        let (reply, answer) = channel();
        self.thread.command(Command::Report(reply));
        let (mut snapshot, scheduling) =
            answer.recv().unwrap_or_else(|_| (Snapshot::of_a_dead_thread(), Scheduling::Ordinary));
        match self.kernel_drops() {
            Ok(drops) => {
                let before = self.drops_before.load(Ordering::Relaxed);
                snapshot.drops.not_taken = drops.saturating_sub(before);
            }
            Err(error) => {
                snapshot.failure.get_or_insert(format!("cannot count drops: {error}"));
            }
        }
        let [up, down] = snapshot.counters;
        let [up_delays, down_delays] = snapshot.delays;
        let [up_reads, down_reads] = snapshot.reads;
        let [up_waiting, down_waiting] = snapshot.waiting;
        Report {
            name: self.name.clone(),
            elapsed: snapshot.elapsed,
            lateness: Distribution::of(&snapshot.lateness),
            intake_gap: Distribution::of(&snapshot.intake_gap),
            drops: snapshot.drops,
            up,
            down,
            up_delays,
            down_delays,
            up_waiting,
            down_waiting,
            radio: snapshot.radio,
            up_reads,
            down_reads,
            cpu: snapshot.cpu,
            scheduling,
            failure: snapshot.failure,
        }
    }

    /// The moment that is zero to the link's elements, on the kernel's monotonic clock: a trace begins
    /// here.
    pub fn epoch(&self) -> Time {
        self.epoch
    }

    /// Forgets what was measured so far: the warm-up is over. Packets in the link stay there.
    pub fn restart_statistics(&self) {
        // A failure to count shows in the next report, which counts again.
        let drops = self.kernel_drops().unwrap_or_default();
        self.drops_before.store(drops, Ordering::Relaxed);
        self.thread.command(Command::Reset);
    }

    /// Stops the link and says what it did. Packets still in it are gone.
    pub fn stop(self) -> Report {
        self.report()
    }

    fn kernel_drops(&self) -> io::Result<u64> {
        Ok(self.monitors[0].drops()? + self.monitors[1].drops()?)
    }
}

/// A running thread. It ends when this value is dropped.
#[derive(Debug)]
struct Thread {
    /// Its closing is what ends the thread.
    commands: Option<Sender<Command>>,
    wake: Arc<OwnedFd>,
    handle: Option<JoinHandle<()>>,
    /// Given back when the thread has ended.
    _processor: Option<Processor>,
}

/// How often a new thread is woken, to see how long that takes.
const WAKES: usize = 20;

/// Until it is woken again: long enough for it, and its processor, to have gone to sleep.
const REST: Duration = Duration::from_micros(300);

impl Thread {
    fn start(name: &str, link: RunningLink, shortest_rtt: Span) -> io::Result<Thread> {
        let processor = Processor::take(timing::now(), timing::others_running());
        let pace = Pace::for_rtt(shortest_rtt, processor.as_ref());
        let processor = processor.filter(|_| pace.stays_awake());
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (commands, receiver) = channel();
        let engine = Engine::new(link, pace, wake.clone(), receiver)?;
        let handle =
            thread::Builder::new().name(format!("emu-{name}")).spawn(move || engine.run())?;
        let thread =
            Thread { commands: Some(commands), wake, handle: Some(handle), _processor: processor };
        thread.see_how_long_waking_takes();
        Ok(thread)
    }

    /// An arrival is stamped when the thread has woken for it, which on a processor that was idle takes a good
    /// part of what a short round trip may be wrong by. So it is stamped earlier by the least that
    /// waking takes here.
    fn see_how_long_waking_takes(&self) {
        for _ in 0..WAKES {
            thread::sleep(REST);
            self.command(Command::Wake(timing::now()));
        }
    }

    /// Has the thread carry a command out. One that has died answers nothing, which is noticed by
    /// whoever waits for the answer.
    fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
            self.call();
        }
    }

    /// Wakes the thread. An eventfd refuses only when it is about to overflow, and then it wakes.
    fn call(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.commands = None;
        self.call();
        if let Some(handle) = self.handle.take() {
            // A panic in the thread has been printed, and a dying link must not take more along.
            let _ = handle.join();
        }
    }
}
