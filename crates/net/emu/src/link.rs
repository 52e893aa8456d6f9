//! One link of an emulator's thread: two ports, what is between them, and what is measured.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use midspan_path::{Counters, Stretch, Times, Way};
use midspan_units::{Span, Time};

use crate::between::Between;
use crate::gro_batch::GroBatch;
use crate::port::{Intake, Port};
use crate::report::{Drops, since};
use crate::segment::{self, Refused};
use crate::tap::{End, Tap};
use crate::timing;

/// A link in motion. Directions are numbered by the port that their packets come from: 0 is the left one,
/// whose packets go up, and 1 the right one, whose packets go down.
pub(crate) struct RunningLink {
    ports: [PortState; 2],
    between: Between,
    /// What the air interface had counted, if there is one, when measuring last began.
    radio_baseline: (Counters, Counters),
    /// When the link's time began.
    epoch: Time,
    /// Number of the last packet or super-packet taken in.
    burst: u64,
    measured: Measured,
    /// Who is told of the packets that the ends see.
    tap: Option<Tap>,
}

/// A port, and what is known of the way that its packets go.
struct PortState {
    port: Port,
    /// What is about to leave through the port, from the other port's elements.
    batch: GroBatch,
    /// Counters when measuring last began.
    baseline: Counters,
    /// Whether the port may have a packet for us.
    readable: bool,
    /// When the first of them came, as far as that is known.
    came: Option<Time>,
    /// Whether the port works: once reading fails it is left alone.
    alive: bool,
}

/// What was measured since measuring last began.
struct Measured {
    since: Time,
    cpu_before: Span,
    lateness: Times,
    intake_gap: Times,
    drops: Drops,
    reads: [u64; 2],
    failure: Option<String>,
}

/// What a link says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) elapsed: Span,
    pub(crate) cpu: Span,
    pub(crate) lateness: Times,
    pub(crate) intake_gap: Times,
    pub(crate) drops: Drops,
    pub(crate) counters: [Counters; 2],
    pub(crate) delays: [Times; 2],
    pub(crate) waiting: [u64; 2],
    pub(crate) radio: Option<Stretch>,
    pub(crate) reads: [u64; 2],
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
            delays: [Times::new(), Times::new()],
            waiting: [0, 0],
            radio: None,
            reads: [0, 0],
            failure: Some("its thread has died".into()),
        }
    }
}

/// Where the packets of each port go.
const WAYS: [Way; 2] = [Way::Up, Way::Down];

/// Where the packets of each port come from.
const ENDS: [End; 2] = [End::Left, End::Right];

/// Attempts to put a packet out when the kernel says that it has no room at present.
const ATTEMPTS: usize = 3;

impl RunningLink {
    pub(crate) fn new(
        ports: [Port; 2],
        between: Between,
        epoch: Time,
        tap: Option<Tap>,
    ) -> RunningLink {
        let [left, right] = ports;
        let port_state = |port| PortState {
            port,
            batch: GroBatch::default(),
            baseline: Counters::default(),
            readable: true,
            came: None,
            alive: true,
        };
        RunningLink {
            ports: [port_state(left), port_state(right)],
            between,
            radio_baseline: Default::default(),
            epoch,
            burst: 0,
            measured: Measured {
                since: timing::now(),
                cpu_before: Span::ZERO,
                lateness: Times::new(),
                intake_gap: Times::new(),
                drops: Drops::default(),
                reads: [0, 0],
                failure: None,
            },
            tap,
        }
    }

    /// Reads one packet or super-packet from each port that may have one. Whether one of them may
    /// have another.
    pub(crate) fn take_in(&mut self) -> bool {
        self.take_in_from(0);
        self.take_in_from(1);
        self.ports.iter().any(|port_state| port_state.readable)
    }

    fn take_in_from(&mut self, side: usize) {
        let port_state = &mut self.ports[side];
        if !port_state.readable {
            return;
        }
        let drops = &mut self.measured.drops;
        match port_state.port.read() {
            Ok(Intake::Packet(header, bytes)) => {
                let came = port_state.came.take().unwrap_or_else(timing::now);
                self.burst += 1;
                self.measured.reads[side] += 1;
                let (between, tap) = (&mut self.between, &self.tap);
                let at = Time::ZERO + came.since(self.epoch);
                let taken = segment::split(bytes, header, self.burst, |packet| {
                    if let Some(tap) = tap {
                        tap.see(ENDS[side], came, packet.ip());
                    }
                    between.enqueue(WAYS[side], at, packet);
                });
                match taken {
                    Ok(()) => {}
                    Err(Refused::Malformed) => drops.unreadable += 1,
                    Err(Refused::OutOfMemory) => drops.no_memory += 1,
                }
            }
            Ok(Intake::Foreign) => {}
            Ok(Intake::Unreadable) => drops.unreadable += 1,
            Ok(Intake::Empty) => (port_state.readable, port_state.came) = (false, None),
            Err(error) => {
                port_state.readable = false;
                port_state.alive = false;
                let side = ["left", "right"][side];
                self.measured.failure.get_or_insert(format!("{side} port: {error}"));
            }
        }
    }

    /// When a packet may be due, and at which port.
    pub(crate) fn next_due(&self) -> Option<(Time, usize)> {
        let due = |side: usize| {
            let event = self.between.next_event(WAYS[side])?;
            Some((self.epoch + event.since(Time::ZERO), side))
        };
        due(0).into_iter().chain(due(1)).min()
    }

    /// Puts the next packet of a port that is due by `now` into a batch, which is written first if
    /// the packet cannot join it.
    pub(crate) fn put_out(&mut self, from: usize, now: Time) {
        let now = Time::ZERO + now.since(self.epoch);
        if let Some((intended, packet)) = self.between.dequeue(WAYS[from], now) {
            let intended = self.epoch + intended.since(Time::ZERO);
            let to = 1 - from;
            if !self.ports[to].batch.admits(&packet) {
                self.depart(to);
            }
            self.ports[to].batch.push(intended, packet);
        }
    }

    /// Writes every batch out.
    pub(crate) fn flush(&mut self) {
        self.depart(0);
        self.depart(1);
    }

    fn depart(&mut self, side: usize) {
        let PortState { port, batch, .. } = &mut self.ports[side];
        if batch.is_empty() {
            return;
        }
        if let Some(tap) = &self.tap {
            let now = timing::now();
            batch.packets().for_each(|packet| tap.see(ENDS[side], now, packet.ip()));
        }
        batch.coalesce();
        let now = timing::now();
        batch.intended().for_each(|intended| self.measured.lateness.record(now.since(intended)));
        if !write(port, batch) {
            self.measured.drops.not_put_out += batch.len() as u64;
        }
        batch.clear();
    }

    /// What to wait on for each port to have a packet.
    pub(crate) fn sources(&self) -> [BorrowedFd<'_>; 2] {
        self.ports.each_ref().map(|port_state| port_state.port.as_fd())
    }

    /// Notes that a port may have a packet, which came then.
    ///
    /// # Errors
    /// When the port is dead: what not to wait on any more.
    pub(crate) fn offer(&mut self, side: usize, came: Time) -> Result<(), BorrowedFd<'_>> {
        let port_state = &mut self.ports[side];
        port_state.readable = port_state.alive;
        port_state.came = Some(came);
        if port_state.alive { Ok(()) } else { Err(port_state.port.as_fd()) }
    }

    /// Notes for how long the ports were not looked at.
    pub(crate) fn note_gap(&mut self, gap: Span) {
        self.measured.intake_gap.record(gap);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let measured = &self.measured;
        Snapshot {
            elapsed: timing::now().since(measured.since),
            cpu: timing::thread_cpu_time().saturating_sub(measured.cpu_before),
            lateness: measured.lateness.clone(),
            intake_gap: measured.intake_gap.clone(),
            drops: measured.drops,
            reads: measured.reads,
            counters: [0, 1]
                .map(|side| since(&self.between.counters(WAYS[side]), &self.ports[side].baseline)),
            delays: WAYS.map(|way| self.between.delays(way)),
            waiting: WAYS.map(|way| self.between.waiting_bytes(way)),
            radio: self.radio(),
            failure: measured.failure.clone(),
        }
    }

    /// What the air interface has done since measuring began, if there is one.
    fn radio(&self) -> Option<Stretch> {
        let mut radio = self.between.radio()?;
        let (up, down) = &self.radio_baseline;
        radio.counters = (since(&radio.counters.0, up), since(&radio.counters.1, down));
        Some(radio)
    }

    /// Starts measuring anew. A failure is not forgotten: the port stays dead.
    pub(crate) fn reset(&mut self) {
        let measured = &mut self.measured;
        measured.since = timing::now();
        measured.cpu_before = timing::thread_cpu_time();
        measured.lateness.reset();
        measured.intake_gap.reset();
        measured.drops = Drops::default();
        measured.reads = [0, 0];
        for (port_state, way) in self.ports.iter_mut().zip(WAYS) {
            port_state.baseline = self.between.counters(way);
        }
        self.radio_baseline = self.between.radio().map(|radio| radio.counters).unwrap_or_default();
        self.between.restart_delays();
    }
}

/// Whether the kernel took it.
fn write(port: &Port, batch: &mut GroBatch) -> bool {
    for _ in 0..ATTEMPTS {
        match port.write(batch) {
            Ok(()) => return true,
            Err(error) if is_temporary(&error) => {}
            Err(_) => return false,
        }
    }
    false
}

fn is_temporary(error: &io::Error) -> bool {
    let no_buffers = rustix::io::Errno::NOBUFS.raw_os_error();
    error.kind() == io::ErrorKind::WouldBlock
        || error.kind() == io::ErrorKind::Interrupted
        || error.raw_os_error() == Some(no_buffers)
}
