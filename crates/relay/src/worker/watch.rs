//! What the kernel tells of flows' sockets.

use std::io;
use std::os::fd::OwnedFd;

use midspan_split::{Cause, Leg};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Worker, watch};
use crate::slab::Key;

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

pub(super) fn watch_leg(epoll: &OwnedFd, key: Key, leg: Leg, fd: &OwnedFd) -> io::Result<()> {
    watch(epoll, fd, word(key, leg), ALL)
}

impl Worker {
    /// Masks read interest in a flow's legs where nothing more may be read, and unmasks it again.
    pub(super) fn mask_reads(&mut self, key: Key) {
        for leg in Leg::BOTH {
            let Some(flow) = self.flows.get_mut(key) else { return };
            let Some(mask) = flow.should_mask_reads(leg) else { continue };
            let (flags, data) =
                (if mask { READS_MASKED } else { ALL }, EventData::new_u64(word(key, leg)));
            match epoll::modify(&self.epoll, flow.fd(leg), data, flags) {
                Ok(()) => flow.set_reads_masked(leg, mask),
                // Not to be told would be to wait for ever.
                Err(error) => {
                    tracing::error!(%leg, %error, "a leg cannot be watched");
                    self.fail(key, Cause::Inconsistent);
                }
            }
        }
    }
}
