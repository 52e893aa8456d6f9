//! What a UE's link can carry, and how long a round trip takes without queues.

mod capacity;
mod channel;
mod min_rtt;
mod sanity;
mod ue;

pub use capacity::{Capacity, CapacityConfig, Evidence, Known};
pub use channel::{Cell, Technology};
pub use min_rtt::{Floor, MinRtt, MinRttConfig};
pub use sanity::{Bounds, Clip, MEMORY, Sanity};
pub use ue::{Estimate, EstimatorConfig, UeEstimator};
