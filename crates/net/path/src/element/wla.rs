use std::sync::Arc;

use midspan_units::{ByteSize, Time};
use serde::{Deserialize, Serialize};

use super::Element;
use crate::radio::Bearer;
use crate::{Counters, Ecn, Packet};

/// A base station's wireless loss alarm (Han, Ansari, Wu, Yu, "TCP-Mobile Edge: accelerating delivery in
/// mobile networks", section II.1): it sets the congestion-experienced mark on acknowledgements that
/// go up while the equivalent length of the downlink's queue (equation 1) is `threshold` or more.
/// That queue is the one of the `radio` in the link's other direction.
///
/// Only pure acknowledgements are marked that are not ECN-capable, as none is (RFC 3168, section
/// 6.1.4): elsewhere the mark means congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WlaSpec {
    /// L_th. The paper keeps it small and states no number.
    pub threshold: ByteSize,
}

impl WlaSpec {
    /// Why one cannot stand alone.
    pub(crate) const ALONE: &'static str = "it looks at the queue of the one `radio` in the link's \
        `down`: give it one, and stand in `up` itself";

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.threshold.as_bytes() == 0 {
            return Err("a threshold of nothing marks every acknowledgement: \
                        give one above zero, such as `3000 B`"
                .to_owned());
        }
        Ok(())
    }
}

pub(crate) struct Wla {
    threshold: u64,
    bearer: Arc<Bearer>,
    marked: u64,
}

impl Wla {
    pub(crate) fn new(spec: WlaSpec, bearer: Arc<Bearer>) -> Self {
        Wla { threshold: spec.threshold.as_bytes(), bearer, marked: 0 }
    }
}

impl<P: Packet> Element<P> for Wla {
    fn enter(&mut self, _now: Time, mut packet: P) -> Option<P> {
        let is_markable = packet.is_pure_ack() && packet.ecn() == Ecn::NotEct;
        if is_markable && self.bearer.alarms(self.threshold) {
            packet.mark_ce();
            self.marked += 1;
        }
        Some(packet)
    }

    fn report(&self, counters: &mut Counters) {
        counters.marked += self.marked;
    }
}
