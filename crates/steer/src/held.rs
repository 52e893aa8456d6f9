//! SYNs that the program holds until their server has answered.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use midspan_sys::checksum;

use crate::WORKERS;
use crate::account::socket_address;
use crate::error::io_error;

/// A client's SYN that is held. It goes on when [`Slot::release`](crate::Slot::release) has said how, and
/// it is sent once more into this host by a link at which the program is attached.
#[derive(Clone, PartialEq, Eq)]
pub struct HeldSyn {
    /// Who wants to connect.
    pub client: SocketAddr,
    /// To whom.
    pub server: SocketAddr,
    /// The worker that the connection falls to.
    pub worker: usize,
    /// When it came, by the system's monotonic clock.
    pub at: Duration,
    /// Its code point, 0 to 63.
    pub dscp: u8,
    /// Whether it was held before, so that the client has sent it again.
    pub again: bool,
    /// Whether its server is to be asked. If not it is released already, as this host's rules let it through.
    pub confirm: bool,
    /// Whether this host's rules have seen it, and connection tracking with them.
    pub consulted: bool,
    /// The Ethernet address that it was for; zeros if it came without.
    pub ethernet: [u8; 6],
    /// The packet, from its IP header on.
    pub packet: Vec<u8>,
}

impl fmt::Debug for HeldSyn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SYN of {} bytes from {} to {}", self.packet.len(), self.client, self.server)
    }
}

/// The kernel's side of [`HeldSyns`], to be passed to the thread that takes them.
#[derive(Debug)]
pub struct HeldSource {
    pub(crate) ring: MapHandle,
    pub(crate) bank: u32,
}

impl HeldSource {
    /// Has every SYN that is held for this relay given to `sink`.
    ///
    /// # Errors
    /// When the kernel does not lend its buffer.
    pub fn open(self, mut sink: impl FnMut(HeldSyn) + 'static) -> io::Result<HeldSyns> {
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            if let Some((bank, held)) = parse(bytes)
                && bank == self.bank
            {
                sink(held);
            }
            0
        };
        builder.add(&self.ring, take).map_err(|error| io_error(&error))?;
        Ok(HeldSyns(builder.build().map_err(|error| io_error(&error))?))
    }
}

/// Takes held SYNs from the kernel. One at a time may.
#[derive(Debug)]
pub struct HeldSyns(RingBuffer<'static>);

impl HeldSyns {
    /// Gives those that are there, or waits for some.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn poll(&self, timeout: Duration) -> io::Result<()> {
        self.0.poll(timeout).map_err(|error| io_error(&error))
    }
}

/// A `struct held` of `bpf/record.h`, and the relay that it is for; none if it is not one.
fn parse(bytes: &[u8]) -> Option<(u32, HeldSyn)> {
    let place = u32::from_ne_bytes(*bytes.get(36..)?.first_chunk()?);
    let at = u64::from_ne_bytes(*bytes.get(40..)?.first_chunk()?);
    let length = u16::from_ne_bytes(*bytes.get(48..)?.first_chunk()?);
    let mut packet = bytes.get(52..)?.get(..usize::from(length))?.to_vec();
    let transport = u32::from_ne_bytes(*bytes.get(564..)?.first_chunk()?);
    complete(&mut packet, transport as usize);
    let held = HeldSyn {
        client: socket_address(&bytes[..16], &bytes[32..34])?,
        server: socket_address(&bytes[16..32], &bytes[34..36])?,
        worker: (place % WORKERS) as usize,
        at: Duration::from_nanos(at),
        dscp: bytes[50],
        again: bytes[51] != 0,
        confirm: *bytes.get(574)? != 0,
        consulted: *bytes.get(575)? != 0,
        ethernet: *bytes.get(568..)?.first_chunk()?,
        packet,
    };
    Some((place / WORKERS, held))
}

/// Completes the checksum of a TCP segment at `at`, if its sender left that to a device that it has not met:
/// then there is only the sum of the pseudo-header (RFC 9293, 3.1). Any other is left as it is, right or wrong.
fn complete(packet: &mut [u8], at: usize) {
    const CHECKSUM: usize = 16;
    let addresses = match packet.first().map(|byte| byte >> 4) {
        Some(4) => 12..20,
        Some(6) => 8..40,
        _ => return,
    };
    let Some((header, segment)) = packet.split_at_mut_checked(at) else { return };
    let Some(addresses) = header.get(addresses) else { return };
    let mut pseudo = addresses.to_vec();
    pseudo.extend((segment.len() as u32).to_be_bytes());
    pseudo.extend([0, TCP]);
    let Some(field) = segment.get(CHECKSUM..CHECKSUM + 2) else { return };
    if field == checksum::sum(&pseudo).to_be_bytes() {
        let sum = !checksum::sum(segment);
        segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

const TCP: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN of 20 bytes in IPv4, as a sender without offload would write it but for the checksum.
    fn syn() -> Vec<u8> {
        let mut packet =
            vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
        packet
            .extend([0x9c, 0x40, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
        packet
    }

    #[test]
    fn a_checksum_that_was_left_to_a_device_is_completed_and_no_other() {
        let pseudo = [10, 1, 0, 2, 10, 2, 0, 2, 0, TCP, 0, 20];
        let mut packet = syn();
        packet[36..38].copy_from_slice(&checksum::sum(&pseudo).to_be_bytes());
        complete(&mut packet, 20);
        let whole = [&pseudo, &packet[20..]].concat();
        assert_eq!(checksum::sum(&whole), 0xffff);
        let (complete_one, mut wrong) = (packet.clone(), packet.clone());
        complete(&mut packet, 20);
        assert_eq!(packet, complete_one);
        wrong[37] ^= 1;
        let before = wrong.clone();
        complete(&mut wrong, 20);
        assert_eq!(wrong, before);
        complete(&mut wrong, 39);
        complete(&mut wrong, 400);
        assert_eq!(wrong, before);
    }

    #[test]
    fn a_held_syn_is_read_as_the_program_wrote_it() {
        let mut bytes = vec![0; 584];
        bytes[10..12].fill(0xff);
        bytes[12..16].copy_from_slice(&[10, 1, 0, 2]);
        bytes[26..28].fill(0xff);
        bytes[28..32].copy_from_slice(&[10, 2, 0, 2]);
        bytes[32..34].copy_from_slice(&40_000u16.to_be_bytes());
        bytes[34..36].copy_from_slice(&443u16.to_be_bytes());
        bytes[36..40].copy_from_slice(&(WORKERS + 3).to_ne_bytes());
        bytes[40..48].copy_from_slice(&7u64.to_ne_bytes());
        bytes[48..50].copy_from_slice(&2u16.to_ne_bytes());
        bytes[50..54].copy_from_slice(&[46, 1, 0x45, 0]);
        bytes[568..576].copy_from_slice(&[2, 0, 0, 0, 0, 1, 1, 0]);
        let (bank, held) = parse(&bytes).unwrap();
        assert_eq!((bank, held.worker, held.at.as_nanos()), (1, 3, 7));
        assert_eq!(held.client, "10.1.0.2:40000".parse().unwrap());
        assert_eq!(held.server, "10.2.0.2:443".parse().unwrap());
        assert_eq!((held.dscp, held.again, &held.packet[..]), (46, true, &[0x45, 0][..]));
        assert_eq!((held.confirm, held.consulted), (true, false));
        assert_eq!(held.ethernet, [2, 0, 0, 0, 0, 1]);
        bytes[48..50].copy_from_slice(&u16::MAX.to_ne_bytes());
        assert_eq!(parse(&bytes), None);
        assert_eq!(parse(&bytes[..40]), None);
    }
}
