//! Who is told of flows, as workers know it.

use std::fmt;
use std::time::Instant;

use midspan_forward::Accepted;
use midspan_legs::{FlowMetadata, LiveFlow};
use midspan_observe::FlowId;
use midspan_split::{Cause, PerLeg, Totals};
use midspan_units::Time;

/// Who is told of the flows of all workers. Nobody waits for it.
pub(crate) trait FlowObserver: fmt::Debug + Send + Sync {
    /// What a connection that was taken now is called: as the steering program's record of it is, if the kernel has kept
    /// its SYN.
    fn identify(&self, accepted: &Accepted, now: Time) -> FlowId;

    /// A flow of a worker begins now.
    fn begins(&self, worker: usize, metadata: &FlowMetadata);

    /// A flow of a worker is over; its sockets are not closed yet.
    fn ended(
        &self,
        worker: usize,
        flow: &LiveFlow,
        totals: PerLeg<Totals>,
        cause: Option<Cause>,
        now: Instant,
    );

    /// The server leg of a flow of a worker could not even begin.
    fn not_started(&self, worker: usize, metadata: &FlowMetadata, now: Instant);
}
