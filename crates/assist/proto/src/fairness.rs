//! Flows of one UE share its link (the `natcp` paper, section 2.1: intra-fairness).
//!
//! Two ways, both the paper's. *Direct*: the UE tells how many flows it has, and each sender takes
//! its part: a [`Coefficient`]. *Indirect*: the UE itself gives each of its flows a part, by the
//! window that it advertises: [`window_per_flow`].

use std::fmt;

use midspan_units::{ByteSize, Rate, Span};

/// The paper's beta: among how many flows a bandwidth is shared. "In the simplest case the number
/// of competing flows", so whole numbers from flows; in steps of 1/256 for richer definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Coefficient(u16);

impl Coefficient {
    /// One flow: nothing is shared.
    pub const ONE: Coefficient = Coefficient(1 << 8);

    /// Of `flows` equal flows; beyond 255 it stays there. None for no flow.
    pub fn of_flows(flows: u32) -> Option<Coefficient> {
        let clamped = u16::try_from(flows.min(255)).unwrap_or(255);
        (clamped > 0).then_some(Coefficient(clamped << 8))
    }

    /// The coefficient in 1/256.
    pub const fn as_256ths(self) -> u32 {
        self.0 as u32
    }

    /// The part of `rate` that one flow has.
    pub fn share(self, rate: Rate) -> Rate {
        let bits = u128::from(rate.as_bps()) * 256 / u128::from(self.0);
        // At least one flow, so no more than the whole.
        Rate::from_bps(bits as u64)
    }

    pub(crate) fn to_wire(this: Option<Coefficient>) -> u16 {
        this.map_or(0, |coefficient| coefficient.0)
    }

    /// The outer None is malformed, the inner one unknown.
    pub(crate) fn from_wire(value: u16) -> Option<Option<Coefficient>> {
        match value {
            0 => Some(None),
            1..256 => None,
            value => Some(Some(Coefficient(value))),
        }
    }
}

impl fmt::Display for Coefficient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}", f64::from(self.0) / 256.0))
    }
}

/// The window that a UE with `flows` flows lets each have, so that they share its link without a
/// word to any sender: equation 1 at the receiver, `alpha` times minRTT times bandwidth over the
/// number of flows, and never less than two full segments, below which delayed ACKs stall.
pub fn window_per_flow(alpha: u32, bandwidth: Rate, min_rtt: Span, flows: u32) -> ByteSize {
    let whole = bandwidth.bytes_in(min_rtt * u64::from(alpha)).as_bytes();
    ByteSize::from_bytes((whole / u64::from(flows.max(1))).max(LEAST_WINDOW))
}

const LEAST_WINDOW: u64 = 2 * 1460;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_whole_over_the_number_of_flows() {
        let rate = Rate::from_bps(10_000_000);
        assert_eq!(Coefficient::ONE.share(rate), rate);
        assert_eq!(Coefficient::of_flows(4).unwrap().share(rate), Rate::from_bps(2_500_000));
        assert_eq!(Coefficient::of_flows(0), None);
        assert_eq!(Coefficient::of_flows(70_000), Coefficient::of_flows(255));
    }

    #[test]
    fn the_windows_of_all_flows_are_alpha_times_the_bandwidth_delay_product() {
        // 2 x 20 ms x 12 Mbit/s = 60,000 bytes.
        let rate = Rate::from_bps(12_000_000);
        let window = |flows| window_per_flow(2, rate, Span::from_millis(20), flows).as_bytes();
        assert_eq!(window(1), 60_000);
        assert_eq!(window(3), 20_000);
        assert_eq!(window(1_000), LEAST_WINDOW);
    }
}
