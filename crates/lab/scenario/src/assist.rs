//! NetAssist in a scenario: what the network tells the senders, and by which way.

use midspan_path::{ElementSpec, TraceSpec, TraceWindows, Traces};
use midspan_units::{ByteSize, Span};
use serde::{Deserialize, Serialize};

use crate::{CellSpec, ServiceHost};

/// NetAssist stands at the MEC, and knows the UE's radio link from the base station: what the trace
/// of `path.access` can carry, window by window. It tells an agent on one of the hosts, from which
/// the congestion controls `ms_natcp` and `ms_nacubic` have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assist {
    /// Of which windows feedback tells, if there is any.
    pub feedback: FeedbackOf,
    /// How long a window is, and how often feedback is sent. From 10 ms to 500 ms.
    #[serde(default = "period")]
    pub period: Span,
    /// How feedback gets to the sender.
    #[serde(default)]
    pub way: FeedbackRoute,
    /// What the sender is told.
    #[serde(default)]
    pub tell: Tell,
    /// With [`Tell::Bandwidth`], which of its own round trips the sender takes in place of minRTT.
    #[serde(default, skip_serializing_if = "OwnRtt::is_default")]
    pub rtt: OwnRtt,
    /// The host whose agent is told, which is the one that sends over the radio link: the server, or
    /// the MEC if that has a relay on it.
    #[serde(default)]
    pub agent: ServiceHost,
    /// Bytes of the packet whose transmission upwards counts in minRTT (the `natcp` paper's third
    /// part). Zero, as in its authors' program, leaves it out.
    #[serde(default = "nothing")]
    pub uplink_packet: ByteSize,
    /// How long the UE's link is to have something to carry without hearing of the sender, at most 1 s.
    /// 5 ms if absent; zero is the paper's.
    #[serde(default = "short")]
    pub standing_queue: Span,
    /// The rate that senders send at, in percent of the bandwidth, from 50 to 1000. 99 if absent;
    /// 100 is the paper's.
    #[serde(default = "nearly_whole")]
    pub pace_percent: u32,
    /// When the base station falls silent, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuts: Option<Cuts>,
}

/// Stretches over which the base station says nothing. What becomes of the flows over each is
/// recorded, with feedback or without: [`CutRecord`](crate::record::CutRecord).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cuts {
    /// They begin so long after the path began, and then again and again after as long.
    pub every: Span,
    /// How long each is.
    pub length: Span,
}

/// The times of a cut, since the path began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutTimes {
    /// From then on until `start` the queue is looked at, as it is with feedback.
    pub before: Span,
    /// Silence begins.
    pub start: Span,
    /// From then on until `end` the queue is looked at, as it is without feedback.
    pub late: Span,
    /// Silence is over.
    pub end: Span,
    /// Three periods later, when the queue is to be as before ...
    pub after: Span,
    /// ... and is looked at until then.
    pub last: Span,
}

/// How long the queue is looked at before a cut, at its end, and after it.
const LOOK: Span = Span::from_secs(1);

impl Cuts {
    /// Whether the base station is silent `at` so long after the path began.
    pub fn hold(&self, at: Span) -> bool {
        let into = at.as_nanos() % self.every.as_nanos().max(1);
        at >= self.every && into < self.length.as_nanos()
    }

    /// The cuts that lie wholly between two times since the path began, with what is looked at
    /// around them; feedback has `period`.
    pub fn between(&self, from: Span, until: Span, period: Span) -> Vec<CutTimes> {
        let times = |number: u64| {
            let start = self.every * number;
            let end = start + self.length;
            let after = end + period * 3;
            CutTimes {
                before: start.saturating_sub(LOOK),
                start,
                late: end.saturating_sub(LOOK).max(start),
                end,
                after,
                last: after + LOOK,
            }
        };
        let numbers = (1..).map(times).take_while(|cut| cut.last <= until);
        numbers.filter(|cut| cut.before >= from).collect()
    }

    /// What they can be with feedback every `period`: a fault, or None.
    pub(crate) fn fault(&self, period: Span) -> Option<&'static str> {
        let around = self.length + period * 3 + LOOK * 2;
        if self.length == Span::ZERO || self.every < around {
            return Some(
                "`every` must be at least `length`, which is not zero, and three periods and 2 s",
            );
        }
        None
    }
}

/// Of which windows feedback tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeedbackOf {
    /// There is none.
    None,
    /// Of the window that has passed: what a base station knows.
    Causal,
    /// Of the window that comes, as in the `natcp` paper's authors' program: nothing knows that.
    Oracle,
}

/// How feedback gets to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeedbackRoute {
    /// Straight from the MEC.
    #[default]
    OutOfBand,
    /// With the data to the UE and with the acknowledgements back, through both queues of the radio
    /// link (the `natcp` paper's IB).
    InBand,
}

/// What the sender is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tell {
    /// Bandwidth and minRTT.
    #[default]
    Both,
    /// Bandwidth; the round trip is the sender's own to measure (throughput guidance).
    Bandwidth,
}

/// Which of the round trips that a sender measures stands in for minRTT where it is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnRtt {
    /// The least of the last minutes.
    #[default]
    Least,
    /// The smoothed one (RFC 6298), which has the queue in it.
    Smoothed,
}

impl OwnRtt {
    fn is_default(&self) -> bool {
        *self == OwnRtt::default()
    }
}

fn period() -> Span {
    Span::from_millis(50)
}

fn short() -> Span {
    Span::from_millis(5)
}

fn nearly_whole() -> u32 {
    99
}

fn nothing() -> ByteSize {
    ByteSize::from_bytes(0)
}

/// What a base station can tell of a UE's link.
#[derive(Debug, Clone)]
pub struct Radio {
    /// Towards the UE.
    pub down: TraceWindows,
    /// From it, where that is a trace too.
    pub up: Option<TraceWindows>,
}

impl CellSpec {
    /// The stretches over which the flows are to be looked at, because feedback is cut where there is
    /// some; and NetAssist.
    pub fn cuts(&self) -> Option<(&Assist, Cuts)> {
        let assist = self.assist.as_ref()?;
        Some((assist, assist.cuts?))
    }

    /// NetAssist, if it gives feedback.
    pub fn assisted(&self) -> Option<&Assist> {
        self.assist.as_ref().filter(|assist| assist.feedback != FeedbackOf::None)
    }

    /// The radio link in windows of `window`; none if the access link has no trace, or it is not among
    /// `traces`.
    pub fn radio(&self, traces: &Traces, window: Span) -> Option<Radio> {
        let windows = |elements: &[ElementSpec]| {
            let recording = traces.get(&trace(elements)?.file)?;
            Some(TraceWindows::new(recording.clone(), window))
        };
        let access = &self.path.access;
        Some(Radio { down: windows(&access.down)?, up: windows(&access.up) })
    }
}

/// The first trace among `elements`.
pub(crate) fn trace(elements: &[ElementSpec]) -> Option<&TraceSpec> {
    elements.iter().find_map(|element| match element {
        ElementSpec::Trace(spec) => Some(spec),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_where_there_is_room_around_them() {
        let cuts = Cuts { every: Span::from_secs(10), length: Span::from_secs(2) };
        let period = Span::from_millis(50);
        assert_eq!(cuts.fault(period), None);
        let seconds = |found: Vec<CutTimes>| -> Vec<u64> {
            found.iter().map(|cut| cut.start.as_nanos() / 1_000_000_000).collect()
        };
        let between =
            |from, until| cuts.between(Span::from_secs(from), Span::from_secs(until), period);
        assert_eq!(seconds(between(0, 44)), [10, 20, 30, 40]);
        // The fourth's end is looked at until 43.15 s, the first's beginning from 9 s on.
        assert_eq!(seconds(between(10, 43)), [20, 30]);
        let first = between(0, 20)[0];
        assert_eq!(first.last, Span::from_millis(13_150));
        for (at, silent) in
            [(0, false), (1, false), (10, true), (11, true), (12, false), (21, true)]
        {
            assert_eq!(cuts.hold(Span::from_secs(at)), silent, "{at}");
        }
        assert!(Cuts { every: Span::from_secs(4), ..cuts }.fault(period).is_some());
        assert!(Cuts { length: Span::ZERO, ..cuts }.fault(period).is_some());
    }
}
