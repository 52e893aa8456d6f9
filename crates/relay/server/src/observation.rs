//! What workers tell of flows, told on to who observes the relay.

use std::time::Instant;

use midspan_forward::Accepted;
use midspan_legs::{FlowMetadata, LiveFlow};
use midspan_observe::{Began, FlowId};
use midspan_sockets::leg_stats;
use midspan_split::{Cause, Leg, PerLeg, Totals};
use midspan_telemetry::{EndedFlow, Observer};
use midspan_units::Time;

use crate::flow_observer::FlowObserver;

impl FlowObserver for Observer {
    fn identify(&self, accepted: &Accepted, now: Time) -> FlowId {
        let began = match accepted.syn.sequence {
            Some(sequence) => Began::With(sequence),
            None => Began::At(now.as_nanos()),
        };
        Observer::identify(self, accepted.client, accepted.server, began)
    }

    fn begins(&self, worker: usize, metadata: &FlowMetadata) {
        Observer::begins(self, worker, metadata.id, metadata.client, metadata.server);
    }

    /// Without metrics and flow log this costs nothing.
    fn ended(
        &self,
        worker: usize,
        flow: &LiveFlow,
        totals: PerLeg<Totals>,
        cause: Option<Cause>,
        now: Instant,
    ) {
        if !self.wants() {
            return;
        }
        let ask = |leg| leg_stats(flow.fd(leg), self.wants_names());
        let stats = PerLeg { client: ask(Leg::Client), server: ask(Leg::Server) };
        let ended = EndedFlow { totals, stats, cause, ..of(flow.metadata(), now) };
        Observer::ended(self, worker, &ended);
    }

    fn not_started(&self, worker: usize, metadata: &FlowMetadata, now: Instant) {
        let cause = Some(Cause::ConnectFailed);
        Observer::ended(self, worker, &EndedFlow { cause, ..of(metadata, now) });
    }
}

/// A flow that ends in order now, of which no more is known than this.
fn of(metadata: &FlowMetadata, now: Instant) -> EndedFlow {
    EndedFlow {
        id: metadata.id,
        client: metadata.client,
        server: metadata.server,
        lasted: now - metadata.start,
        connect: metadata.connected.map(|connected| connected - metadata.start),
        spliced: metadata.spliced,
        totals: PerLeg::default(),
        stats: PerLeg::default(),
        cause: None,
    }
}
