//! The loop of an emulator's thread: take packets in, put packets out when they are due, sleep.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use midspan_path::{Counters, Direction, Link};
use midspan_units::{Span, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::packet::WirePacket;
use crate::port::{Intake, Port};
use crate::report::{Drops, Times, since};
use crate::segment::{self, Refused};
use crate::timing::{self, Scheduling};

/// What the emulator's owner asks of its thread.
pub(crate) enum Command {
    /// Say how it goes.
    Report(Sender<Snapshot>),
    /// Forget what was measured so far.
    Reset,
}

/// What the thread knows of itself.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) elapsed: Span,
    pub(crate) cpu: Span,
    pub(crate) lateness: Times,
    pub(crate) intake_gap: Times,
    pub(crate) drops: Drops,
    pub(crate) counters: [Counters; 2],
    pub(crate) reads: [u64; 2],
    pub(crate) scheduling: Scheduling,
    pub(crate) failure: Option<String>,
}

impl Snapshot {
    /// What remains to be said when the thread does not answer.
    pub(crate) fn of_a_dead_thread() -> Snapshot {
        Snapshot {
            elapsed: Span::ZERO,
            cpu: Span::ZERO,
            lateness: Times::new(),
            intake_gap: Times::new(),
            drops: Drops::default(),
            counters: [Counters::default(), Counters::default()],
            reads: [0, 0],
            scheduling: Scheduling::Ordinary,
            failure: Some("its thread has died".into()),
        }
    }
}

/// A link in motion. Lanes are numbered by the port that their packets come from: 0 is the left one,
/// whose packets go up, and 1 the right one, whose packets go down.
pub(crate) struct Engine {
    lanes: [Lane; 2],
    /// Woken when there is a command, or when the owner is gone.
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    /// Number of the last packet or super-packet taken in.
    burst: u64,
    scheduling: Scheduling,
    measured: Measured,
}

/// A port and the elements that its packets go through.
struct Lane {
    port: Port,
    direction: Direction<WirePacket>,
    /// Whether the port may have a packet for us.
    readable: bool,
    /// Counters at the last reset.
    baseline: Counters,
    /// Whether the port works: once reading fails it is left alone.
    alive: bool,
}

/// Measurements since the last reset.
struct Measured {
    since: Time,
    cpu_before: Span,
    lateness: Times,
    intake_gap: Times,
    drops: Drops,
    /// Packets and super-packets taken in from each port.
    reads: [u64; 2],
    failure: Option<String>,
}

/// Packets put out before the ports are looked at again: at 1 to 2 us each a long queue that falls
/// due at once does not keep arrivals waiting for more than about 50 us.
const OUT_PER_ROUND: usize = 32;

/// Least time between two wake-ups for packets that fall due. At 1 Gbit/s one falls due every 12 us,
/// and waking for each costs more than all the rest.
const PAUSE: Span = Span::from_micros(40);

/// Attempts to put a packet out when the kernel says that it has no room at present.
const ATTEMPTS: usize = 3;

impl Engine {
    pub(crate) fn new(
        ports: [Port; 2],
        link: Link<WirePacket>,
        wake: Arc<OwnedFd>,
        commands: Receiver<Command>,
    ) -> Engine {
        let [left, right] = ports;
        let lane = |port, direction: Direction<WirePacket>| Lane {
            port,
            baseline: Counters::default(),
            direction,
            readable: true,
            alive: true,
        };
        Engine {
            lanes: [lane(left, link.up), lane(right, link.down)],
            wake,
            commands,
            burst: 0,
            scheduling: Scheduling::Ordinary,
            measured: Measured {
                since: timing::now(),
                cpu_before: Span::ZERO,
                lateness: Times::new(),
                intake_gap: Times::new(),
                drops: Drops::default(),
                reads: [0, 0],
                failure: None,
            },
        }
    }

    /// Runs until the owner is gone.
    pub(crate) fn run(mut self) {
        self.scheduling = timing::be_prompt();
        let mut woke = timing::now();
        while self.obey() {
            let looked = timing::now();
            self.take_in(0);
            self.take_in(1);
            let due = self.put_out();
            self.measured.intake_gap.record(timing::now().since(looked));
            if !self.lanes.iter().any(|lane| lane.readable) {
                self.sleep(due.map(|due| due.max(woke + PAUSE)));
                woke = timing::now();
            }
        }
    }

    /// Carries commands out. Whether to go on.
    fn obey(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Report(reply)) => {
                    // An owner that no longer waits for the answer does not need it.
                    let _ = reply.send(self.snapshot());
                }
                Ok(Command::Reset) => self.reset(),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Reads one packet or super-packet from a port that may have one.
    fn take_in(&mut self, side: usize) {
        let lane = &mut self.lanes[side];
        if !lane.readable {
            return;
        }
        let intake = lane.port.read();
        let drops = &mut self.measured.drops;
        match intake {
            Ok(Intake::Packet(header, bytes)) => {
                let now = timing::now();
                self.burst += 1;
                self.measured.reads[side] += 1;
                let direction = &mut lane.direction;
                let taken = segment::split(bytes, header, self.burst, |packet| {
                    direction.enqueue(now, packet);
                });
                match taken {
                    Ok(()) => {}
                    Err(Refused::Malformed) => drops.unreadable += 1,
                    Err(Refused::OutOfMemory) => drops.no_memory += 1,
                }
            }
            Ok(Intake::Foreign) => {}
            Ok(Intake::Unreadable) => drops.unreadable += 1,
            Ok(Intake::Empty) => lane.readable = false,
            Err(error) => {
                lane.readable = false;
                lane.alive = false;
                let side = ["left", "right"][side];
                self.measured.failure.get_or_insert(format!("{side} port: {error}"));
            }
        }
    }

    /// Puts packets out that are due, the earliest first whichever way they go. When the next one
    /// is due.
    fn put_out(&mut self) -> Option<Time> {
        let mut now = timing::now();
        for _ in 0..OUT_PER_ROUND {
            let (due, side) = self.next_due()?;
            if due > now {
                now = timing::now();
                if due > now {
                    return Some(due);
                }
            }
            if let Some((intended, packet)) = self.lanes[side].direction.dequeue(now) {
                now = timing::now();
                self.measured.lateness.record(now.since(intended));
                self.write(1 - side, packet);
            }
        }
        self.next_due().map(|(due, _)| due)
    }

    fn next_due(&self) -> Option<(Time, usize)> {
        let due = |side: usize| self.lanes[side].direction.next_event().map(|time| (time, side));
        due(0).into_iter().chain(due(1)).min()
    }

    fn write(&mut self, side: usize, mut packet: WirePacket) {
        let port = &self.lanes[side].port;
        for _ in 0..ATTEMPTS {
            match port.write(&mut packet) {
                Ok(()) => return,
                Err(error) if is_temporary(&error) => {}
                Err(_) => break,
            }
        }
        self.measured.drops.not_put_out += 1;
    }

    /// Sleeps until a port has a packet, the owner calls, or it is `due`.
    fn sleep(&mut self, due: Option<Time>) {
        let timeout = due.map(|due| {
            let nanos = due.since(timing::now()).as_nanos();
            Timespec {
                tv_sec: (nanos / 1_000_000_000) as i64,
                tv_nsec: (nanos % 1_000_000_000) as i64,
            }
        });
        let wake = self.wake.as_fd();
        // A dead port would be reported for ever, whatever was asked; the owner's call stands in.
        let [up, down] = self.lanes.each_ref().map(|lane| match lane.alive {
            true => lane.port.as_fd(),
            false => wake,
        });
        let mut sources = [up, down, wake].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // Interrupted by a signal it is as if woken early.
        let _ = poll(&mut sources, timeout.as_ref());
        let readable = sources.map(|source| !source.revents().is_empty());
        if readable[2] {
            // Emptied, so that it does not wake us again.
            let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        }
        for (lane, readable) in self.lanes.iter_mut().zip(readable) {
            lane.readable = readable && lane.alive;
        }
    }

    fn snapshot(&self) -> Snapshot {
        let measured = &self.measured;
        Snapshot {
            elapsed: timing::now().since(measured.since),
            cpu: timing::thread_cpu_time().saturating_sub(measured.cpu_before),
            lateness: measured.lateness.clone(),
            intake_gap: measured.intake_gap.clone(),
            drops: measured.drops,
            reads: measured.reads,
            counters: self
                .lanes
                .each_ref()
                .map(|lane| since(&lane.direction.counters(), &lane.baseline)),
            scheduling: self.scheduling,
            failure: measured.failure.clone(),
        }
    }

    /// Starts measuring anew. A failure is not forgotten: the port stays dead.
    fn reset(&mut self) {
        let measured = &mut self.measured;
        measured.since = timing::now();
        measured.cpu_before = timing::thread_cpu_time();
        measured.lateness.reset();
        measured.intake_gap.reset();
        measured.drops = Drops::default();
        measured.reads = [0, 0];
        for lane in &mut self.lanes {
            lane.baseline = lane.direction.counters();
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    let no_buffers = rustix::io::Errno::NOBUFS.raw_os_error();
    error.kind() == io::ErrorKind::WouldBlock
        || error.kind() == io::ErrorKind::Interrupted
        || error.raw_os_error() == Some(no_buffers)
}
