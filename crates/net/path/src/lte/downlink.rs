//! The cells, millisecond by millisecond.

use std::collections::VecDeque;

use midspan_units::{Span, Time};

use super::adaptation::{self, GROUPS, Soft, blocks_of, point_of};
use super::geometry::{SERVING, SITES, Sites, uniform};
use super::scheduler::{ALL_GROUPS, Candidate};
use super::spec::LteSpec;
use super::user::{MEASUREMENT, Part, User};
use crate::direction::Stamped;
use crate::random::Random;
use crate::{Counters, Packet, Times};

/// A user has gone from one cell to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover {
    /// When it left the one.
    pub at: Time,
    /// When the other serves it.
    pub resumes: Time,
    /// The user.
    pub user: u32,
    /// The cell that it left.
    pub from: usize,
    /// The one that serves it now.
    pub to: usize,
}

/// The downlink of [`CELLS`](super::CELLS) cells with all their users: a packet that comes to a user's
/// cell leaves when the user has it.
///
/// Each cell sends in every millisecond what its scheduler chooses (3GPP TS 36.211, frame structure 1). A
/// block fails or not by the channel of that moment; one that failed is sent again by HARQ eight
/// milliseconds later, up to three times (TS 36.321), and then anew by RLC in acknowledged mode
/// (`STATUS_DELAY`). A user that is handed over hears nothing for a while; what it has not got is
/// forwarded and sent anew (TS 36.300, section 10.1.2.3).
///
/// Users for whom there is nothing cost nothing but a measurement of where they are, five times a
/// second. No allocation per millisecond once the queues have grown to their working size. Interference
/// is the share of its band that each site uses, smoothed over some frames.
#[derive(Debug)]
pub struct Downlink<P> {
    spec: LteSpec,
    sites: Sites,
    cells: [Cell; SERVING],
    users: Vec<User<P>>,
    /// How much of its band each site uses.
    activity: [f64; SITES],
    /// The frame (of ten milliseconds) up to which that is so.
    frame: u64,
    /// The next millisecond, if any cell has something to send.
    next: u64,
    measure_at: Time,
    /// Users whom a handover silences, by the millisecond in which it ends.
    silenced: VecDeque<(u64, u32)>,
    handovers: VecDeque<Handover>,
    delivered: VecDeque<(Time, u32, P)>,
    counters: Flow,
    delays: Times,
}

#[derive(Debug, Default)]
struct Cell {
    /// Users for whom there is something to send.
    active: Vec<u32>,
    /// Blocks that HARQ sends again, the first ones first.
    failed: VecDeque<Block>,
    /// For the scheduler; kept for its memory.
    candidates: Vec<Candidate>,
    /// Groups used in the current frame.
    used: u32,
}

/// A block that was sent.
#[derive(Debug, Clone, Copy)]
struct Block {
    user: u32,
    /// The user's when it was sent first.
    epoch: u32,
    part: Part,
    /// Of its modulation and code.
    index: usize,
    groups: u32,
    soft: Soft,
    transmissions: u32,
    /// The millisecond from which it may be sent again.
    from: u64,
}

#[derive(Debug, Default)]
struct Flow {
    packets_in: u64,
    bytes_in: u64,
    packets_out: u64,
    bytes_out: u64,
    packets_held: u64,
    bytes_held: u64,
    dropped: u64,
}

/// HARQ's round trip in milliseconds, its processes, and how often it sends a block (TS 36.321;
/// maxHARQ-Tx of 4, as is usual).
const HARQ_ROUND_TRIP: u64 = 8;
const PROCESSES: u32 = 8;
const TRANSMISSIONS: u32 = 4;

/// Milliseconds from HARQ's giving up until RLC sends anew: a reordering timer of 35 ms (TS 36.331's
/// default for acknowledged mode) and the way of the status report.
const STATUS_DELAY: u64 = 40;

/// Header of RLC and subheader of MAC in each block (TS 36.322, TS 36.321).
const BLOCK_HEADER: u64 = 5;

const MILLISECOND: u64 = 1_000_000;
const FRAME: u64 = 10;

/// Share of a frame in the activity that interferes.
const SMOOTHING: f64 = 0.125;

impl<P: Packet> Downlink<P> {
    /// A user in each of the cells of `homes`, counted from 0 (below [`CELLS`](super::CELLS)). `seed`
    /// decides where they are, where they go, how they hear, and which blocks are received.
    pub fn new(spec: &LteSpec, homes: &[usize], seed: u64) -> Self {
        let sites = Sites::new(spec.distance.as_metres());
        let mut seeds = Random::new(seed, 0);
        let user = |home: &usize| User::new(spec, &sites, *home % SERVING, seeds.seed());
        let users = homes.iter().map(user).collect();
        let mut activity = [spec.outer_load.as_fraction(); SITES];
        activity[..SERVING].fill(0.0);
        Downlink {
            spec: *spec,
            sites,
            cells: Default::default(),
            users,
            activity,
            frame: 0,
            next: 0,
            measure_at: Time::ZERO + MEASUREMENT,
            silenced: VecDeque::new(),
            handovers: VecDeque::new(),
            delivered: VecDeque::new(),
            counters: Flow::default(),
            delays: Times::new(),
        }
    }

    /// A packet for `user` comes to the cell that serves it at `now`.
    pub fn enqueue(&mut self, user: u32, now: Time, packet: P) {
        while self.step(now) {}
        let bytes = u64::from(packet.wire_bytes());
        self.counters.packets_in += 1;
        self.counters.bytes_in += bytes;
        let served = &mut self.users[user as usize];
        if served.queue.held().1 + bytes > self.spec.buffer.as_bytes() {
            self.counters.dropped += 1;
            return;
        }
        self.counters.packets_held += 1;
        self.counters.bytes_held += bytes;
        served.queue.push(Stamped { at: now, packet });
        // What comes in the very moment in which a millisecond begins is too late for it.
        self.activate(user, now.as_nanos() / MILLISECOND + 1);
    }

    /// When [`Downlink::dequeue`] should next be called.
    pub fn next_event(&self) -> Time {
        let delivery = self.delivered.front().map_or(Time::MAX, |(at, ..)| *at);
        delivery.min(self.next_step())
    }

    /// The next packet that a user has by `now`, with the time since when, in the order of time. Call
    /// again until it gives `None`.
    pub fn dequeue(&mut self, now: Time) -> Option<(Time, u32, P)> {
        while self.step(now) {}
        let due = self.delivered.front().is_some_and(|(at, ..)| *at <= now);
        if due { self.delivered.pop_front() } else { None }
    }

    /// The next handover that has happened, in the order of time.
    pub fn handover(&mut self) -> Option<Handover> {
        self.handovers.pop_front()
    }

    /// The cell that serves `user`.
    pub fn cell_of(&self, user: u32) -> usize {
        self.users[user as usize].cell
    }

    /// What all cells have done so far.
    pub fn counters(&self) -> Counters {
        let flow = &self.counters;
        let waiting = self.delivered.iter().map(|(.., packet)| u64::from(packet.wire_bytes()));
        let mut counters = Counters {
            packets_in: flow.packets_in,
            bytes_in: flow.bytes_in,
            packets_out: flow.packets_out - self.delivered.len() as u64,
            bytes_out: flow.bytes_out - waiting.clone().sum::<u64>(),
            packets_queued: flow.packets_held + self.delivered.len() as u64,
            bytes_queued: flow.bytes_held + waiting.sum::<u64>(),
            ..Counters::default()
        };
        counters.add_dropped("rlc-buffer", flow.dropped);
        counters
    }

    /// How long packets took.
    pub fn delays(&self) -> &Times {
        &self.delays
    }

    /// Forgets how long packets took so far.
    pub fn restart_delays(&mut self) {
        self.delays.reset();
    }

    fn next_step(&self) -> Time {
        let busy = self.cells.iter().any(|cell| !cell.active.is_empty() || !cell.failed.is_empty());
        let silenced = self.silenced.front().map(|(until, _)| *until);
        let next = busy.then_some(self.next).into_iter().chain(silenced).min();
        next.map_or(Time::MAX, start).min(self.measure_at)
    }

    /// Does what is due first if that is by `until`, and says whether there was something.
    fn step(&mut self, until: Time) -> bool {
        let at = self.next_step();
        if at > until || at == Time::MAX {
            return false;
        }
        if at == self.measure_at {
            self.measure();
            return true;
        }
        let now = at.as_nanos() / MILLISECOND;
        while let Some((_, user)) = self.silenced.front().copied().filter(|(end, _)| *end <= now) {
            self.silenced.pop_front();
            self.users[user as usize].silent = false;
            self.activate(user, now);
        }
        self.run(now);
        self.next = now + 1;
        true
    }

    /// Puts a user into its cell's list if there is something for it.
    fn activate(&mut self, user: u32, from: u64) {
        let served = &mut self.users[user as usize];
        if served.active || served.silent || !served.wants() {
            return;
        }
        served.active = true;
        self.cells[served.cell].active.push(user);
        self.next = self.next.max(from);
    }

    /// Users have walked, and may be handed over.
    fn measure(&mut self) {
        let at = self.measure_at;
        self.measure_at = at + MEASUREMENT;
        for user in 0..self.users.len() {
            let served = &mut self.users[user];
            let from = served.cell;
            let Some(to) = served.measure(&self.spec, &self.sites) else { continue };
            served.hand_over(to);
            served.silent = true;
            let user = user as u32;
            if std::mem::take(&mut served.active) {
                self.cells[from].active.retain(|one| *one != user);
            }
            let end = (at + self.spec.interruption).as_nanos().div_ceil(MILLISECOND);
            self.silenced.push_back((end, user));
            self.handovers.push_back(Handover { at, resumes: start(end), user, from, to });
        }
    }

    /// All cells send for the millisecond `now`.
    fn run(&mut self, now: u64) {
        self.interfere(now / FRAME);
        for cell in 0..SERVING {
            if self.cells[cell].active.is_empty() && self.cells[cell].failed.is_empty() {
                continue;
            }
            let free = self.send_again(cell, now);
            self.schedule(cell, now, free);
            let granted = self.cells[cell].candidates.len();
            for number in 0..granted {
                self.send_new(cell, number, now);
            }
            let users = &mut self.users;
            self.cells[cell].active.retain(|user| {
                let served = &mut users[*user as usize];
                served.active = served.wants();
                served.active
            });
        }
    }

    /// What the cells used of their bands until the current frame is what interferes from now on.
    fn interfere(&mut self, frame: u64) {
        let passed = u32::try_from(frame - self.frame).unwrap_or(u32::MAX);
        if passed == 0 {
            return;
        }
        self.frame = frame;
        // The frame that was used, and then empty ones.
        let faded = crate::radio::to_the_power(1.0 - SMOOTHING, passed - 1);
        for (cell, activity) in self.cells.iter_mut().zip(&mut self.activity) {
            let used = f64::from(std::mem::take(&mut cell.used)) / (GROUPS as u64 * FRAME) as f64;
            *activity = (*activity + (used - *activity) * SMOOTHING) * faded;
        }
    }

    /// HARQ's retransmissions go first. Answers the groups that are left.
    fn send_again(&mut self, cell: usize, now: u64) -> u32 {
        let mut free = ALL_GROUPS;
        let waiting = self.cells[cell].failed.len();
        for _ in 0..waiting {
            let Some(block) = self.cells[cell].failed.pop_front() else { break };
            let user = &mut self.users[block.user as usize];
            if user.epoch != block.epoch {
                continue;
            }
            // A user is sent one block at a time.
            let possible = block.from <= now
                && user.served != Some(now)
                && free.count_ones() >= block.groups.count_ones();
            if !possible {
                self.cells[cell].failed.push_back(block);
                continue;
            }
            let groups = lowest(free, block.groups.count_ones());
            free &= !groups;
            user.look(now, &self.activity);
            user.served = Some(now);
            user.pending -= 1;
            self.transmit(cell, Block { groups, ..block }, now);
        }
        free
    }

    /// Chooses who is sent something new, and where in the band.
    fn schedule(&mut self, cell: usize, now: u64, free: u32) {
        let Cell { active, candidates, .. } = &mut self.cells[cell];
        candidates.clear();
        if free == 0 {
            return;
        }
        for user in active.iter() {
            let served = &mut self.users[*user as usize];
            let ready = served.again.front().filter(|part| part.from <= now);
            let bytes = ready.map_or(served.queue.waiting(), |part| part.bytes);
            if bytes == 0 || served.served == Some(now) || served.pending >= PROCESSES {
                continue;
            }
            served.look(now, &self.activity);
            candidates.push(Candidate {
                user: *user,
                wanted: ((bytes + BLOCK_HEADER) * 8) as f64,
                average: served.average(now),
                efficiency: served.reported,
                groups: 0,
                bits: 0.0,
            });
        }
        self.spec.scheduler.assign(candidates, free, now);
    }

    /// Sends a block to a candidate, if it was given a part of the band.
    fn send_new(&mut self, cell: usize, number: usize, now: u64) {
        let Candidate { user, groups, .. } = self.cells[cell].candidates[number];
        if groups == 0 {
            return;
        }
        let served = &mut self.users[user as usize];
        let index = adaptation::choose(mean(groups, &served.reported), served.correction);
        let blocks = each(groups).map(blocks_of).sum();
        let room = adaptation::block_bytes(index, blocks).saturating_sub(BLOCK_HEADER);
        let part = match served.again.front_mut().filter(|part| part.from <= now) {
            Some(part) if part.bytes > room => {
                part.bytes -= room;
                Some(Part { bytes: room, ..*part })
            }
            Some(_) => served.again.pop_front(),
            None => served.queue.fill(room).map(|(block, bytes)| Part { block, bytes, from: now }),
        };
        let Some(part) = part.filter(|part| part.bytes > 0) else { return };
        served.count((part.bytes * 8) as f64);
        served.served = Some(now);
        let (epoch, soft) = (served.epoch, Soft::default());
        let block = Block { user, epoch, part, index, groups, soft, transmissions: 0, from: now };
        self.transmit(cell, block, now);
    }

    /// A block is on the air; at the end of the millisecond it is received, or will be sent again.
    fn transmit(&mut self, cell: usize, mut block: Block, now: u64) {
        self.cells[cell].used += block.groups.count_ones();
        let served = &mut self.users[block.user as usize];
        block.soft.add(mean(block.groups, &served.channel));
        block.transmissions += 1;
        let received = uniform(&mut served.random) >= block.soft.error(block.index);
        if block.transmissions == 1 {
            served.correct(received);
        }
        if received {
            served.queue.received(block.part.block, block.part.bytes);
            self.deliver(block.user, start(now + 1));
        } else if block.transmissions < TRANSMISSIONS {
            served.pending += 1;
            self.cells[cell].failed.push_back(Block { from: now + HARQ_ROUND_TRIP, ..block });
        } else {
            served.again.push_back(Part { from: now + STATUS_DELAY, ..block.part });
            if !std::mem::replace(&mut served.active, true) {
                self.cells[cell].active.push(block.user);
            }
        }
    }

    /// Hands out what a user has got in order.
    fn deliver(&mut self, user: u32, at: Time) {
        while let Some(Stamped { at: since, packet }) = self.users[user as usize].queue.pop() {
            let bytes = u64::from(packet.wire_bytes());
            self.counters.packets_held -= 1;
            self.counters.bytes_held -= bytes;
            self.counters.packets_out += 1;
            self.counters.bytes_out += bytes;
            self.delays.record(at.since(since));
            self.delivered.push_back((at, user, packet));
        }
    }
}

/// When a millisecond begins.
fn start(millisecond: u64) -> Time {
    Time::ZERO + Span::from_millis(millisecond)
}

/// The groups that a number names.
fn each(groups: u32) -> impl Iterator<Item = usize> {
    (0..GROUPS).filter(move |group| groups & (1 << group) != 0)
}

/// The mean over groups of what each point of the band carries.
fn mean(groups: u32, points: &[f64; crate::radio::POINTS]) -> f64 {
    let sum: f64 = each(groups).map(|group| points[point_of(group)]).sum();
    sum / f64::from(groups.count_ones())
}

/// The `count` lowest of some groups.
fn lowest(groups: u32, count: u32) -> u32 {
    each(groups).take(count as usize).fold(0, |all, group| all | 1 << group)
}

#[cfg(test)]
mod tests {
    use midspan_units::{ByteSize, Decibels, Share, Speed};

    use super::super::scheduler::Scheduler;
    use super::*;
    use crate::testing::TestPacket;

    const PACKET: u32 = 1500;

    fn millis(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// Keeps `backlog` packets waiting for each user for so long. Answers each user's packets in the
    /// order in which they came, with their times.
    fn saturate(
        spec: &LteSpec,
        homes: &[usize],
        backlog: u64,
        time: u64,
    ) -> (Downlink<TestPacket>, Vec<Vec<(Time, u64)>>) {
        let mut downlink = Downlink::new(spec, homes, 1);
        let mut out = vec![Vec::new(); homes.len()];
        let mut sent = vec![0; homes.len()];
        for now in 0..time {
            for user in 0..homes.len() {
                while sent[user] < out[user].len() as u64 + backlog {
                    let packet = TestPacket::new(sent[user], PACKET);
                    downlink.enqueue(user as u32, millis(now), packet);
                    sent[user] += 1;
                }
            }
            while let Some((at, user, packet)) = downlink.dequeue(millis(now + 1)) {
                out[user as usize].push((at, packet.number));
            }
        }
        (downlink, out)
    }

    fn mbps(packets: usize, millis: u64) -> f64 {
        packets as f64 * f64::from(PACKET) * 8.0 / 1e3 / millis as f64
    }

    /// A user beside an antenna without neighbours gets the greatest block in each millisecond: 31,704
    /// bits (TS 36.213, table 7.1.7.2.1-1) less headers of 4 in 1504 and 5 in 3963 bytes.
    #[test]
    fn the_greatest_rate_is_that_of_the_table() {
        let spec = LteSpec {
            outer_load: Share::ZERO,
            penetration: Decibels::from_hundredths(-4000),
            speed: Speed::from_metres_per_hour(0),
            ..LteSpec::default()
        };
        let (_, out) = saturate(&spec, &[0], 200, 2000);
        let rate = mbps(out[0].len(), 2000);
        assert!((31.0..31.6).contains(&rate), "{rate}");
    }

    #[test]
    fn packets_come_in_order_and_none_is_lost() {
        let spec = LteSpec { speed: Speed::from_metres_per_hour(60_000), ..LteSpec::default() };
        let homes: Vec<usize> = (0..21).map(|user| user % SERVING).collect();
        let (mut downlink, out) = saturate(&spec, &homes, 20, 8000);
        for user in &out {
            assert!(user.iter().map(|(_, number)| *number).eq(0..user.len() as u64));
            assert!(user.is_sorted());
        }
        let counters = downlink.counters();
        assert_eq!(counters.packets_in, counters.packets_out + counters.packets_queued);
        assert_eq!(counters.packets_dropped(), 0);
        let handovers: Vec<Handover> = std::iter::from_fn(|| downlink.handover()).collect();
        assert!(!handovers.is_empty());
        // Who is handed over hears nothing until that is over.
        for handover in handovers {
            assert_eq!(handover.resumes.since(handover.at), spec.interruption);
            let silent =
                |at: Time| handover.at + Span::from_millis(1) < at && at <= handover.resumes;
            let heard = &out[handover.user as usize];
            assert!(!heard.iter().any(|(at, _)| silent(*at)), "{handover:?}");
        }
    }

    /// Ten users a cell, all of whom hear their own cell best, among neighbours that always send: the
    /// order of what such networks carry.
    #[test]
    fn a_loaded_cell_carries_one_to_two_bits_per_second_and_hertz() {
        let homes: Vec<usize> = (0..70).map(|user| user % SERVING).collect();
        let (_, out) = saturate(&LteSpec::default(), &homes, 40, 4000);
        let cell = out.iter().map(|packets| mbps(packets.len(), 4000)).sum::<f64>() / 7.0;
        assert!((10.0..20.0).contains(&cell), "{cell} Mbit/s");
        // Everybody is served, if some hardly: one hears its own cell just better than three others.
        let mut packets: Vec<usize> = out.iter().map(Vec::len).collect();
        packets.sort_unstable();
        assert!(packets[0] > 0 && packets[3] > 100, "{packets:?}");
    }

    #[test]
    fn proportional_fairness_carries_more_than_taking_turns() {
        let carried = |scheduler| {
            let homes: Vec<usize> = (0..42).map(|user| user % SERVING).collect();
            let (_, out) = saturate(&LteSpec { scheduler, ..LteSpec::default() }, &homes, 40, 3000);
            out.iter().map(Vec::len).sum::<usize>() as f64
        };
        let gain = carried(Scheduler::ProportionalFair) / carried(Scheduler::RoundRobin);
        assert!((1.1..2.0).contains(&gain), "{gain}");
    }

    #[test]
    fn a_full_buffer_drops_what_comes() {
        let spec = LteSpec { buffer: ByteSize::from_bytes(4500), ..LteSpec::default() };
        let mut downlink = Downlink::new(&spec, &[0], 1);
        (0..5).for_each(|n| downlink.enqueue(0, Time::ZERO, TestPacket::new(n, PACKET)));
        assert_eq!(downlink.counters().dropped["rlc-buffer"], 2);
        let out = std::iter::from_fn(|| downlink.dequeue(millis(1000)));
        assert_eq!(out.map(|(.., packet)| packet.number).collect::<Vec<_>>(), [0, 1, 2]);
    }

    /// What comes while a millisecond runs is sent in the next one, and there at its end.
    #[test]
    fn a_lone_packet_takes_the_next_millisecond() {
        let spec = LteSpec { outer_load: Share::ZERO, ..LteSpec::default() };
        let mut downlink = Downlink::new(&spec, &[3], 4);
        for at in [0u64, 5_000_300, 9_000_000] {
            downlink.enqueue(0, Time::from_nanos(at), TestPacket::new(at, 100));
            let begins = at / 1_000_000 + 1;
            assert_eq!(downlink.next_event(), millis(begins));
            assert!(downlink.dequeue(millis(begins)).is_none());
            assert_eq!(downlink.next_event(), millis(begins + 1));
            let (left, ..) = downlink.dequeue(millis(begins + 1)).unwrap();
            assert_eq!(left, millis(begins + 1));
        }
        // Then there is nothing to do but to look where the user is.
        assert_eq!(downlink.next_event(), millis(200));
        assert_eq!(downlink.cell_of(0), 3);
    }

    /// The same whenever somebody looks, and another with another seed.
    #[test]
    fn the_seed_decides_everything() {
        let spec = LteSpec { speed: Speed::from_metres_per_hour(120_000), ..LteSpec::default() };
        let cross = |seed, step: usize| {
            let mut downlink = Downlink::new(&spec, &[0, 0, 1], seed);
            let mut out = Vec::new();
            for now in 0..3000u64 {
                let packet = TestPacket::new(now, PACKET);
                downlink.enqueue((now % 3) as u32, Time::from_nanos(now * 777_777), packet);
                if (now as usize).is_multiple_of(step) {
                    let looked = Time::from_nanos(now * 777_777);
                    out.extend(std::iter::from_fn(|| downlink.dequeue(looked)));
                }
            }
            out.extend(std::iter::from_fn(|| downlink.dequeue(millis(10_000))));
            out
        };
        let often = cross(9, 1);
        assert_eq!(often.len(), 3000);
        assert_eq!(cross(9, 700), often);
        assert_ne!(cross(10, 1), often);
    }

    /// What is sent to users changes nothing of where they go: two variants of a run meet the same
    /// network.
    #[test]
    fn users_go_their_ways_whatever_is_sent_to_them() {
        let spec = LteSpec { speed: Speed::from_metres_per_hour(120_000), ..LteSpec::default() };
        let homes: Vec<usize> = (0..14).map(|user| user % SERVING).collect();
        let handovers = |backlog| {
            let (mut downlink, _) = saturate(&spec, &homes, backlog, 10_000);
            std::iter::from_fn(|| downlink.handover()).collect::<Vec<_>>()
        };
        let idle = handovers(0);
        assert!(idle.len() > 3);
        assert_eq!(handovers(20), idle);
    }

    /// The bytes of one run: the same on every machine.
    #[test]
    fn the_same_on_every_machine() {
        let homes: Vec<usize> = (0..14).map(|user| user % SERVING).collect();
        let (_, out) = saturate(&LteSpec::default(), &homes, 20, 1000);
        let digest = out.iter().flatten().fold(0u64, |digest, (at, number)| {
            (digest ^ at.as_nanos() ^ number).wrapping_mul(0x100_0000_01b3)
        });
        assert_eq!(digest, 0x1f1d_cdf0_8924_f43e, "{digest:#x}");
    }
}
