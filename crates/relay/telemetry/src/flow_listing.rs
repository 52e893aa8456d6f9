//! The open flows of all workers, as one who asks again and again sees them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use midspan_ccload::{Controls, feedback_in, goes_by_feedback};
use midspan_observe::LegStats;
use midspan_observe::admin::{Assisted, Flow, Flows, MOST_FLOWS, Order};
use midspan_split::{Key, PerLeg};
use midspan_sys::clock::monotonic;
use midspan_units::{Span, Time};

use crate::source::{Brief, Gone, Source};

/// What one connection to the admin socket has seen of flows, to tell what has moved since.
#[derive(Debug, Default)]
pub(crate) struct FlowListing {
    /// Bytes each way, and when that was.
    seen: HashMap<(usize, Key), (u64, u64, Instant)>,
}

impl FlowListing {
    pub(crate) async fn call(
        &mut self,
        source: &dyn Source,
        order: Order,
        most: usize,
    ) -> Result<Flows, Gone> {
        let workers = source.workers();
        let mut all = Vec::new();
        let asked: Vec<_> = (0..workers).map(|worker| source.flows(worker)).collect();
        for (worker, answer) in asked.into_iter().enumerate() {
            all.extend(answer.await?.into_iter().map(|brief| (worker, brief)));
        }
        let mut seen = HashMap::with_capacity(all.len());
        let mut flows: Vec<(Brief, Flow)> = Vec::with_capacity(all.len());
        for (worker, brief) in all {
            let place = (worker, brief.key);
            let rates = rates(&brief, self.seen.get(&place));
            let up = brief.totals.client.received;
            let down = brief.totals.server.received;
            seen.insert(place, (up, down, brief.seen));
            flows.push((brief, described(source, worker, &brief, rates)));
        }
        self.seen = seen;
        let open = flows.len();
        flows.sort_by(|(_, a), (_, b)| rank(order, b).total_cmp(&rank(order, a)));
        flows.truncate(most.min(MOST_FLOWS));
        for worker in 0..workers {
            let mut own: Vec<_> =
                flows.iter_mut().filter(|(_, flow)| flow.worker == worker).collect();
            let keys = own.iter().map(|(brief, _)| brief.key).collect();
            let legs = source.legs(worker, keys).await?;
            for ((_, flow), PerLeg { client, server }) in own.iter_mut().zip(legs) {
                (flow.client_leg, flow.server_leg) = (client, server);
            }
        }
        say_what_assists(&mut flows);
        Ok(Flows { open, flows: flows.into_iter().map(|(_, flow)| flow).collect() })
    }
}

/// What NetAssist has said, for each flow of which a leg goes by it. Where its map cannot be read, nothing is known.
fn say_what_assists(flows: &mut [(Brief, Flow)]) {
    let assists = |leg: &Option<LegStats>| {
        leg.as_ref().is_some_and(|leg| goes_by_feedback(leg.congestion_control.as_str()))
    };
    let ue = |brief: &Brief, flow: &Flow| -> Option<IpAddr> {
        match (assists(&flow.client_leg), assists(&flow.server_leg)) {
            (true, _) => Some(brief.client.ip()),
            (_, true) => Some(brief.server.ip()),
            _ => None,
        }
    };
    if !flows.iter().any(|(brief, flow)| ue(brief, flow).is_some()) {
        return;
    }
    let map = Controls::default().feedback_map();
    let map = map.inspect_err(|error| tracing::debug!(%error, "feedback cannot be looked at")).ok();
    let now = Time::ZERO + Span::from(monotonic());
    for (brief, flow) in flows {
        if let Some(ue) = ue(brief, flow) {
            let said = map.as_ref().and_then(|map| feedback_in(map, ue.to_canonical()).ok()?);
            flow.assisted = Some(Assisted {
                age_s: said.map(|said| now.since(said.updated).as_secs_f64()),
                holds: said.is_some_and(|said| said.at(now).is_some()),
            });
        }
    }
}

/// Bytes a second each way: since it was last seen, or since it began.
fn rates(brief: &Brief, before: Option<&(u64, u64, Instant)>) -> (f64, f64) {
    let (up, down, since) = before.copied().unwrap_or((0, 0, brief.start));
    let seconds = brief.seen.saturating_duration_since(since).as_secs_f64();
    // Two questions at once tell nothing of what moves.
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds.max(1e-3);
    (rate(brief.totals.client.received, up), rate(brief.totals.server.received, down))
}

fn described(
    source: &dyn Source,
    worker: usize,
    brief: &Brief,
    (rate_up, rate_down): (f64, f64),
) -> Flow {
    let (client, server) = (brief.totals.client, brief.totals.server);
    Flow {
        worker,
        client: source.observer().naming.of(brief.client),
        server: brief.server,
        age_s: brief.seen.saturating_duration_since(brief.start).as_secs_f64(),
        connected: brief.connected,
        bytes_up: client.received,
        bytes_down: server.received,
        rate_up,
        rate_down,
        buffered: (client.received - server.sent.min(client.received))
            + (server.received - client.sent.min(server.received)),
        client_leg: None,
        server_leg: None,
        assisted: None,
    }
}

/// What comes first has most of it.
fn rank(order: Order, flow: &Flow) -> f64 {
    match order {
        Order::Rate => flow.rate_up + flow.rate_down,
        Order::Bytes => (flow.bytes_up + flow.bytes_down) as f64,
        Order::Age => flow.age_s,
    }
}
