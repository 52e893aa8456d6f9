//! Measures the network part of minRTT: small packets of high priority to the base station and
//! back (the `natcp` paper, section 2.2.1), by ICMP echo.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use midspan_assist_proto::estimate::Floor;
use midspan_units::Span;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;

use super::Event;
use crate::clock;

const PERIOD: Duration = Duration::from_millis(200);
/// The least over so long is the round trip without queues.
const MEMORY: Span = Span::from_secs(30);
/// Expedited forwarding (RFC 3246), as the paper's probes have priority.
const PRIORITY: u32 = 46 << 2;

/// Probes `target` from a thread of its own until nobody listens.
///
/// # Errors
/// When the system lets nobody of this user send ICMP.
pub(super) fn start(target: IpAddr, to: mpsc::Sender<Event>) -> io::Result<()> {
    let probe = Probe::open(target)?;
    let work = move || {
        let mut floor = Floor::new(MEMORY);
        for sequence in (0..=u16::MAX).cycle() {
            if let Some(round_trip) = probe.round_trip(sequence) {
                floor.add(clock::now(), round_trip);
            }
            let network = floor.value(clock::now());
            if to.blocking_send(Event::Network(network)).is_err() {
                return;
            }
            thread::sleep(PERIOD);
        }
    };
    thread::Builder::new().name("probe".into()).spawn(work).map(drop)
}

struct Probe {
    socket: Socket,
    /// Whether packets come with their IP header.
    raw_v4: bool,
    request: u8,
    reply: u8,
    identity: u16,
}

impl Probe {
    fn open(target: IpAddr) -> io::Result<Probe> {
        let (domain, protocol, request, reply) = match target {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
        };
        // A raw socket for root; else the kernel's own echo socket, where its group may have it.
        let (socket, raw) = match Socket::new(domain, Type::RAW, Some(protocol)) {
            Ok(socket) => (socket, true),
            Err(_) => (Socket::new(domain, Type::DGRAM, Some(protocol))?, false),
        };
        match target {
            IpAddr::V4(_) => socket.set_tos_v4(PRIORITY)?,
            IpAddr::V6(_) => socket.set_tclass_v6(PRIORITY)?,
        }
        socket.connect(&SocketAddr::new(target, 0).into())?;
        socket.set_read_timeout(Some(PERIOD))?;
        let identity = std::process::id() as u16;
        Ok(Probe { socket, raw_v4: raw && target.is_ipv4(), request, reply, identity })
    }

    fn round_trip(&self, sequence: u16) -> Option<Span> {
        let mut packet = [0; 16];
        packet[0] = self.request;
        packet[4..6].copy_from_slice(&self.identity.to_be_bytes());
        packet[6..8].copy_from_slice(&sequence.to_be_bytes());
        if self.request == 8 {
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        let sent = clock::now();
        self.socket.send(&packet).ok()?;
        // Others' packets come to a raw socket too; a reply that is late is no reply.
        while clock::now().since(sent) < Span::from(PERIOD) {
            let mut buffer = [0; 256];
            let count = io::Read::read(&mut &self.socket, &mut buffer).ok()?;
            if self.is_reply(&buffer[..count], sequence) {
                return Some(clock::now().since(sent)).filter(|span| *span > Span::ZERO);
            }
        }
        None
    }

    fn is_reply(&self, packet: &[u8], sequence: u16) -> bool {
        let header = if self.raw_v4 {
            packet.first().map_or(0, |first| usize::from(first & 15) * 4)
        } else {
            0
        };
        let Some(message) = packet.get(header..).filter(|message| message.len() >= 8) else {
            return false;
        };
        // The kernel's echo socket puts an identity of its own in place of ours.
        let mine = !self.raw_v4 || message[4..6] == self.identity.to_be_bytes();
        message[0] == self.reply && message[6..8] == sequence.to_be_bytes() && mine
    }
}

/// The checksum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_answers_at_once() {
        let Ok(probe) = Probe::open("127.0.0.1".parse().unwrap()) else {
            eprintln!("skipped: this user may not send ICMP");
            return;
        };
        let round_trips: Vec<Span> = (0..5).filter_map(|number| probe.round_trip(number)).collect();
        assert!(!round_trips.is_empty());
        assert!(round_trips.iter().all(|span| *span < PERIOD.into()));
    }
}
