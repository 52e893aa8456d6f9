//! Scripts that chance writes.

use std::collections::BTreeMap;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::script::{Echo, Player, Sender, Step};

const ROUNDS: u64 = 9;

/// Acknowledges each packet that comes at once, with SACK (RFC 2018) and D-SACK (RFC 2883).
struct Receiver {
    /// The first packet that has not come.
    next: u32,
    /// Those beyond it that have.
    held: Vec<u32>,
    /// Of these, the blocks that grew last, the latest first.
    blocks: Vec<(u32, u32)>,
    /// What it echoes: the last that came in order (RFC 7323, 4.3).
    echo: Echo,
}

impl Receiver {
    /// A transmission of `packet` comes.
    fn arrive(&mut self, packet: u32, transmission: usize) -> Step {
        let twice = packet < self.next || self.held.contains(&packet);
        if packet == self.next {
            self.echo = Echo(packet, transmission);
            self.next += 1;
            while self.held.contains(&self.next) {
                self.next += 1;
            }
        } else if !twice {
            self.held.push(packet);
        }
        let Receiver { next, held, blocks, .. } = self;
        held.retain(|held| held >= next);
        let (mut start, mut end) = (packet, packet + 1);
        while held.contains(&start.wrapping_sub(1)) {
            start -= 1;
        }
        while held.contains(&end) {
            end += 1;
        }
        blocks.retain(|block| held.contains(&block.0) && !(start..end).contains(&block.0));
        if held.contains(&packet) {
            blocks.insert(0, (start, end));
        }
        blocks.truncate(3);
        let duplicate = twice.then_some((packet, packet + 1));
        let sack = duplicate.into_iter().chain(blocks.iter().copied()).take(3).collect();
        Step::Ack { next: *next, sack, echo: self.echo }
    }
}

/// A script by a receiver to which chance has a path lose packets and deliver some late, as it goes with `sender`; and what that sends in
/// each pause.
pub(crate) fn script(seed: u64, sender: impl Sender) -> (Vec<Step>, Vec<Vec<u32>>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = move |bound: u64| random.next_u64() % bound;
    let (lost, late) = (below(20), below(20));
    let mut fate = move |round: u64| {
        let chance = below(100);
        match chance {
            chance if chance < lost => None,
            chance if chance < lost + late => Some(round + 1 + below(2)),
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
