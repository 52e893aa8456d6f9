//! Scripts that chance writes.

use std::collections::BTreeMap;

use super::script::{Echo, Player, Sender, Step};

const ROUNDS: u64 = 9;

pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

struct Receiver {
    next: u32,
    /// Out of order.
    held: Vec<u32>,
    /// Blocks, the latest first.
    blocks: Vec<(u32, u32)>,
    echo: Echo,
}

impl Receiver {
    fn arrive(&mut self, packet: u32, times: usize) -> Step {
        let mut sack = Vec::new();
        if packet < self.next || self.held.contains(&packet) {
            sack.push((packet, packet + 1));
        } else if packet == self.next {
            self.echo = Echo(packet, times);
            self.next += 1;
            while self.held.contains(&self.next) {
                self.next += 1;
            }
            let next = self.next;
            self.held.retain(|held| *held >= next);
        } else {
            self.held.push(packet);
        }
        let (mut start, mut end) = (packet, packet + 1);
        while start > self.next && self.held.contains(&(start - 1)) {
            start -= 1;
        }
        while self.held.contains(&end) {
            end += 1;
        }
        let next = self.next;
        let held = &self.held;
        self.blocks.retain(|b| b.0 >= next && !(b.0 >= start && b.1 <= end) && held.contains(&b.0));
        if packet >= self.next && held.contains(&packet) {
            self.blocks.insert(0, (start, end));
        }
        self.blocks.truncate(3);
        for block in &self.blocks {
            if sack.len() < 3 {
                sack.push(*block);
            }
        }
        Step::Ack { next: self.next, sack, echo: self.echo }
    }
}

/// A script by a receiver to which chance has a path lose packets and deliver some late, as it goes with `sender`; and what that sends in
/// each pause.
pub(crate) fn script(seed: u64, sender: impl Sender) -> (Vec<Step>, Vec<Vec<u32>>) {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for _ in 0..5 {
        rng.below(2);
    }
    let (lost, late) = (rng.below(20), rng.below(20));
    let mut fate = move |round: u64| {
        let chance = rng.below(100);
        match chance {
            chance if chance < lost => None,
            chance if chance < lost + late => Some(round + 1 + rng.below(2)),
            _ => Some(round),
        }
    };
    let mut player = Player::new(sender);
    let mut receiver =
        Receiver { next: 10, held: Vec::new(), blocks: Vec::new(), echo: Echo(9, 0) };
    let mut times: BTreeMap<u32, usize> = (0..30).map(|packet| (packet, 1)).collect();
    let mut flying: Vec<(u64, u32, usize)> = Vec::new();
    for packet in 10..30 {
        flying.extend(fate(0).map(|round| (round, packet, 0)));
    }
    let (mut steps, mut sent) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (now, later) = flying.into_iter().partition(|(at, ..)| *at <= round);
        flying = later;
        let now: Vec<_> = now;
        for (_, packet, transmission) in now {
            let step = receiver.arrive(packet, transmission);
            player.step(&step);
            steps.push(step);
        }
        let pause = Step::Pause(if fate(0).is_none() { 30 } else { 40 });
        let packets = player.step(&pause).unwrap_or_default();
        for &packet in &packets {
            let transmission = times.entry(packet).or_insert(0);
            flying.extend(fate(round + 1).map(|round| (round, packet, *transmission)));
            *transmission += 1;
        }
        steps.push(pause);
        sent.push(packets);
    }
    (steps, sent)
}
