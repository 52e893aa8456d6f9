//! A TCP endpoint that behaves as Linux's does, for simulation: no bytes, no sockets, no clock.
//!
//! An [`Endpoint`] takes [`Segment`]s and the time, and gives segments and the time at which it
//! wants to be asked again. Payloads are lengths and streams are counts. After each call that may
//! change something ([`Endpoint::receive`], [`Endpoint::on_timer`], [`Endpoint::write`],
//! [`Endpoint::read`], [`Endpoint::close`], [`Endpoint::abort`]) take everything that
//! [`Endpoint::poll_transmit`] gives, at the same time, then ask [`Endpoint::poll_timeout`].
//!
//! It has SACK and D-SACK (RFC 2018, 2883), RACK and tail loss probes (RFC 8985), proportional rate
//! reduction (RFC 9937), undo by timestamps and D-SACKs (RFC 3522, 4015), F-RTO (RFC 5682), window
//! validation (RFC 2861), autotuned buffers, pacing and ECN (RFC 3168), each as Linux does them;
//! options are named as Linux names them. Window and pacing rate are the
//! [congestion control's](midspan_cc::Control). It has no urgent data, no Fast Open, no keep-alive,
//! and no path MTU discovery.
//!
//! Written from RFCs, papers, and what is documented and observed of Linux.

mod config;
mod endpoint;
mod event;
mod info;
mod metrics;
mod ranges;
mod receiver;
mod segment;
mod sender;

use midspan_units::{Span, Time};

pub use config::{Config, EcnMode, Memory};
pub use endpoint::{Endpoint, Failure, Stage, Transmit};
pub use event::{CongestionState, Event, LossDetection, Proof, SenderMetrics, Timer};
pub use info::Info;
pub use metrics::Metrics;
pub use segment::Segment;

/// The timestamp of the time `now` (RFC 7323): milliseconds, never zero, which means none.
fn timestamp(now: Time) -> u32 {
    ((now.as_nanos() / 1_000_000 + 1) as u32).max(1)
}

/// Whether timestamp `a` is older than `b`.
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// The clock by which Linux's timers run: CONFIG_HZ=250, as distributions have it.
const TICK: Span = Span::from_millis(4);

/// What probes and reordering wait for beyond what is reckoned.
const LEAST_TIMER: Span = Span::from_millis(2);

/// When a timer strikes that is set to `span`: at a tick, and never early, so up to one late.
fn strikes(now: Time, span: Span) -> Time {
    let tick = TICK.as_nanos();
    let ticks = now.as_nanos() / tick + span.as_nanos().div_ceil(tick) + 1;
    Time::from_nanos(ticks * tick)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_strikes_at_a_tick_and_never_early() {
        let at = |micros: u64| Time::from_nanos(micros * 1000);
        let delack = Span::from_millis(40);
        assert_eq!(strikes(at(0), delack), at(44_000));
        assert_eq!(strikes(at(3_999), delack), at(44_000));
        assert_eq!(strikes(at(4_000), delack), at(48_000));
        assert_eq!(strikes(at(1_000), Span::from_millis(41)), at(48_000));
    }
}
