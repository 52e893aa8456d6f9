//! Every decision of a split TCP flow, and nothing else.
//!
//! A split flow is two TCP connections, the client [`Leg`] and the server leg, and two directions
//! of bytes between them. This crate says when to read and how much, what must be written, when a
//! FIN or a reset crosses from one leg to the other, when both connections may be closed in order,
//! what window to advertise, how far to read ahead, when to splice instead of copy, which flows to take at all, how
//! long to keep them, which worker is to have them, and what holds where nothing is [set](defaults). It
//! has no sockets, no clock and no thread, and allocates nothing once set up: the relay runs these
//! decisions with real sockets, the simulator with simulated ones.
//!
//! A [`Pump`] carries a flow out over any two [`Legs`]: tell it of events, and give it turns. Both
//! of them do so. It asks its [`Flow`], in this order: [`Flow::disposition`] (is it over?),
//! [`Flow::to_write`], [`Flow::may_read`], [`Flow::must_finish`], [`Flow::awaits_drain`].

mod admission;
mod copy_mode;
pub mod defaults;
mod deferred_accept;
mod descriptors;
mod drain;
mod first_window;
mod flow;
mod heartbeat;
mod idle;
mod leg;
mod linger;
mod parts;
pub mod proxy_protocol;
mod pump;
mod read_ahead;
mod server_path;
mod slab;
mod stream;
mod timers;
mod waits;
mod window;
mod worker;

pub use admission::{Admission, Budget, Limits, Refusal, room_of_each, takes_nearby};
pub use copy_mode::{CopyMode, CopyModeSelector};
pub use defaults::ReadAheadKind;
pub use deferred_accept::{Asking, ConnectAttempt, DeferredAccept, Ends};
pub use descriptors::Descriptors;
pub use drain::{Drain, DrainKind};
pub use first_window::{ClientLink, FirstWindows};
pub use flow::{Cause, Disposition, Flow, Totals};
pub use heartbeat::{Beat, Heartbeat, Vitals};
pub use idle::{IdleTimeouts, IdleTracker};
pub use leg::{Leg, PerLeg};
pub use linger::Linger;
pub use pump::{
    Action, CountedEvent, Failure, LegInfo, Legs, Outcome, Pump, Read, Readiness, Write,
};
pub use read_ahead::ReadAhead;
pub use server_path::{ServerPaths, Shown};
pub use slab::{Key, Slab};
pub use stream::Watermarks;
pub use timers::Timer;
pub use waits::Waits;
pub use window::ReceiveWindow;
pub use worker::{ConnectAgain, Entry, Host, Opened, Over, Reason, Rules, Worker};
