use midspan_units::Span;

use crate::Endpoint;

/// What a host remembers of a peer from one connection to the next (RFC 9040, section 5), of that which Linux's
/// `tcp_metrics` keep by default: the round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metrics {
    rtt: Option<Span>,
}

impl Metrics {
    /// A connection with the peer ends. A longer round trip is taken as it is, a shorter one counts for an eighth; where it
    /// is not known, or the peer no longer answers, what was known is forgotten.
    pub fn learn(&mut self, endpoint: &Endpoint) {
        let ended = endpoint.remembers();
        self.rtt = match (self.rtt, ended) {
            (Some(known), Some(ended)) if ended < known => Some(known - (known - ended) / 8),
            _ => ended,
        };
    }

    /// For [`Config::remembered_rtt`](crate::Config::remembered_rtt).
    pub const fn rtt(&self) -> Option<Span> {
        self.rtt
    }
}
