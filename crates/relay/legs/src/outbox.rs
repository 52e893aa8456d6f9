//! Copied data on its way out: what the flows of a round have to send goes in one system call.

use std::os::fd::AsFd;

use midspan_split::{Key, Leg};
use midspan_sys::ring::{Outgoing, SendRing};
use rustix::io::Errno;

use crate::relay_buffer::send;

/// Legs that have something to be sent.
#[derive(Debug)]
pub struct Outbox {
    /// None where the kernel has none for us: each flow then sends for itself, at once.
    ring: Option<SendRing>,
    legs: Vec<(Key, Leg)>,
    /// Those for which was sent last, and what came of it.
    tried: Vec<(Key, Leg)>,
    results: Vec<Result<usize, Errno>>,
}

impl Default for Outbox {
    fn default() -> Outbox {
        let ring = SendRing::new(Self::MOST);
        if let Err(error) = &ring {
            tracing::debug!(%error, "no io_uring: each flow sends for itself");
        }
        let most = Self::MOST as usize;
        let (legs, tried) = (Vec::with_capacity(most), Vec::with_capacity(most));
        Outbox { ring: ring.ok(), legs, tried, results: Vec::with_capacity(most) }
    }
}

impl Outbox {
    /// Sends of one call. As many buffers are in use meanwhile.
    const MOST: u32 = 32;

    /// Whether the turn of one more flow might find no place for both its legs.
    pub fn is_full(&self) -> bool {
        self.legs.len() + 2 > Self::MOST as usize
    }

    /// Takes note that a leg has something to be sent. False if it is to be sent at once.
    pub(crate) fn post(&mut self, key: Key, to: Leg) -> bool {
        let posts = self.ring.is_some();
        if posts {
            self.legs.push((key, to));
        }
        posts
    }

    /// Sends for all legs that still want it, and says for how many.
    pub fn send<'a>(&mut self, outgoing: impl Fn(Key, Leg) -> Option<Outgoing<'a>>) -> usize {
        self.tried.clear();
        self.results.clear();
        std::mem::swap(&mut self.tried, &mut self.legs);
        self.tried.retain(|&(key, to)| outgoing(key, to).is_some());
        let mut all = self.tried.iter().filter_map(|&(key, to)| outgoing(key, to));
        match &mut self.ring {
            // One alone is sent faster by itself.
            Some(ring) if self.tried.len() > 1 => self.results.extend_from_slice(ring.send(all)),
            _ => {
                let sent = |one: Outgoing<'_>| send(one.socket.as_fd(), one.data, one.more);
                self.results.extend(all.next().map(sent));
            }
        }
        if self.results.contains(&Err(Errno::CANCELED)) {
            tracing::warn!("io_uring failed: each flow sends for itself from now on");
            self.ring = None;
        }
        self.results.len()
    }

    /// For whom one of them was.
    pub fn sent_for(&self, index: usize) -> (Key, Leg) {
        self.tried[index]
    }

    /// What became of one of them: `ECANCELED` if it was not tried.
    pub fn result(&self, index: usize) -> Result<usize, Errno> {
        self.results[index]
    }
}
