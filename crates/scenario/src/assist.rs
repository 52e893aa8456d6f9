//! NetAssist in a scenario: what the network tells the senders, and by which way.

use midspan_path::{ElementSpec, TraceSpec, TraceWindows, Traces};
use midspan_units::{ByteSize, Span};
use serde::{Deserialize, Serialize};

use crate::{CellSpec, Place};

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
    pub way: Way,
    /// What the sender is told.
    #[serde(default)]
    pub tell: Tell,
    /// The host whose agent is told, which is the one that sends over the radio link: the server, or
    /// the MEC if that has a relay on it.
    #[serde(default)]
    pub agent: Place,
    /// Bytes of the packet whose transmission upwards counts in minRTT (the `natcp` paper's third
    /// part). Zero, as in its authors' program, leaves it out.
    #[serde(default = "nothing")]
    pub uplink_packet: ByteSize,
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
pub enum Way {
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
    /// Bandwidth; the least round trip is the sender's own to measure (throughput guidance).
    Bandwidth,
}

fn period() -> Span {
    Span::from_millis(50)
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
