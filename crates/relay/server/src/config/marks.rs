//! The firewall marks by which routing and rules know the relay's packets.

use super::Config;

/// Marks of packets, as the steering program has them too (`steer/bpf/leg.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    /// What comes in for a client's leg.
    pub(crate) client: u32,
    /// What comes in for a server's leg.
    pub(crate) server: u32,
    /// What a client's leg sends.
    pub(crate) outgoing: u32,
}

impl Marks {
    pub(crate) fn of(config: &Config) -> Marks {
        Marks::from(config.mark)
    }

    /// Marks of packets that are delivered here.
    pub(crate) fn delivered(self) -> [u32; 2] {
        [self.client, self.server]
    }
}

impl From<u32> for Marks {
    fn from(mark: u32) -> Marks {
        Marks { client: mark, server: mark + 1, outgoing: mark + 2 }
    }
}
