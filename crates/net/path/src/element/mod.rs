//! The elements, one file each: its configuration, what it does, its known answers.

mod delay;
mod external;
mod gilbert_elliott;
mod late;
mod loss;
mod mmwave;
mod policer;
mod radio;
mod rate;
mod rlc;
mod slots;
mod trace_link;
mod wla;

use midspan_units::Time;

use crate::{Counters, Packet};
pub(crate) use delay::Delay;
pub(crate) use external::External;
pub use external::{Decide, ExternalSpec, Externals, Fate, Maker, Seen};
pub(crate) use gilbert_elliott::GilbertElliott;
pub use gilbert_elliott::GilbertElliottSpec;
pub(crate) use late::Late;
pub use late::LateSpec;
pub(crate) use loss::Loss;
pub use loss::LossSpec;
pub(crate) use mmwave::MmWave;
pub use mmwave::{MmWaveSpec, Node};
pub(crate) use policer::Policer;
pub use policer::PolicerSpec;
pub(crate) use radio::Radio;
pub use radio::RadioSpec;
pub(crate) use rate::RateLink;
pub use rate::RateSpec;
pub(crate) use rlc::Rlc;
pub use rlc::{Retransmit, RlcSpec};
pub(crate) use trace_link::TraceLink;
pub use trace_link::TraceSpec;
pub(crate) use wla::Wla;
pub use wla::WlaSpec;

/// Something that a packet crosses. Driven by events in the order of time: [`Element::enter`] when
/// a packet comes, [`Element::run`] at the time that [`Element::due`] tells.
pub(crate) trait Element<P: Packet> {
    /// `packet` comes in at `now`, after everything due by then has run. Gives it back if it
    /// passes at once; otherwise it was kept or dropped.
    fn enter(&mut self, now: Time, packet: P) -> Option<P>;

    /// When [`Element::run`] is wanted next; [`Time::MAX`] if only another packet changes anything.
    /// Changes only in calls of `enter` that return `None` and in calls of `run`.
    fn due(&self) -> Time {
        Time::MAX
    }

    /// Does what is due at `now`, which is exactly [`Element::due`]; gives the packet that leaves
    /// by it, if one does. When several leave at once it is due again at the same time.
    fn run(&mut self, now: Time) -> Option<P> {
        let _ = now;
        None
    }

    /// Adds what it holds, dropped and marked to `counters`.
    fn report(&self, counters: &mut Counters);
}

/// One of the elements: static dispatch where packets pass.
pub(crate) enum AnyElement<P> {
    Rate(RateLink<P>),
    Delay(Delay<P>),
    Loss(Loss),
    GilbertElliott(GilbertElliott),
    Late(Late<P>),
    Rlc(Rlc<P>),
    Trace(TraceLink<P>),
    Policer(Policer),
    Radio(Box<Radio<P>>),
    Wla(Wla),
    MmWave(Box<MmWave<P>>),
    External(Box<External<P>>),
}

macro_rules! each {
    ($any:expr, $element:ident => $call:expr) => {
        match $any {
            AnyElement::Rate($element) => $call,
            AnyElement::Delay($element) => $call,
            AnyElement::Loss($element) => $call,
            AnyElement::GilbertElliott($element) => $call,
            AnyElement::Late($element) => $call,
            AnyElement::Rlc($element) => $call,
            AnyElement::Trace($element) => $call,
            AnyElement::Policer($element) => $call,
            AnyElement::Radio($element) => $call,
            AnyElement::Wla($element) => $call,
            AnyElement::MmWave($element) => $call,
            AnyElement::External($element) => $call,
        }
    };
}

impl<P: Packet> Element<P> for AnyElement<P> {
    fn enter(&mut self, now: Time, packet: P) -> Option<P> {
        each!(self, element => element.enter(now, packet))
    }

    fn due(&self) -> Time {
        each!(self, element => Element::<P>::due(element))
    }

    fn run(&mut self, now: Time) -> Option<P> {
        each!(self, element => element.run(now))
    }

    fn report(&self, counters: &mut Counters) {
        each!(self, element => Element::<P>::report(element, counters))
    }
}
