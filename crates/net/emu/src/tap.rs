//! What the ends of a link see, for somebody who keeps it.
//!
//! The emulator's thread never waits for whoever that is: what there is no room for is counted and left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use midspan_units::Time;

/// An end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Towards the UE.
    Left,
    /// Towards the server.
    Right,
}

/// A packet that an end sent or received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// Which end.
    pub end: End,
    /// When, on the kernel's monotonic clock: as it came into the link, or just before it was given to the receiver.
    pub at: Time,
    /// How long the packet is, its IP header included.
    pub wire_bytes: u32,
    /// Its headers, or all of it. A transport checksum may be the pseudo-header's sum only, as with offloading cards.
    pub bytes: Vec<u8>,
}

/// Tells of packets. A link that has one reports each wire packet twice: where it came in and, unless it is lost, where
/// it went out.
#[derive(Debug, Clone)]
pub struct Tap {
    to: SyncSender<Sight>,
    missed: Arc<AtomicU64>,
    whole: bool,
}

impl Tap {
    /// One that has room for so many packets that were not taken yet, and what they are taken from, which ends when no
    /// link has the tap any more. It tells packets' headers, or them whole.
    pub fn new(room: usize, whole: bool) -> (Tap, Receiver<Sight>) {
        let (to, from) = sync_channel(room);
        (Tap { to, missed: Arc::default(), whole }, from)
    }

    /// How many packets there was no room for: ask a clone of the link's.
    pub fn missed(&self) -> Arc<AtomicU64> {
        self.missed.clone()
    }

    /// Notes a packet, given from its IP header on.
    pub(crate) fn see(&self, end: End, at: Time, packet: &[u8]) {
        let kept = if self.whole { packet.len() } else { headers(packet).min(packet.len()) };
        let bytes = packet[..kept].to_vec();
        let sight = Sight { end, at, wire_bytes: packet.len() as u32, bytes };
        if self.to.try_send(sight).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How long a packet's IP and transport headers are. Of what they are not known of, and of IPv6 packets with extension
/// headers, only the IP header.
fn headers(packet: &[u8]) -> usize {
    const ICMP: u8 = 1;
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const ICMP_V6: u8 = 58;
    let byte = |at: usize| packet.get(at).copied().unwrap_or_default();
    let (ip, protocol, is_first) = match byte(0) >> 4 {
        // The lower 13 bits tell a fragment's place.
        4 => (usize::from(byte(0) & 0xf) * 4, byte(9), byte(6) & 0x1f == 0 && byte(7) == 0),
        _ => (40, byte(6), true),
    };
    let transport = match protocol {
        _ if !is_first => 0,
        TCP => usize::from(byte(ip + 12) >> 4) * 4,
        UDP | ICMP | ICMP_V6 => 8,
        _ => 0,
    };
    ip + transport
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_end_where_the_payload_begins() {
        let mut packet = vec![0; 1500];
        (packet[0], packet[9], packet[20 + 12]) = (0x45, 6, 8 << 4);
        assert_eq!(headers(&packet), 52);
        packet[7] = 1;
        assert_eq!(headers(&packet), 20);
        (packet[7], packet[9]) = (0, 17);
        assert_eq!(headers(&packet), 28);
        (packet[0], packet[6]) = (0x60, 58);
        assert_eq!(headers(&packet), 48);
        // Damaged packets cannot come from `segment::split`; they must not hurt either.
        assert_eq!(headers(&[]), 40);
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let (tap, from) = Tap::new(1, false);
        let missed = tap.missed();
        let packet = [0x45; 100];
        for end in [End::Left, End::Right] {
            tap.see(end, Time::ZERO, &packet);
        }
        assert_eq!(missed.load(Ordering::Relaxed), 1);
        drop(tap);
        let seen: Vec<Sight> = from.iter().collect();
        assert_eq!((seen.len(), seen[0].end, seen[0].wire_bytes), (1, End::Left, 100));
        assert_eq!(seen[0].bytes.len(), 20);
    }
}
