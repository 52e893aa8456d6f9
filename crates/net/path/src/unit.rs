use midspan_units::Share;
use serde::{Deserialize, Serialize};

use crate::random::Random;

/// What one random decision covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Each wire packet on its own.
    #[default]
    Packet,
    /// All packets of a segmentation-offload super-packet of up to 64 KiB together: what netem
    /// does on a sender whose TSO/GSO is on, where it sees packets before they are cut.
    SuperPacket,
}

/// Chooses a share of packets, independently of each other.
pub(crate) struct Chooser {
    share: Share,
    unit: Unit,
    random: Random,
    /// The last super-packet and whether it was chosen.
    last: Option<(u64, bool)>,
}

impl Chooser {
    pub(crate) fn new(share: Share, unit: Unit, random: Random) -> Self {
        Chooser { share, unit, random, last: None }
    }

    /// Whether the next packet, part of super-packet `burst`, is among the chosen.
    pub(crate) fn chooses(&mut self, burst: u64) -> bool {
        match (self.unit, self.last) {
            (Unit::SuperPacket, Some((last, chosen))) if last == burst => chosen,
            _ => {
                let chosen = self.share.takes(self.random.draw());
                self.last = Some((burst, chosen));
                chosen
            }
        }
    }
}
