use midspan_units::{Span, Time};

use crate::flow::{Cause, Flow};

/// How long flows may go without payload, both ways together. A FIN counts as payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdleTimeouts {
    /// With any flow; none is for ever.
    pub idle: Option<Span>,
    /// With one that has seen a FIN, if that is shorter; none is as for any other.
    pub half_closed: Option<Span>,
}

impl IdleTimeouts {
    /// How often to [check](IdleTracker::check) every flow, for none to overstay by more than a quarter
    /// of its time. None if all may stay for ever.
    pub fn interval(&self) -> Option<Span> {
        let shortest = [self.idle, self.half_closed].into_iter().flatten().min()?;
        Some(shortest / 8)
    }

    /// How long this flow may be idle, and what it is reset for then.
    fn with(&self, flow: &Flow) -> Option<(Span, Cause)> {
        let half_closed = self.half_closed.filter(|_| flow.has_seen_fin());
        let limits = [(half_closed, Cause::HalfClosed), (self.idle, Cause::Idle)];
        limits.into_iter().filter_map(|(limit, cause)| Some((limit?, cause))).min_by_key(|of| of.0)
    }
}

/// Since when a flow has been idle, as far as is known: it is looked at now and then, so that a
/// flow that moves costs nothing.
#[derive(Debug, Clone, Copy)]
pub struct IdleTracker {
    progress: u64,
    since: Time,
}

impl IdleTracker {
    /// Of a flow not looked at yet.
    pub const fn new() -> Self {
        // More than any flow moves.
        IdleTracker { progress: u64::MAX, since: Time::ZERO }
    }

    /// Why to reset the flow, if it has been idle for too long. It is not reset early: what has moved
    /// since the last look may have moved just now. A flow that still connects is not idle.
    pub fn check(&mut self, flow: &Flow, timeouts: &IdleTimeouts, now: Time) -> Option<Cause> {
        let progress = flow.progress();
        if progress != self.progress || flow.is_connecting() {
            *self = IdleTracker { progress, since: now };
            return None;
        }
        let (limit, cause) = timeouts.with(flow)?;
        (now.since(self.since) >= limit).then_some(cause)
    }
}

impl Default for IdleTracker {
    fn default() -> Self {
        IdleTracker::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Leg, Watermarks};
    use proptest::prelude::*;

    fn relaying() -> Flow {
        let mut flow = Flow::new(Watermarks::up_to(1 << 16));
        flow.connected();
        flow
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn a_flow_that_connects_is_not_idle() {
        let timeouts = IdleTimeouts { idle: Some(Span::from_secs(8)), half_closed: None };
        let (mut flow, mut tracker) = (Flow::new(Watermarks::up_to(1)), IdleTracker::new());
        for second in 0..100 {
            assert_eq!(tracker.check(&flow, &timeouts, at(second)), None);
        }
        flow.connected();
        assert_eq!(tracker.check(&flow, &timeouts, at(106)), None);
        assert_eq!(tracker.check(&flow, &timeouts, at(107)), Some(Cause::Idle));
    }

    #[test]
    fn the_shorter_limit_is_the_cause() {
        let seconds = |count| Some(Span::from_secs(count));
        for (idle, half_closed, after, cause) in [
            (seconds(8), seconds(16), 8, Cause::Idle),
            (seconds(16), seconds(8), 8, Cause::HalfClosed),
            (None, seconds(8), 8, Cause::HalfClosed),
            (seconds(8), None, 8, Cause::Idle),
        ] {
            let (mut flow, mut tracker) = (relaying(), IdleTracker::new());
            let timeouts = IdleTimeouts { idle, half_closed };
            flow.end_of_stream(Leg::Client);
            for second in 0..after {
                assert_eq!(tracker.check(&flow, &timeouts, at(second)), None);
            }
            assert_eq!(tracker.check(&flow, &timeouts, at(after)), Some(cause));
        }
    }

    #[test]
    fn without_a_limit_nothing_is_looked_for() {
        assert_eq!(IdleTimeouts::default().interval(), None);
        let (flow, mut tracker) = (relaying(), IdleTracker::new());
        assert_eq!(tracker.check(&flow, &IdleTimeouts::default(), at(1)), None);
        assert_eq!(tracker.check(&flow, &IdleTimeouts::default(), at(1_000_000)), None);
    }

    #[derive(Debug, Clone, Copy)]
    enum Event {
        Payload(Leg),
        Delivery(Leg),
        Fin(Leg),
        Nothing,
    }

    fn event() -> impl Strategy<Value = Event> {
        let leg = || prop_oneof![Just(Leg::Client), Just(Leg::Server)];
        prop_oneof![
            4 => leg().prop_map(Event::Payload),
            4 => leg().prop_map(Event::Delivery),
            1 => leg().prop_map(Event::Fin),
            6 => Just(Event::Nothing),
        ]
    }

    proptest! {
        /// Against one that remembers the time of every event: never too early, and never more than a
        /// quarter of the limit late.
        #[test]
        fn no_flow_goes_early_or_stays_long(
            steps in prop::collection::vec((event(), 0u64..3_000), 1..200),
            idle in prop::option::of(1_000u64..10_000),
            half_closed in prop::option::of(1_000u64..10_000),
        ) {
            let span = |millis: Option<u64>| millis.map(Span::from_millis);
            let timeouts = IdleTimeouts { idle: span(idle), half_closed: span(half_closed) };
            let (mut flow, mut tracker) = (relaying(), IdleTracker::new());
            let mut now = Time::ZERO;
            let (mut moved, mut fin) = (now, false);
            let mut next_look = now;
            for (event, then) in steps {
                let before = (flow.total_received(Leg::Client) + flow.total_received(Leg::Server),
                    flow.total_sent(Leg::Client) + flow.total_sent(Leg::Server), fin);
                match event {
                    Event::Payload(from) if flow.may_read(from) > 0 => flow.received(from, 1),
                    Event::Delivery(to) if flow.to_write(to) > 0 => flow.sent(to, 1),
                    Event::Fin(from) if !fin => {
                        flow.end_of_stream(from);
                        fin = true;
                    }
                    _ => {}
                }
                let after = (flow.total_received(Leg::Client) + flow.total_received(Leg::Server),
                    flow.total_sent(Leg::Client) + flow.total_sent(Leg::Server), fin);
                if before != after {
                    moved = now;
                }
                let end = now + Span::from_millis(then);
                while let Some(interval) = timeouts.interval() && next_look <= end {
                    now = next_look;
                    next_look += interval;
                    let shortest = [span(idle), span(half_closed).filter(|_| fin)];
                    let limit = shortest.into_iter().flatten().min();
                    let idle_for = now.since(moved);
                    match (tracker.check(&flow, &timeouts, now), limit) {
                        (Some(cause), Some(limit)) => {
                            prop_assert!(idle_for >= limit);
                            let expected = if Some(limit) == span(half_closed) && fin {
                                Cause::HalfClosed
                            } else {
                                Cause::Idle
                            };
                            prop_assert_eq!(cause, expected);
                            return Ok(());
                        }
                        (None, Some(limit)) => {
                            prop_assert!(idle_for < limit + interval * 2);
                        }
                        (cause, None) => prop_assert_eq!(cause, None),
                    }
                }
                now = end;
            }
        }
    }
}
