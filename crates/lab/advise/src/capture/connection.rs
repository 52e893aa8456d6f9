//! One connection of a capture: its handshake, and what became of the packets of each direction.

use std::collections::BTreeMap;

use midspan_units::{Span, Time};

use super::packet::Packet;

/// A connection from its SYN on.
#[derive(Debug, Default)]
pub(super) struct Connection {
    syn: Option<Time>,
    answer: Option<Time>,
    answered: Option<Time>,
    /// SYNs and answers; what was sent again says nothing of a round trip.
    syns: u32,
    answers: u32,
    /// From the client, and from the server.
    ways: [DirectionState; 2],
}

/// What was seen of a direction's data.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Packets with data.
    pub(super) packets: u64,
    /// Such that filled a hole, and had been sent again for it.
    pub(super) filled_again: u64,
    /// Such that filled a hole by themselves.
    pub(super) filled_late: u64,
    /// Such that had come by before.
    pub(super) twice: u64,
    /// Of these, those that the receiver said it had (D-SACK, RFC 2883).
    pub(super) needless: u64,
    /// How long holes were open that filled by themselves.
    late: Vec<Span>,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Seen) {
        self.packets += other.packets;
        self.filled_again += other.filled_again;
        self.filled_late += other.filled_late;
        self.twice += other.twice;
        self.needless += other.needless;
        self.late.extend(&other.late);
    }

    /// The median of how late packets were that filled holes by themselves.
    pub(super) fn late_by(&self) -> Option<Span> {
        let mut late = self.late.clone();
        late.sort_unstable();
        late.get(late.len().checked_sub(1)? / 2).copied().filter(|by| *by > Span::ZERO)
    }
}

/// A direction's data, as it came by.
#[derive(Debug, Default)]
struct DirectionState {
    /// The sequence number of the first byte of data.
    origin: Option<u32>,
    /// Where what has come ends, from the origin.
    highest: u64,
    /// What is missing below: first byte -> the one after the last, since when, and the TSval of what told of it.
    holes: BTreeMap<u64, Hole>,
    seen: Seen,
    /// Bytes of a usual packet: what offloading has put together counts as what it was.
    segment: u32,
}

#[derive(Debug, Clone, Copy)]
struct Hole {
    end: u64,
    since: Time,
    stamp: Option<u32>,
}

/// Holes of a direction at a time; more are those of a capture that itself lost packets.
const MOST_HOLES: usize = 4096;
/// What a packet carries at most, where no larger ones are seen that were not put together.
const USUAL_SEGMENT: u32 = 1448;

impl Connection {
    pub(super) fn add(&mut self, at: Time, packet: &Packet, is_from_client: bool) {
        if packet.is_syn {
            self.handshake(at, packet, is_from_client);
            return;
        }
        if is_from_client && packet.is_ack && self.answer.is_some() {
            self.answered.get_or_insert(at);
        }
        let [client, server] = &mut self.ways;
        let (way, back) = if is_from_client { (client, server) } else { (server, client) };
        if packet.payload > 0 {
            // Without timestamps a retransmission is told by when it comes: not within a round trip.
            let round_trip = [self.syn, self.answer];
            let rtt = round_trip[1].zip(round_trip[0]).map(|(answer, syn)| answer.since(syn));
            way.data(at, packet, rtt.unwrap_or(Span::ZERO));
        }
        back.acknowledged(packet);
    }

    fn handshake(&mut self, at: Time, packet: &Packet, is_from_client: bool) {
        let way = &mut self.ways[usize::from(!is_from_client)];
        let first = packet.sequence.wrapping_add(1);
        if is_from_client && way.origin.is_some_and(|origin| origin != first) {
            // The same ports again: another connection.
            let seen = self.ways.each_ref().map(|way| way.seen.clone());
            *self = Connection::default();
            for (way, seen) in self.ways.iter_mut().zip(seen) {
                way.seen = seen;
            }
        }
        self.ways[usize::from(!is_from_client)].origin = Some(first);
        if is_from_client {
            self.syns += 1;
            self.syn.get_or_insert(at);
        } else {
            self.answers += 1;
            self.answer.get_or_insert(at);
        }
    }

    /// From the capture to the server and back.
    pub(super) fn server_rtt(&self) -> Option<Span> {
        (self.syns == 1).then(|| Some(self.answer?.since(self.syn?))).flatten()
    }

    /// From the capture to the client and back.
    pub(super) fn client_rtt(&self) -> Option<Span> {
        (self.answers == 1).then(|| Some(self.answered?.since(self.answer?))).flatten()
    }

    /// What was seen of the client's data (0), or of the server's (1).
    pub(super) fn seen(&self, way: usize) -> &Seen {
        &self.ways[way].seen
    }
}

impl DirectionState {
    /// Bytes from the origin of a sequence number that is near what has come; none of one that is before the origin.
    fn place(&self, sequence: u32) -> Option<u64> {
        let highest = self.origin?.wrapping_add(self.highest as u32);
        let offset = i64::from(sequence.wrapping_sub(highest).cast_signed());
        u64::try_from(self.highest as i64 + offset).ok()
    }

    fn data(&mut self, at: Time, packet: &Packet, rtt: Span) {
        self.origin.get_or_insert(packet.sequence);
        let Some(start) = self.place(packet.sequence) else { return };
        let end = start + u64::from(packet.payload);
        if packet.payload <= USUAL_SEGMENT {
            self.segment = self.segment.max(packet.payload);
        }
        let segment = if self.segment == 0 { USUAL_SEGMENT } else { self.segment };
        self.seen.packets += u64::from(packet.payload.div_ceil(segment));
        let fresh = end.saturating_sub(start.max(self.highest));
        if start > self.highest && self.holes.len() < MOST_HOLES {
            let hole = Hole { end: start, since: at, stamp: packet.stamp };
            self.holes.insert(self.highest, hole);
        }
        self.highest = self.highest.max(end);
        let count = |bytes: u64| bytes.div_ceil(u64::from(segment));
        let filled = self.fill(at, packet, (start, end), rtt);
        let twice = (end - start).saturating_sub(fresh + filled.again + filled.late);
        self.seen.filled_again += count(filled.again);
        self.seen.filled_late += count(filled.late);
        self.seen.twice += count(twice);
        if filled.late > 0 {
            self.seen.late.push(filled.open);
        }
    }

    /// Fills holes. A retransmission is younger than what told of the hole; a late packet is not.
    fn fill(&mut self, at: Time, packet: &Packet, (start, end): (u64, u64), rtt: Span) -> Filled {
        let mut filled = Filled::default();
        let within: Vec<(u64, Hole)> = self
            .holes
            .range(..end)
            .filter(|(_, hole)| hole.end > start)
            .map(|(first, hole)| (*first, *hole))
            .collect();
        for (first, hole) in within {
            self.holes.remove(&first);
            if first < start {
                self.holes.insert(first, Hole { end: start, ..hole });
            }
            if hole.end > end {
                self.holes.insert(end, hole);
            }
            let bytes = hole.end.min(end) - first.max(start);
            let open = at.since(hole.since);
            let is_younger = match packet.stamp.zip(hole.stamp) {
                Some((own, told)) => own.wrapping_sub(told).cast_signed() > 0,
                None => open >= rtt,
            };
            if is_younger {
                filled.again += bytes;
            } else {
                filled.late += bytes;
                filled.open = filled.open.max(open);
            }
        }
        filled
    }

    /// An acknowledgement of this direction's data. Its first block is a D-SACK if it is of what is acknowledged, or within the
    /// second.
    fn acknowledged(&mut self, packet: &Packet) {
        let Some((left, right)) = packet.sack else { return };
        let is_before = |a: u32, b: u32| a.wrapping_sub(b).cast_signed() <= 0;
        let is_within = |(outer_left, outer_right)| {
            is_before(outer_left, left) && is_before(right, outer_right)
        };
        if is_before(right, packet.acknowledged) || packet.second_sack.is_some_and(is_within) {
            let segment = if self.segment == 0 { USUAL_SEGMENT } else { self.segment };
            self.seen.needless +=
                u64::from(right.wrapping_sub(left).min(1 << 20).div_ceil(segment));
        }
    }
}

/// Bytes of holes that a packet filled.
#[derive(Debug, Default)]
struct Filled {
    again: u64,
    late: u64,
    /// How long the longest of those was open that it filled late.
    open: Span,
}
