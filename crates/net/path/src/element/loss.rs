use midspan_units::{Share, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::random::Random;
use crate::unit::Chooser;
use crate::{Counters, Packet, Unit};

/// Independent loss: each packet is lost with the same probability, whatever befell others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossSpec {
    /// Share of packets (or of super-packets) lost.
    pub share: Share,
    /// What is lost together. Default `packet`.
    #[serde(default)]
    pub unit: Unit,
}

pub(crate) struct Loss {
    chooser: Chooser,
    lost: u64,
}

impl Loss {
    pub(crate) fn new(spec: LossSpec, random: Random) -> Self {
        Loss { chooser: Chooser::new(spec.share, spec.unit, random), lost: 0 }
    }
}

impl<P: Packet> Element<P> for Loss {
    fn enter(&mut self, _now: Time, packet: P) -> Option<P> {
        if self.chooser.chooses(packet.burst()) {
            self.lost += 1;
            return None;
        }
        Some(packet)
    }

    fn report(&self, counters: &mut Counters) {
        counters.add_dropped("loss", self.lost);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestPacket, cross, direction, drain, micros};

    /// Numbers of the packets that get through, `per_burst` of them to a super-packet.
    fn survivors(element: &str, packets: u64, per_burst: u64) -> Vec<u64> {
        let mut link = direction(element);
        for number in 0..packets {
            let packet = TestPacket { burst: number / per_burst, ..TestPacket::new(number, 1500) };
            link.enqueue(micros(number), packet);
        }
        drain(&mut link).into_iter().map(|(_, packet)| packet.number).collect()
    }

    #[test]
    fn the_same_packets_are_lost_on_every_machine() {
        let left = survivors("{ loss = { share = '1 %' } }", 500, 1);
        let lost: Vec<u64> = (0..500).filter(|number| !left.contains(number)).collect();
        assert_eq!(lost, [165, 345]);
    }

    #[test]
    fn all_or_none() {
        assert_eq!(survivors("{ loss = { share = '0 %' } }", 1000, 1).len(), 1000);
        assert_eq!(survivors("{ loss = { share = '100 %' } }", 1000, 1).len(), 0);
    }

    #[test]
    fn the_packets_of_a_super_packet_share_their_fate() {
        let left = survivors("{ loss = { share = '50 %', unit = 'super-packet' } }", 8800, 44);
        assert!(left.chunk_by(|a, b| a / 44 == b / 44).all(|burst| burst.len() == 44));
        let bursts = left.len() / 44;
        assert!((75..125).contains(&bursts), "{bursts} of 200");
        // One by one they do not.
        let left = survivors("{ loss = { share = '50 %' } }", 8800, 44);
        assert!(left.chunk_by(|a, b| a / 44 == b / 44).all(|burst| burst.len() < 44));
    }

    #[test]
    fn loss_takes_no_time() {
        let mut link = direction("{ loss = { share = '0 %' } }");
        assert_eq!(cross(&mut link, &[(1, 1500), (9, 40)]), [(1, 0), (9, 1)]);
    }
}
