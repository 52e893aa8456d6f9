use std::collections::{BTreeMap, VecDeque};

use midspan_units::{ByteSize, Decibels, Distance, Frequency, Power, Rate, Share, Span, Time};
use serde::{Deserialize, Serialize};

use super::{Element, RateLink, RateSpec, Retransmit, Rlc, RlcSpec};
use crate::mmwave::{
    self, Blockage, BlockageSpec, RESOURCE_BLOCKS, Via, resource_blocks, signal_over_noise,
};
use crate::random::Random;
use crate::{Counters, Packet, QueueSpec};

/// The downlink of a UE with two nodes (3GPP TS 37.340): a secondary one of millimetre waves, which serves it
/// alone and in line of sight, and a master one below 6 GHz, behind which the secondary stands at the
/// end of X2. While somebody blocks the line of sight the master sends in the secondary's place, and what
/// waits at the secondary comes back to it.
///
/// Rate and slots are NR's at 120 kHz of subcarrier spacing (module `mmwave`); below RLC's acknowledged mode
/// there is HARQ, as in [`RlcSpec`]. While a blockage lasts every transmission of the secondary fails. The UE
/// puts in order what came by different ways (PDCP, TS 38.323), without ever waiting for what a full
/// buffer dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MmWaveSpec {
    /// The node at which packets come in: of the other one X2 lies before.
    pub enters: Node,
    /// Delay of X2, one way.
    pub x2: Span,
    /// Most bytes that the secondary node's RLC buffer holds, as [`RlcSpec::buffer`].
    pub buffer: ByteSize,
    /// Carrier frequency. Default 28 GHz.
    #[serde(default = "carrier")]
    pub frequency: Frequency,
    /// Bandwidth: 50, 100, 200 or 400 MHz. Default 200 MHz.
    #[serde(default = "bandwidth")]
    pub bandwidth: Frequency,
    /// Power of the secondary node. Default 30 dBm.
    #[serde(default = "power")]
    pub power: Power,
    /// Gains of both antennas. Default 30 dB: 8 by 8 elements at the node, 4 by 4 at the UE.
    #[serde(default = "gain")]
    pub gain: Decibels,
    /// Noise figure of the UE. Default 10 dB (ITU-R M.2412, table 5b, above 24 GHz).
    #[serde(default = "noise_figure")]
    pub noise_figure: Decibels,
    /// From the secondary node to the UE. Default 100 m.
    #[serde(default = "distance")]
    pub distance: Distance,
    /// Share of transmissions of a block that fail without blockage. Default 0 %: in line of sight the signal is
    /// far above what the best rate needs.
    #[serde(default)]
    pub failure: Share,
    /// The rate of the master node. Default 100 Mbit/s.
    #[serde(default = "master")]
    pub master: Rate,
    /// Blockage. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blockage: Option<BlockageSpec>,
}

/// A node of dual connectivity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Node {
    /// The one below 6 GHz.
    Master,
    /// The one of millimetre waves.
    Secondary,
}

fn carrier() -> Frequency {
    Frequency::from_hz(28_000_000_000)
}

fn bandwidth() -> Frequency {
    Frequency::from_hz(200_000_000)
}

fn power() -> Power {
    Power::from_hundredths(3000)
}

fn gain() -> Decibels {
    Decibels::from_hundredths(3000)
}

fn noise_figure() -> Decibels {
    Decibels::from_hundredths(1000)
}

fn distance() -> Distance {
    Distance::from_metres(100)
}

fn master() -> Rate {
    Rate::from_bps(100_000_000)
}

/// An NR slot at 120 kHz (TS 38.211, table 4.3.2-1).
const SLOT: Span = Span::from_micros(125);
/// HARQ's transmissions of a block, and RLC's patience, as [`RlcSpec`] has them by default but for slots that
/// are eight times shorter.
const TRANSMISSIONS: u32 = 4;
const STATUS_DELAY: Span = Span::from_millis(5);

impl MmWaveSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if resource_blocks(self.bandwidth).is_none() {
            let known = RESOURCE_BLOCKS.map(|(megahertz, _)| format!("{megahertz} MHz"));
            return Err(format!(
                "no cell has a bandwidth of {}: {} are possible",
                self.bandwidth,
                known.join(", ")
            ));
        }
        if self.master == Rate::from_bps(0) {
            return Err("the master node has a rate above zero, such as `100 Mbit/s`".to_owned());
        }
        if self.rate() == Rate::from_bps(0) {
            return Err("so far away nothing is received: lessen the distance".to_owned());
        }
        self.rlc().check()?;
        self.blockage.map_or(Ok(()), |blockage| blockage.check())
    }

    /// What the secondary node sends to the UE, counted on IP packets with their headers.
    pub fn rate(&self) -> Rate {
        let decibels = signal_over_noise(
            self.power,
            self.gain,
            self.noise_figure,
            (self.frequency, self.bandwidth),
            self.distance,
        );
        mmwave::user_rate(resource_blocks(self.bandwidth).unwrap_or(0), decibels)
    }

    /// The least time that a packet takes through it.
    pub(crate) fn base_delay(&self) -> Span {
        match self.enters {
            Node::Master => self.x2 + SLOT,
            Node::Secondary => SLOT,
        }
    }

    fn rlc(&self) -> RlcSpec {
        RlcSpec {
            rate: self.rate(),
            slot: SLOT,
            failure: self.failure,
            retransmit: Retransmit::Slot,
            transmissions: TRANSMISSIONS,
            status_delay: STATUS_DELAY,
            buffer: Some(self.buffer),
        }
    }
}

pub(crate) struct MmWave<P> {
    spec: MmWaveSpec,
    air: Rlc<Numbered<P>>,
    master: RateLink<Numbered<P>>,
    /// On X2, and when they arrive: towards the secondary node, and back.
    out: VecDeque<(Time, Numbered<P>)>,
    back: VecDeque<(Time, Numbered<P>)>,
    blockage: Blockage,
    order: Order<P>,
    overflowed: u64,
    clock: Time,
}

#[derive(Debug)]
struct Numbered<P> {
    number: u64,
    packet: P,
}

/// Puts packets in order.
struct Order<P> {
    /// The number of the next that comes in, and of the next that goes out.
    next_in: u64,
    next_out: u64,
    /// Those after the next one that are here, or are gone.
    early: BTreeMap<u64, Option<P>>,
}

impl<P: Packet> MmWave<P> {
    pub(crate) fn new(spec: MmWaveSpec, mut random: Random) -> Self {
        let [air, master, blockage] = [(); 3].map(|()| Random::new(random.seed(), 0));
        let to_master = RateSpec { rate: spec.master, queue: QueueSpec::default(), aqm: None };
        MmWave {
            spec,
            air: Rlc::new(spec.rlc(), air),
            master: RateLink::new(to_master, master),
            out: VecDeque::new(),
            back: VecDeque::new(),
            blockage: Blockage::new(spec.blockage, blockage),
            order: Order { next_in: 0, next_out: 0, early: BTreeMap::new() },
            overflowed: 0,
            clock: Time::ZERO,
        }
    }

    /// Lets blockage and data path come to where they are at `now`.
    fn catch_up(&mut self, now: Time) {
        self.clock = now;
        while self.blockage.due() <= now {
            let at = self.blockage.due();
            let via = self.blockage.via();
            self.blockage.turn();
            let failure = if self.blockage.is_blocked() { Share::ONE } else { self.spec.failure };
            self.air.set_failure(failure);
            if via == Via::Secondary && self.blockage.via() == Via::Master {
                let back = self.air.give_up().map(|packet| (at + self.spec.x2, packet));
                self.back.extend(back);
            }
        }
    }

    fn at_secondary(&mut self, now: Time, packet: Numbered<P>) {
        if self.blockage.via() == Via::Master {
            self.back.push_back((now + self.spec.x2, packet));
        } else if self.air.has_room(packet.wire_bytes()) {
            let _kept: Option<Numbered<P>> = self.air.enter(now, packet);
        } else {
            self.overflowed += 1;
            self.order.gone(packet.number);
        }
    }

    fn at_master(&mut self, now: Time, packet: Numbered<P>) {
        let _kept: Option<Numbered<P>> = self.master.enter(now, packet);
    }
}

impl<P: Packet> Element<P> for Box<MmWave<P>> {
    fn enter(&mut self, now: Time, packet: P) -> Option<P> {
        self.catch_up(now);
        let packet = self.order.number(packet);
        match (self.spec.enters, self.blockage.via()) {
            (Node::Master, Via::Secondary) => self.out.push_back((now + self.spec.x2, packet)),
            (Node::Master, Via::Master) => self.at_master(now, packet),
            (Node::Secondary, _) => self.at_secondary(now, packet),
        }
        None
    }

    fn due(&self) -> Time {
        if self.order.has_next() {
            return self.clock;
        }
        let first =
            |queue: &VecDeque<(Time, Numbered<P>)>| queue.front().map_or(Time::MAX, |(at, _)| *at);
        // Nothing but what waits at the secondary node is moved by a change of the path.
        let change = if self.air.is_empty() { Time::MAX } else { self.blockage.due() };
        let nodes = self.air.due().min(self.master.due());
        first(&self.out).min(first(&self.back)).min(nodes).min(change)
    }

    fn run(&mut self, now: Time) -> Option<P> {
        if let Some(packet) = self.order.next() {
            return Some(packet);
        }
        self.catch_up(now);
        if self.out.front().is_some_and(|(at, _)| *at <= now) {
            let (_, packet) = self.out.pop_front()?;
            self.at_secondary(now, packet);
        } else if self.back.front().is_some_and(|(at, _)| *at <= now) {
            let (_, packet) = self.back.pop_front()?;
            self.at_master(now, packet);
        } else if self.air.due() <= now {
            let packet = self.air.run(now)?;
            return self.order.arrived(packet);
        } else if self.master.due() <= now {
            let packet = self.master.run(now)?;
            return self.order.arrived(packet);
        }
        None
    }

    fn report(&self, counters: &mut Counters) {
        self.air.report(counters);
        self.master.report(counters);
        let waiting = self.out.iter().chain(&self.back).map(|(_, packet)| &packet.packet);
        for packet in waiting.chain(self.order.early.values().flatten()) {
            counters.packets_queued += 1;
            counters.bytes_queued += u64::from(packet.wire_bytes());
        }
        counters.add_dropped("rlc-buffer", self.overflowed);
    }
}

impl<P> Order<P> {
    fn number(&mut self, packet: P) -> Numbered<P> {
        self.next_in += 1;
        Numbered { number: self.next_in - 1, packet }
    }

    /// One has come through: itself, if it is the next, else it waits.
    fn arrived(&mut self, packet: Numbered<P>) -> Option<P> {
        if packet.number == self.next_out {
            self.next_out += 1;
            return Some(packet.packet);
        }
        self.early.insert(packet.number, Some(packet.packet));
        None
    }

    /// One will never come.
    fn gone(&mut self, number: u64) {
        if number == self.next_out {
            self.next_out += 1;
        } else {
            self.early.insert(number, None);
        }
    }

    fn has_next(&self) -> bool {
        self.early.first_key_value().is_some_and(|(number, _)| *number == self.next_out)
    }

    /// The next one, if it waits here.
    fn next(&mut self) -> Option<P> {
        while self.has_next() {
            self.next_out += 1;
            if let Some((_, Some(packet))) = self.early.pop_first() {
                return Some(packet);
            }
        }
        None
    }
}

impl<P: Packet> Packet for Numbered<P> {
    fn wire_bytes(&self) -> u32 {
        self.packet.wire_bytes()
    }

    fn burst(&self) -> u64 {
        self.packet.burst()
    }

    fn ecn(&self) -> crate::Ecn {
        self.packet.ecn()
    }

    fn mark_ce(&mut self) {
        self.packet.mark_ce();
    }

    fn is_pure_ack(&self) -> bool {
        self.packet.is_pure_ack()
    }
}

#[cfg(test)]
mod tests {
    use midspan_units::Span;

    use crate::testing::{TestPacket, cross, direction, drain, micros, refusal};

    /// At 808 Mbit/s a slot takes 12,625 bytes: eight packets of 1500 and a part of the ninth.
    #[test]
    fn packets_cross_x2_and_leave_with_their_slots() {
        let text = |enters| {
            format!("{{ mmwave = {{ enters = '{enters}', x2 = '5 ms', buffer = '1 MB' }} }}")
        };
        let out = cross(&mut direction(&text("master")), &[(0, 1500); 9]);
        assert_eq!(out[0], (5_250, 0));
        assert_eq!((out[7], out[8]), ((5_250, 7), (5_375, 8)));
        let out = cross(&mut direction(&text("secondary")), &[(0, 1500); 9]);
        assert_eq!((out[0], out[8]), ((250, 0), (375, 8)));
    }

    #[test]
    fn the_secondary_nodes_buffer_overflows() {
        let mut link =
            direction("{ mmwave = { enters = 'master', x2 = '1 ms', buffer = '15 KB' } }");
        let out = cross(&mut link, &[(0, 1500); 20]);
        assert_eq!(out.len(), 10);
        assert_eq!(link.counters().dropped["rlc-buffer"], 10);
    }

    /// Blocked half of the time, with packets all the time: nothing is lost, nothing overtakes, and on the
    /// mean of the rate of both nodes about a half each comes through.
    #[test]
    fn through_blockage_all_arrives_in_order() {
        for enters in ["master", "secondary"] {
            let blockage = "blockage = { clear = '50 ms', blocked = '50 ms', switch = '5 ms' }";
            let text = format!(
                "{{ mmwave = {{ enters = '{enters}', x2 = '5 ms', buffer = '10 MB', \
                 master = '50 Mbit/s', {blockage} }} }}"
            );
            let mut link = direction(&text);
            for number in 0..40_000 {
                link.enqueue(micros(number * 120), TestPacket::new(number, 1500));
            }
            let out = drain(&mut link);
            assert!(out.iter().map(|(_, packet)| packet.number).eq(0..40_000), "{enters}");
            assert!(out.windows(2).all(|pair| pair[0].0 <= pair[1].0));
            // Some waited for a blockage to be noticed, and some behind the master's rate.
            let late = out.iter().filter(|(at, packet)| {
                at.since(micros(packet.number * 120)) > Span::from_millis(12)
            });
            assert!(late.count() > 4_000, "{enters}");
        }
    }

    #[test]
    fn impossible_cells_are_refused() {
        let refusal = |keys: &str| {
            refusal(&format!(
                "{{ mmwave = {{ enters = 'master', x2 = '1 ms', buffer = '1 MB', {keys} }} }}"
            ))
        };
        let error = refusal("bandwidth = '20 MHz'");
        assert!(error.contains("50 MHz, 100 MHz, 200 MHz, 400 MHz are possible"), "{error}");
        assert!(refusal("distance = '50 km'").contains("nothing is received"));
        assert!(refusal("master = '0 bit/s'").contains("a rate above zero"));
        assert!(refusal("blockage = { clear = '0 s' }").contains("above zero"));
    }
}
