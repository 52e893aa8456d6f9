//! How much splitting helps, and what to do by it: bounds that hold however often one looks.
//!
//! An [`Estimator`] is told of every transfer that ended, split or not, and of the probability with which it was. It
//! answers how much faster transfers are if split, by place, service, prefix and size, and with which probability to
//! split new ones.
//!
//! How it comes to that:
//!
//! 1. *Adjustment.* Completion times are compared by their logarithms, less what is predicted from size, connect round
//!    trip and place, by least squares over slots already closed, clipped at a factor of 20 on either side. So tails as
//!    heavy as may be do no harm; what is estimated is the gain in clipped logarithms.
//! 2. *Scores.* Each transfer gives the predicted gain and its residual by the probability of its arm (augmented
//!    inverse-probability weighting: Robins, Rotnitzky, Zhao 1994). As the prediction is of the past, and the
//!    probability is known, scores are without bias even where the prediction is poor. The transfers of one subscriber
//!    in one slot have one arm, and give one score, their mean.
//! 3. *Bounds.* A [`Sequence`] bounds the mean of scores at all times at once, by the capital of a [`Mixture`] of bets
//!    (empirical Bernstein). Every unit has sequences over windows of several lengths, for gains change. All windows
//!    that are ever begun share one error.
//! 4. *Pooling.* Gains are estimated by [`Unit`]: of a group with a service, of the service, of its prefix, of all. A
//!    unit that is not certain follows what is around it, unless its own bounds exclude that.
//! 5. *Many units.* That splitting harms is only held of a unit where the evidence stands among all units of its level
//!    ([`discoveries`]).
//! 6. *Decision.* [`Decision`]: split where it is certain that harm is small; pass where it is certain that there is
//!    harm; else explore, near one half. Both arms are always drawn, so that what changes is noticed.
//!
//! A [`Learner`] leads an estimator through time: it knows which transfers count, and when slots are closed.
//!
//! What the guarantees take for granted: arms are drawn independently for each subscriber and slot with the probability
//! that is told; a transfer's arm changes neither other subscribers' times, nor whether it is told of, nor its size and
//! connect round trip.
//!
//! This crate is pure: it knows no clock and does no I/O.

mod decision;
mod estimator;
mod evidence;
mod learner;
mod mixture;
mod observation;
mod regression;
mod score;
mod sequence;
mod settings;
mod state;
mod unit;
mod windows;

pub use decision::{Decision, Estimate, Reason};
pub use estimator::{Counts, Estimator, Taken};
pub use evidence::discoveries;
pub use learner::{Learner, Transfer, TransferOutcome};
pub use mixture::Mixture;
pub use observation::{Arm, Id, Observation, Place, Refused, SizeClass};
pub use sequence::{Interval, OutOfRange, Running, Sequence};
pub use settings::{Settings, SettingsError};
pub use state::{State, StateError};
pub use unit::Unit;
