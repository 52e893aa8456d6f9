//! Tells segments that come late from lost ones, and keeps holes from senders that fill by themselves.
//!
//! On the radio leg of an upload the relay can only acknowledge. A sender takes a segment for lost that is late by more than
//! about a round trip (RFC 8985, 6.2), and on a leg of a millisecond that is soon. So acknowledgements that would tell of a
//! hole wait for it to fill, where holes are known to (delayed duplicate acknowledgements: Vaidya, Mehta, Perkins and
//! Montenegro, 1999). The decisions are a C header, `algo/reordering.h`, which the steering program runs at the ingress and
//! egress of links and this crate for the simulator: no clock, no I/O, nothing of how packets are read or written.

mod ffi;

use midspan_units::{Span, Time};
use zerocopy::FromZeros;

/// No hole is kept from a sender for longer.
pub const HOLD_MOST: Span = Span::from_micros(ffi::HOLD_MOST as u64);

/// How late segments come by a link, as learned from the holes of its connections. Nothing is known at first.
#[derive(Debug, Clone)]
pub struct Lateness(ffi::Lateness);

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness(ffi::Lateness::new_zeroed())
    }
}

impl Lateness {
    /// What is known of a new sender's link: what its `network` has found of others, worth a few holes of its own, if by that
    /// holes are to be kept from it, and nothing else. Where that has found nothing yet, holes are kept until it has.
    pub fn of_network(network: &Lateness) -> Lateness {
        let mut lateness = Lateness::default();
        ffi::begin(&mut lateness.0, &network.0);
        lateness
    }

    /// How long holes are to be kept from senders: most late segments have come by then. Zero where too many are lost: to be
    /// told of a loss late costs a sender more than to take a late segment for lost.
    pub fn hold(&self) -> Span {
        Span::from_micros(u64::from(self.0.hold_us))
    }

    /// Whether anything is known, of the sender or of its network.
    pub fn is_known(&self) -> bool {
        self.0.judged > 0
    }
}

/// What a receiver's peer has sent, and what of it is missing.
#[derive(Debug, Clone)]
pub struct Holes {
    holes: ffi::Holes,
    /// What all that has come ends at, once something has.
    highest: Option<u32>,
}

impl Default for Holes {
    fn default() -> Holes {
        Holes { holes: ffi::Holes::new_zeroed(), highest: None }
    }
}

/// An acknowledgement without data, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledgement<'a> {
    /// The next sequence number that is expected.
    pub number: u32,
    /// The window field.
    pub window: u16,
    /// Blocks of the SACK option (RFC 2018), four at most: first byte, and the one after the last.
    pub sack: &'a [(u32, u32)],
}

/// What is to become of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// It goes as it is.
    Whole,
    /// With these blocks of SACK in place of its own, the first so many: fewer, or first of all one that tells what came
    /// twice (RFC 2883).
    Blocks([(u32, u32); 4], usize),
    /// It does not go: it says nothing but what is not to be told yet.
    Nothing,
}

impl Holes {
    /// Data begins at `sequence`. Where that is not said, with what comes first.
    pub fn begin(&mut self, sequence: u32) {
        self.highest.get_or_insert(sequence);
    }

    /// Whether data that begins at `sequence` leaves no hole, and fills none.
    pub fn is_next(&self, sequence: u32) -> bool {
        self.highest.is_none_or(|highest| highest == sequence)
    }

    /// Data has come: sequence numbers from `sequence` up to `end`, with the timestamp `stamp` (TSval, RFC 7323). The first
    /// that is found of `lateness` is told to the sender's `network` as well.
    pub fn came(
        &mut self,
        (lateness, network): (&mut Lateness, &mut Lateness),
        (sequence, end): (u32, u32),
        stamp: u32,
        now: Time,
    ) {
        let highest = self.highest.unwrap_or(sequence);
        let (lateness, network) = (&mut lateness.0, &mut network.0);
        ffi::came(&mut self.holes, lateness, network, (sequence, end), highest, stamp, micros(now));
        if is_behind(end, highest) {
            self.highest = Some(end);
        } else {
            self.highest = Some(highest);
        }
    }

    /// In how long the last acknowledgement is to go again, if no other goes until then: it was to tell more than it did.
    pub fn due(&self, now: Time) -> Option<Span> {
        let left = self.holes.due_us.wrapping_sub(micros(now)).cast_signed();
        (self.holes.kept != 0).then(|| Span::from_micros(left.max(0) as u64))
    }

    /// An acknowledgement without data is about to go, and holes are to be kept for `hold`; until a queue overflows if nothing
    /// `is_known`.
    pub fn tell(
        &mut self,
        (hold, is_known): (Span, bool),
        ack: Acknowledgement<'_>,
        now: Time,
    ) -> Telling {
        let mut said = ffi::Acknowledgement {
            number: ack.number,
            window: u32::from(ack.window),
            blocks: 0,
            told: 0,
            left: [0; 4],
            right: [0; 4],
        };
        for ((left, right), block) in said.left.iter_mut().zip(&mut said.right).zip(ack.sack) {
            (*left, *right) = *block;
            said.blocks += 1;
        }
        let hold = hold.as_micros().min(u64::from(ffi::HOLD_MOST)) as u32;
        match ffi::tell(&mut self.holes, (hold, is_known), &mut said, micros(now)) {
            ffi::telling::TELL => Telling::Whole,
            ffi::telling::TELL_LESS | ffi::telling::TELL_TWICE => {
                let mut blocks = [(0, 0); 4];
                let all = said.left.into_iter().zip(said.right).take(said.blocks as usize);
                let told = all.filter(|(left, right)| left != right);
                blocks.iter_mut().zip(told).for_each(|(place, block)| *place = block);
                Telling::Blocks(blocks, said.told as usize)
            }
            _ => Telling::Nothing,
        }
    }
}

/// Whether sequence number `a` is behind `b`.
fn is_behind(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// Wraps, as the header expects.
fn micros(now: Time) -> u32 {
    now.since(Time::ZERO).as_micros() as u32
}

#[cfg(test)]
mod tests;
