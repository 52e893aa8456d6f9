//! The whole loop, in virtual time: a base station that reports as srsRAN 4G's does, the estimator, and
//! a sender that goes by what it is told. The sender is the congestion control `natcp` as a fluid.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::net::IpAddr;

use midspan_assist_proto::estimate::{Cell, EstimatorConfig, MinRttConfig, Technology};
use midspan_assist_proto::{
    BasisKind, Board, Causal, Entry, Inbox, Limits, Registry, Rights, SessionId, SourceId, Target,
    ToDaemon,
};
use midspan_units::{Rate, Span, Time};
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::recording::recording;
use super::{Format, Records, SourceClock, Splitter, SrsEnb};

/// A bearer's mode, in which it is to work in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bearer {
    Unacknowledged,
    /// With a status report every so many milliseconds, about.
    Acknowledged {
        status_ms: u64,
    },
}

/// How it begins.
#[derive(Debug, Clone, Copy)]
struct Start {
    bearer: Bearer,
    /// Resource blocks of the cell, if the daemon is told of it, so that channel quality bounds; the cell has 25.
    blocks: Option<u32>,
    /// Channel quality, as reported.
    cqi: f64,
    /// When the transfer begins, in ms after the first report.
    begins: u64,
    /// The window that the sender has then, in packets.
    window: u64,
    /// Bytes that the base station collects before it writes its report out.
    clump: usize,
    /// In its first seconds the link carries a quarter, and channel quality does not show it.
    slow: bool,
}

const USUAL: Start = Start {
    bearer: Bearer::Unacknowledged,
    blocks: None,
    cqi: 15.0,
    begins: 1_000,
    window: 10,
    clump: 1,
    slow: false,
};

/// What came of it.
struct Outcome {
    /// What was delivered from 2 s after the beginning on, of the capacity.
    goodput: f64,
    /// The least of it in any second.
    least: f64,
    /// The same of the last second.
    last: f64,
    /// Round trips above the idle one from then on, in ms, in order.
    above_idle: Vec<u64>,
    /// Of the milliseconds from then on, those in which the sender had no feedback that held.
    fallback: f64,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let above_idle = [50, 95, 99].map(|percent| self.above_idle(percent));
        let Outcome { goodput, least, last, fallback, .. } = self;
        write!(
            f,
            "goodput {goodput:.3}, least {least:.3}, last {last:.3}, ms above idle {above_idle:?}, fallback {fallback:.3}"
        )
    }
}

impl Outcome {
    fn mean(&self) -> f64 {
        self.above_idle.iter().sum::<u64>() as f64 / self.above_idle.len() as f64
    }

    fn above_idle(&self, percent: usize) -> u64 {
        self.above_idle[self.above_idle.len() * percent / 100]
    }
}

/// 25 blocks, at the highest channel quality: 5 MHz.
const CELL: Cell = Cell {
    technology: Technology::Lte,
    blocks: 25,
    layers: 1,
    slots_per_ms: 1,
    downlink_percent: 100,
};
const PACKET: u64 = 1_500;
/// What the base station sends each millisecond, headers and all.
const SENT_A_MS: u64 = 2_260;
/// A report is made so often.
const REPORT_MS: u64 = 100;
/// Between base station and UE, down and up together, with an idle cell.
const RADIO_MS: u64 = 33;
/// Until the UE has a packet that the base station has sent.
const DOWN_MS: u64 = 10;
/// Between the sender and the base station, one way.
const WIDE_AREA_MS: u64 = 25;
const SLOW_MS: u64 = 3_000;
const QUEUE_MOST: u64 = 600_000;
/// What the base station remembers of packets in acknowledged mode, and counts.
const REMEMBERED: u64 = 340_000;
const UE: &str = "10.45.0.2";

/// What the radio does.
struct RadioLink {
    /// For each report, over and over: what the base station sends each millisecond, headers and all,
    /// and channel quality, as reported.
    reports: Vec<(u64, f64)>,
    /// As long a quarter is sent.
    slow_ms: u64,
    cell: Option<Cell>,
}

impl RadioLink {
    fn report(&self, ms: u64) -> (u64, f64) {
        self.reports[(ms / REPORT_MS) as usize % self.reports.len()]
    }

    fn sent_a_ms(&self, ms: u64) -> u64 {
        self.report(ms).0 / if ms < self.slow_ms { 4 } else { 1 }
    }
}

/// What of it is packets.
fn carried_of(sent: u64) -> u64 {
    sent / 100 * 95
}

/// The base station, a millisecond at a time.
struct BaseStation {
    bearer: Bearer,
    queue: u64,
    /// Sent and not acknowledged: when, and how much.
    flying: VecDeque<(u64, u64)>,
    unacknowledged: u64,
    total: u64,
    sent: u64,
    text: Vec<u8>,
    /// When the next status report comes.
    status: u64,
    chance: Xoshiro256PlusPlus,
}

impl BaseStation {
    fn new(bearer: Bearer) -> BaseStation {
        BaseStation {
            bearer,
            queue: 0,
            flying: VecDeque::new(),
            unacknowledged: 0,
            total: 0,
            sent: 0,
            text: Vec::new(),
            status: 0,
            chance: Xoshiro256PlusPlus::seed_from_u64(1),
        }
    }

    /// Takes what arrived and sends; answers what reaches the UE of it.
    fn step(&mut self, ms: u64, sent_a_ms: u64, arrived: u64) -> u64 {
        let taken = arrived.min(QUEUE_MOST - self.queue);
        self.queue += taken;
        let most = carried_of(sent_a_ms);
        let carried = self.queue.min(most);
        self.queue -= carried;
        // What is less than a block is padded.
        self.sent += if carried == most { sent_a_ms } else { carried * 107 / 100 };
        match self.bearer {
            Bearer::Unacknowledged => self.total += carried,
            Bearer::Acknowledged { status_ms } => {
                let remembered = taken.min(REMEMBERED.saturating_sub(self.unacknowledged));
                self.unacknowledged += remembered;
                self.flying.push_back((ms, carried));
                if ms >= self.status {
                    // Half of it more or less.
                    self.status = ms + status_ms / 2 + self.chance.next_u64() % status_ms;
                    while self.flying.front().is_some_and(|(sent, _)| sent + DOWN_MS <= ms) {
                        let (_, bytes) = self.flying.pop_front().unwrap_or_default();
                        // What waits beyond it is not remembered.
                        let flying = self.flying.iter().map(|(_, bytes)| bytes).sum::<u64>();
                        let left = (self.queue + flying).min(self.unacknowledged);
                        self.total += bytes.min(self.unacknowledged - left);
                        self.unacknowledged = left;
                    }
                }
            }
        }
        carried
    }

    /// What is written out at once are whole buffers.
    fn report(&mut self, ms: u64, clump: usize, cqi: f64) -> Vec<u8> {
        let (rate, unacknowledged) = (self.sent * 8 * 10, self.unacknowledged);
        let (total, at) = (self.total, 1_795_455_000.0 + ms as f64 / 1e3);
        self.sent = 0;
        let mut record = String::new();
        let _ = write!(
            record,
            r#"{{"type":"metrics","timestamp":{at:.3},"cell_list":[{{"cell_container":{{
            "ue_list":[{{"ue_container":{{"ue_rnti":70,"dl_cqi":{cqi},"dl_bler":0.0,
            "dl_bitrate":{rate}.0,"ul_bitrate":0.0,"ul_bsr":0,"bearer_list":[{{"bearer_container":{{
            "dl_total_bytes":{total},"ul_total_bytes":0,"dl_buffered_bytes":{unacknowledged}}}}}]}}}}]}}}}]}}"#
        );
        // As long as the program's own, which is indented and has more in it.
        let _ = writeln!(record, "{:1$}", "", 1_350 - record.len());
        self.text.extend(record.into_bytes());
        let whole = self.text.len() / clump * clump;
        self.text.drain(..whole).collect()
    }
}

/// NATCP: equation 1 while it is told something, and else slow start and congestion avoidance.
struct Sender {
    window: f64,
    threshold: f64,
    credit: f64,
    flying: u64,
    told: Option<Entry>,
}

impl Sender {
    fn send(&mut self, now: Time, timeout: Span) -> u64 {
        let told = self.told.filter(|entry| now.since(entry.measured) < timeout);
        let mut most = u64::MAX;
        if let Some(entry) = told {
            let rate = entry.bandwidth;
            // Alpha is 2.
            let bytes = rate.bytes_in(entry.min_rtt * 2).as_bytes() + entry.queue.as_bytes();
            self.window = (bytes / PACKET).max(2) as f64;
            self.threshold = self.window / 2.0;
            let pace = rate.as_bps() as f64 / 8e3 * f64::from(entry.pace) / 256.0;
            self.credit = (self.credit + pace).min(pace + PACKET as f64);
            most = self.credit as u64;
        }
        let room = (self.window as u64 * PACKET).saturating_sub(self.flying);
        let bytes = room.min(most);
        if told.is_some() {
            self.credit -= bytes as f64;
        }
        self.flying += bytes;
        bytes
    }

    fn acknowledged(&mut self, bytes: u64, now: Time, timeout: Span) {
        self.flying -= bytes;
        if self.told.is_none_or(|entry| now.since(entry.measured) >= timeout) {
            let packets = bytes as f64 / PACKET as f64;
            self.window +=
                if self.window < self.threshold { packets } else { packets / self.window };
        }
    }

    fn lost(&mut self, bytes: u64) {
        self.flying -= bytes;
        if bytes > 0 && self.told.is_none() {
            self.threshold = (self.threshold.min(self.window) * 0.7).max(2.0);
            self.window = self.threshold;
        }
    }
}

fn run(start: Start, link: &RadioLink, limits: Limits, timeout: Span) -> Outcome {
    let ue: IpAddr = UE.parse().unwrap();
    let estimator = EstimatorConfig {
        min_rtt: MinRttConfig { network: Span::from_millis(RADIO_MS), ..MinRttConfig::default() },
        ..EstimatorConfig::default()
    };
    let mut registry = Registry::<Causal>::new(estimator, limits);
    let period = Span::from_millis(50);
    let may_ask = vec!["10.45.0.0/16".parse().unwrap()];
    registry.open(SessionId(1), Rights { may_ask, ..Rights::default() });
    let register = ToDaemon::Register { registration: 1, ue, period };
    registry.handle(SessionId(1), register, Time::ZERO);
    let mut inbox = Inbox::new(BasisKind::Causal, timeout, Rate::from_bps(10_000_000_000));
    inbox.register(1, ue);
    let mut board = Board::new(Target::default());
    let mut format = SrsEnb::new(link.cell);
    let mut splitter = Splitter::new(Records::Objects);
    let mut clock = SourceClock::new(Span::from_millis(REPORT_MS));
    let mut station = BaseStation::new(start.bearer);
    let mut sender = Sender {
        window: start.window as f64,
        threshold: f64::MAX,
        credit: 0.0,
        flying: 0,
        told: None,
    };
    let mut down: VecDeque<u64> = VecDeque::from(vec![0; WIDE_AREA_MS as usize]);
    let mut up: VecDeque<(u64, u64)> =
        VecDeque::from(vec![(0, 0); (WIDE_AREA_MS + RADIO_MS) as usize]);
    let mut feedback = VecDeque::new();
    let (mut least, mut last, mut above_idle) = (f64::MAX, 0.0, Vec::new());
    let (mut delivered, mut in_fallback, mut sending) = (Vec::new(), 0u64, 0u64);
    let epoch = Time::from_nanos(1_000_000_000_000);
    let measured = start.begins.max(link.slow_ms) + 2_000;
    let end = measured + 10_000.max(link.reports.len() as u64 * REPORT_MS);
    for ms in 0..end {
        let now = epoch + Span::from_millis(ms);
        if ms > 0 && ms % REPORT_MS == 0 {
            let text = station.report(ms, start.clump, link.report(ms - 1).1);
            let mut batches = Vec::new();
            let take = |record: &[u8]| batches.extend(format.read(record).unwrap());
            splitter.feed(&text, take).unwrap();
            for batch in batches {
                for (_, reading) in clock.readings(batch, now).0 {
                    registry.observe(SourceId(0), ue, &reading, now);
                }
            }
        }
        while let Some(due) = registry.poll(now) {
            feedback.push_back((ms + WIDE_AREA_MS, due.datagram));
        }
        while feedback.front().is_some_and(|(at, _)| *at <= ms) {
            let (_, datagram) = feedback.pop_front().unwrap();
            if let Ok(update) = inbox.accept(&datagram, now)
                && let Some(entry) = board.update(update, Span::from_millis(2 * WIDE_AREA_MS))
            {
                sender.told = Some(entry);
            }
        }
        if ms >= start.begins {
            let later = ms >= start.begins + 2_000;
            sending += u64::from(later);
            if later && sender.told.is_none_or(|entry| now.since(entry.measured) >= timeout) {
                in_fallback += 1;
            }
            down.push_back(sender.send(now, timeout));
        } else {
            down.push_back(0);
        }
        let arrived = down.pop_front().unwrap_or_default();
        let lost = (station.queue + arrived).saturating_sub(QUEUE_MOST);
        let sent = link.sent_a_ms(ms);
        let carried = station.step(ms, sent, arrived);
        up.push_back((carried, lost));
        let (acknowledged, lost) = up.pop_front().unwrap_or_default();
        sender.acknowledged(acknowledged, now, timeout);
        sender.lost(lost);
        if ms >= measured {
            above_idle.push(station.queue / carried_of(sent));
            delivered.push((carried, carried_of(sent)));
        }
    }
    let share = |part: &[(u64, u64)]| {
        let (carried, most) = part.iter().fold((0, 0), |sum, ms| (sum.0 + ms.0, sum.1 + ms.1));
        carried as f64 / most as f64
    };
    for second in delivered.windows(1_000) {
        last = share(second);
        least = least.min(last);
    }
    above_idle.sort_unstable();
    let fallback = in_fallback as f64 / sending as f64;
    Outcome { goodput: share(&delivered), least, last, above_idle, fallback }
}

/// With the settings that a daemon and an agent have by themselves.
fn usual(start: Start) -> Outcome {
    let link = RadioLink {
        reports: vec![(SENT_A_MS, start.cqi)],
        slow_ms: if start.slow { start.begins + SLOW_MS } else { 0 },
        cell: start.blocks.map(|blocks| Cell { blocks, ..CELL }),
    };
    over(start, &link)
}

fn over(start: Start, link: &RadioLink) -> Outcome {
    run(start, link, Limits::default(), crate::config::timeout(Span::from_millis(50)))
}

fn bearer() -> impl Strategy<Value = Bearer> {
    prop_oneof![
        Just(Bearer::Unacknowledged),
        (30u64..80).prop_map(|status_ms| Bearer::Acknowledged { status_ms }),
    ]
}

prop_compose! {
    fn start()(
        bearer in bearer(),
        // With 26 and more the table says more than the link carries.
        blocks in prop::option::of(25u32..28),
        cqi in 14.4f64..15.0,
        begins in 200u64..2_500,
        window in 2u64..300,
        clump in prop_oneof![Just(1usize), Just(4_096)],
    ) -> Start {
        // In unacknowledged mode the report tells of nothing else that could be capacity.
        let blocks = blocks.or((bearer == Bearer::Unacknowledged).then_some(CELL.blocks));
        Start { bearer, blocks, cqi, begins, window, clump, slow: false }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 30 } else { 300 }))]

    /// One configuration for both kinds of bearer, whenever and however a transfer begins, and for
    /// reports that come at once or in clumps of three or four.
    #[test]
    fn the_link_is_used_and_its_queue_is_short(start in start()) {
        let outcome = usual(start);
        // No congestion control has more than all of it.
        prop_assert!(outcome.goodput > 0.92, "{outcome:?}");
        prop_assert!(outcome.least > 0.9, "{outcome:?}");
        prop_assert!(outcome.above_idle(50) <= 15, "{outcome:?}");
        prop_assert!(outcome.mean() <= 15.0, "{outcome:?}");
        prop_assert!(outcome.fallback <= 0.02, "{outcome:?}");
    }

    /// A link that gets four times as good without anybody saying so, and one that takes longer
    /// to acknowledge than was to be expected: what is told does not stay low.
    #[test]
    fn more_is_found_where_there_is_more(start in start(), status_ms in 30u64..200) {
        let bearer = Bearer::Acknowledged { status_ms };
        let outcome = usual(Start { bearer, slow: status_ms < 80, ..start });
        prop_assert!(outcome.last > 0.6, "{outcome:?}");
    }
}

/// Bursts of slow start pass for a backlog, and what was served between them for the capacity: more
/// is sought as soon as it is seen to be carried.
#[test]
fn what_slow_start_shows_is_not_held_for_long() {
    let start = |status_ms, begins, window, clump| Start {
        bearer: Bearer::Acknowledged { status_ms },
        begins,
        window,
        clump,
        ..USUAL
    };
    for (status_ms, begins, window, clump) in [
        (68, 1_318, 2, 1),
        (71, 1_828, 2, 1),
        (73, 1_310, 4, 1),
        (74, 792, 8, 1),
        (74, 1_014, 3, 1),
        (79, 829, 2, 1),
        (79, 1_199, 8, 4_096),
    ] {
        let start = start(status_ms, begins, window, clump);
        let outcome = usual(start);
        assert!(outcome.least > 0.9, "{start:?}: {outcome:?}");
    }
}

/// What a recorded base station served while it was filled, report by report: a second at least, and
/// no less than half of the most.
fn recorded(name: &str, cell: Cell) -> Option<RadioLink> {
    let text = recording(name)?;
    let ue = "/cell_list/0/cell_container/ue_list/0/ue_container";
    let served: Vec<(u64, f64)> = serde_json::Deserializer::from_slice(&text)
        .into_iter::<serde_json::Value>()
        .map(|record| {
            let record = record.unwrap();
            let field = |name| record.pointer(&format!("{ue}/{name}")).and_then(|n| n.as_f64());
            let bytes_a_ms = field("dl_bitrate").unwrap_or_default() / 8e3;
            (bytes_a_ms as u64, field("dl_cqi").unwrap_or_default())
        })
        .collect();
    let most = served.iter().map(|report| report.0).max().unwrap();
    let filled = served.split(|report| report.0 < most / 2).filter(|stretch| stretch.len() > 12);
    // At its ends it was filled for a part of the time.
    let reports: Vec<_> =
        filled.flat_map(|stretch| &stretch[1..stretch.len() - 1]).copied().collect();
    assert!(reports.len() > 50, "{}", reports.len());
    Some(RadioLink { reports, slow_ms: 0, cell: Some(cell) })
}

/// The link of each recording, with its own kind of bearer, in reports that come at once and in clumps.
#[test]
fn recorded_links_are_used_and_their_queue_is_short() {
    let acknowledged = Bearer::Acknowledged { status_ms: 50 };
    for (name, blocks, bearer) in
        [("rlc-am", 25, acknowledged), ("clean", 50, Bearer::Unacknowledged)]
    {
        let Some(link) = recorded(name, Cell { blocks, ..CELL }) else { continue };
        for (clump, begins, window) in [(1, 450, 10), (4_096, 1_930, 10), (4_096, 710, 200)] {
            let start = Start { bearer, begins, window, clump, ..USUAL };
            let outcome = over(start, &link);
            let told = format!("{name}, {} reports, {start:?}: {outcome:?}", link.reports.len());
            println!("{told}");
            assert!(outcome.goodput > 0.92, "{told}");
            assert!(outcome.above_idle(50) <= 15, "{told}");
            assert!(outcome.mean() <= 15.0, "{told}");
            assert!(outcome.fallback <= 0.02, "{told}");
        }
    }
}
