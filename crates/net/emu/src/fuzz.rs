//! What cuts packets that come from hosts, and may otherwise not be called from outside.

use crate::segment;
use crate::vnet::{self, VnetHeader};

/// Cuts an IP packet or super-packet, which comes behind the header that the kernel puts before it. What comes out
/// is no longer than what went in, but for the headers that each piece has.
pub fn super_packet(bytes: &[u8]) {
    let Some((header, bytes)) = bytes.split_first_chunk::<{ vnet::LEN }>() else { return };
    let Some(header) = VnetHeader::parse(header) else { return };
    let (mut pieces, mut total) = (0, 0);
    let cut = segment::split(bytes, header, 1, |piece| {
        pieces += 1;
        total += piece.ip().len();
    });
    if cut.is_ok() {
        assert!(pieces > 0 && total <= bytes.len() * pieces);
    }
}
