//! SYNs that the program holds until their server has answered.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use midspan_sys::checksum;
use zerocopy::FromBytes;

use crate::WORKERS;
use crate::due_ack::{self, DueAck};
use crate::error::{io_error, unless_interrupted};
use crate::intf;

/// A client's SYN that is held. It goes on when [`WorkerSlot::release`](crate::WorkerSlot::release) has said how, and
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
    pub(crate) due_acks: MapHandle,
    pub(crate) generation: u32,
}

impl HeldSource {
    /// Has every SYN that is held for this relay given to `sink`, and every acknowledgement that is to go again to `again`.
    ///
    /// # Errors
    /// When the kernel does not lend its buffers.
    pub fn open(
        self,
        mut sink: impl FnMut(HeldSyn) + 'static,
        mut again: impl FnMut(DueAck) + 'static,
    ) -> io::Result<HeldSyns> {
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            if let Some((generation, held)) = parse(bytes)
                && generation == self.generation
            {
                sink(held);
            }
            0
        };
        builder.add(&self.ring, take).map_err(|error| io_error(&error))?;
        let take = move |bytes: &[u8]| {
            if let Some(due) = due_ack::parse(bytes) {
                again(due);
            }
            0
        };
        builder.add(&self.due_acks, take).map_err(|error| io_error(&error))?;
        Ok(HeldSyns(builder.build().map_err(|error| io_error(&error))?))
    }
}

/// Takes held SYNs from the kernel, and acknowledgements that are to go again. One at a time may.
#[derive(Debug)]
pub struct HeldSyns(RingBuffer<'static>);

impl HeldSyns {
    /// Gives those that are there, or waits for some, less long if the process was stopped meanwhile.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn poll(&self, timeout: Duration) -> io::Result<()> {
        unless_interrupted(self.0.poll(timeout))
    }
}

/// A held SYN, and the relay that it is for; none if it is not one.
fn parse(bytes: &[u8]) -> Option<(u32, HeldSyn)> {
    let held = intf::held::read_from_bytes(bytes).ok()?;
    let mut packet = held.syn.get(..usize::from(held.length))?.to_vec();
    complete(&mut packet, held.transport as usize);
    let syn = HeldSyn {
        client: held.connection.client(),
        server: held.connection.server(),
        worker: (held.worker % WORKERS) as usize,
        at: Duration::from_nanos(held.at_ns),
        dscp: held.dscp,
        again: held.again != 0,
        confirm: held.confirm != 0,
        consulted: held.consulted != 0,
        ethernet: held.ethernet,
        packet,
    };
    Some((held.worker / WORKERS, syn))
}

/// Completes the checksum of a TCP segment at `at`, if its sender left that to a device that it has not met:
/// then there is only the sum of the pseudo-header (RFC 9293, 3.1). Any other is left as it is, right or wrong.
pub(crate) fn complete(packet: &mut [u8], at: usize) {
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
    use zerocopy::{FromZeros, IntoBytes};

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
        let (client, server) = ("10.1.0.2:40000".parse().unwrap(), "10.2.0.2:443".parse().unwrap());
        let mut record = intf::held {
            connection: intf::connection::new(client, server),
            worker: WORKERS + 3,
            at_ns: 7,
            length: 2,
            dscp: 46,
            again: 1,
            transport: 0,
            ethernet: [2, 0, 0, 0, 0, 1],
            confirm: 1,
            ..intf::held::new_zeroed()
        };
        record.syn[..2].copy_from_slice(&[0x45, 0]);
        let (generation, held) = parse(record.as_bytes()).unwrap();
        assert_eq!((generation, held.worker, held.at.as_nanos()), (1, 3, 7));
        assert_eq!((held.client, held.server), (client, server));
        assert_eq!((held.dscp, held.again, &held.packet[..]), (46, true, &[0x45, 0][..]));
        assert_eq!((held.confirm, held.consulted), (true, false));
        assert_eq!(held.ethernet, [2, 0, 0, 0, 0, 1]);
        assert_eq!(parse(&record.as_bytes()[1..]), None);
        record.length = u16::MAX;
        assert_eq!(parse(record.as_bytes()), None);
    }
}
