use std::marker::PhantomData;

use midspan_units::{ByteSize, Rate, Span, Time};

use crate::{Basis, Causal, Oracle};

/// What a source of radio data says of one UE over one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading<B: Basis> {
    /// When the window ended (causal) or begins (oracle), on the caller's clock.
    pub at: Time,
    /// How long the window is.
    pub window: Span,
    /// Towards the UE.
    pub downlink: LinkReading,
    /// From the UE.
    pub uplink: LinkReading,
    basis: PhantomData<B>,
}

impl Reading<Causal> {
    /// Of the window that ended `at`.
    pub fn passed(at: Time, window: Span, downlink: LinkReading, uplink: LinkReading) -> Self {
        Reading { at, window, downlink, uplink, basis: PhantomData }
    }
}

impl Reading<Oracle> {
    /// Of the window that begins `at`: what the link is going to carry, out of a recording.
    pub fn coming(at: Time, window: Span, downlink: Rate, uplink: Rate) -> Self {
        let [downlink, uplink] = [downlink, uplink].map(|rate| LinkReading::told(Some(rate)));
        Reading { at, window, downlink, uplink, basis: PhantomData }
    }
}

/// A basis of which readings can be made by whoever knows all that a link can carry: a recording of it,
/// or an emulated base station.
pub trait Recorded: Basis {
    /// How many windows after the beginning of a window it can be told of: an oracle does it then, all
    /// others when it is over.
    const DELAY: u64;

    /// Of the window of which `at` is the time to tell.
    fn reading(at: Time, window: Span, downlink: Rate, uplink: Option<Rate>) -> Reading<Self>;
}

impl Recorded for Causal {
    const DELAY: u64 = 1;

    fn reading(at: Time, window: Span, downlink: Rate, uplink: Option<Rate>) -> Reading<Self> {
        Reading::passed(at, window, LinkReading::told(Some(downlink)), LinkReading::told(uplink))
    }
}

impl Recorded for Oracle {
    const DELAY: u64 = 0;

    fn reading(at: Time, window: Span, downlink: Rate, uplink: Option<Rate>) -> Reading<Self> {
        Reading::coming(at, window, downlink, uplink.unwrap_or_default())
    }
}

/// One direction of a UE's link over a window. A source gives what it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkReading {
    /// What the link could have carried, from a source that knows.
    pub capacity: Option<Rate>,
    /// What it did carry. Not capacity unless something waited all the time.
    pub served: Option<Rate>,
    /// What waited at the window's end.
    pub backlog: Option<ByteSize>,
    /// What the UE had not acknowledged at the window's end, from a source that cannot tell what of it
    /// waits and what is in flight. On a bearer in RLC unacknowledged mode it is nothing, always.
    pub unacknowledged: Option<ByteSize>,
    /// Resource blocks in the window.
    pub blocks: Option<Blocks>,
    /// What the channel could carry at most, from its quality and the cell's width.
    pub ceiling: Option<Rate>,
}

impl LinkReading {
    /// From a source that knows what the link could have carried, or does not know.
    pub fn told(capacity: Option<Rate>) -> LinkReading {
        LinkReading { capacity, ..LinkReading::default() }
    }
}

/// Resource blocks over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// That carried the UE's data.
    pub used: u32,
    /// That the UE could have had: its own and those that nobody used.
    pub available: u32,
}
