//! What the kernel tells of flows' sockets.

use std::io;
use std::os::fd::OwnedFd;

use midspan_split::{Key, Leg};
use rustix::event::epoll::{self, EventData, EventFlags};

/// What a flow's sockets are watched for.
const ALL: EventFlags = EventFlags::IN
    .union(EventFlags::PRI)
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

/// All but read interest. Each packet is told as urgent data, too, whatever it is.
const READS_MASKED: EventFlags = ALL.difference(EventFlags::IN.union(EventFlags::PRI));

/// What an event bears of the leg that it is about.
fn word(key: Key, leg: Leg) -> u64 {
    key.to_bits() << 1 | u64::from(leg == Leg::Server)
}

/// The leg that an event with this is about.
pub(super) fn leg_of(word: u64) -> (Key, Leg) {
    (Key::from_bits(word >> 1), if word & 1 == 0 { Leg::Client } else { Leg::Server })
}

/// Watches anything for as long as it is open.
pub(super) fn watch(epoll: &OwnedFd, fd: &OwnedFd, word: u64, flags: EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, EventData::new_u64(word), flags)?)
}

/// Watches a flow's leg.
pub(super) fn leg(epoll: &OwnedFd, key: Key, leg: Leg, fd: &OwnedFd) -> io::Result<()> {
    watch(epoll, fd, word(key, leg), ALL)
}

/// Masks read interest in a flow's leg, or unmasks it.
pub(super) fn mask_reads(
    epoll: &OwnedFd,
    key: Key,
    leg: Leg,
    fd: &OwnedFd,
    masked: bool,
) -> io::Result<()> {
    let flags = if masked { READS_MASKED } else { ALL };
    Ok(epoll::modify(epoll, fd, EventData::new_u64(word(key, leg)), flags)?)
}
