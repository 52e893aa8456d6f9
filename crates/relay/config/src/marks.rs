//! The firewall marks by which routing and rules know the relay's packets.

use super::Config;

/// Marks of packets, as the steering program has them too (`steer/bpf/leg.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// What comes in for a client's leg.
    pub client: u32,
    /// What comes in for a server's leg.
    pub server: u32,
    /// What a client's leg sends.
    pub outgoing: u32,
}

impl Marks {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Marks {
        Marks::from(config.mark)
    }

    /// Marks of packets that are delivered here.
    pub fn delivered(self) -> [u32; 2] {
        [self.client, self.server]
    }
}

impl From<u32> for Marks {
    fn from(mark: u32) -> Marks {
        Marks { client: mark, server: mark + 1, outgoing: mark + 2 }
    }
}
