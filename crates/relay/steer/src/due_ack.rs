//! Acknowledgements that go again: they did not tell a client all, and may tell more of it now.

use zerocopy::FromBytes;

use crate::held::complete;
use crate::intf;

/// A frame that the program sends on when it comes in by the link where held SYNs come back, with what it may tell then, or
/// drops if that has been told meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueAck {
    /// The frame, from its Ethernet header on.
    pub frame: Vec<u8>,
}

/// Bytes of an Ethernet header, and where in it is what the frame holds.
const ETHERNET: usize = 14;
const TYPE: usize = 12;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// What the program has written; none if it is not that.
pub(crate) fn parse(bytes: &[u8]) -> Option<DueAck> {
    let kept = intf::kept_ack::read_from_bytes(bytes).ok()?;
    let frame = kept.frame.get(..usize::from(kept.length))?;
    let (link, packet) = frame.split_at_checked(usize::from(kept.network))?;
    let mut packet = packet.to_vec();
    complete(&mut packet, usize::from(kept.transport).checked_sub(link.len())?);
    // It comes back by a link with such headers. Where it goes they are taken off again if need be.
    let header = match link.len() {
        0 => {
            let mut header = vec![0; TYPE];
            header.extend(if packet.first()? >> 4 == 4 { IPV4 } else { IPV6 });
            header
        }
        ETHERNET => link.to_vec(),
        _ => return None,
    };
    Some(DueAck { frame: [header, packet].concat() })
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    fn kept(link: &[u8], packet: &[u8]) -> intf::kept_ack {
        let mut kept = intf::kept_ack::new_zeroed();
        kept.length = (link.len() + packet.len()) as u16;
        kept.network = link.len() as u16;
        kept.transport = (link.len() + 20) as u16;
        kept.frame[..link.len()].copy_from_slice(link);
        kept.frame[link.len()..][..packet.len()].copy_from_slice(packet);
        kept
    }

    #[test]
    fn it_is_what_was_to_go_with_a_link_header_in_any_case() {
        let link = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        let packet = [[0x45; 20], [7; 20]].concat();
        let with = parse(kept(&link, &packet).as_bytes()).unwrap();
        assert_eq!(with.frame, [&link[..], &packet].concat());
        let without = parse(kept(&[], &packet).as_bytes()).unwrap();
        assert_eq!(without.frame, [&[0; 12][..], &[8, 0], &packet].concat());
        let six = [[0x60; 20], [7; 20]].concat();
        assert_eq!(parse(kept(&[], &six).as_bytes()).unwrap().frame[12..14], IPV6);
    }

    #[test]
    fn what_is_none_is_not_taken_for_one() {
        let packet = [[0x45; 20], [7; 20]].concat();
        let mut wrong = kept(&[], &packet);
        assert_eq!(parse(&wrong.as_bytes()[1..]), None);
        wrong.length = u16::MAX;
        assert_eq!(parse(wrong.as_bytes()), None);
        assert_eq!(parse(kept(&[0; 4], &packet).as_bytes()), None);
        let mut wrong = kept(&[0; 14], &packet);
        wrong.transport = 3;
        assert_eq!(parse(wrong.as_bytes()), None);
    }
}
