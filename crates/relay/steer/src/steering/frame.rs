//! Frames of TCP over IPv4, for the program to look at.

use std::net::{IpAddr, SocketAddr};

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const ACK: u8 = 16;

/// A segment, with its sequence number and acknowledgement, to the loopback interface's address.
pub(super) fn frame(
    from: SocketAddr,
    to: SocketAddr,
    flags: u8,
    numbers: [u32; 2],
    payload: &[u8],
) -> Vec<u8> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (from.ip(), to.ip()) else {
        unreachable!()
    };
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 40 + payload.len() as u8, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(source.octets().into_iter().chain(destination.octets()));
    frame.extend(from.port().to_be_bytes().into_iter().chain(to.port().to_be_bytes()));
    frame.extend(numbers.into_iter().flat_map(u32::to_be_bytes));
    frame.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend(payload);
    frame
}
