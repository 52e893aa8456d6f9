//! From sockets and links to the words of a record.

use midspan_path::{Counters, Stretch};
use midspan_scenario::record::{DirectionRecord, LatenessRecord, LegRecord, LinkRecord, Variant};
use midspan_tcp::Endpoint;

use crate::host::{self, Host, MEC, UE};
use crate::socket::SocketId;
use crate::world::World;

/// A TCP leg as it stands.
pub(crate) fn leg(host: Host, peer: Host, endpoint: &Endpoint, variant: Variant) -> LegRecord {
    let info = endpoint.info();
    let micros = |span: midspan_units::Span| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
    LegRecord {
        host: host::name(host).to_owned(),
        leg: host::leg(variant, host, peer).to_owned(),
        congestion_control: endpoint.control().name().to_owned(),
        rtt_us: micros(info.rtt),
        min_rtt_us: micros(info.min_rtt),
        cwnd: info.cwnd,
        retransmits: u32::try_from(info.retransmissions).unwrap_or(u32::MAX),
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        delivery_rate_bps: info.delivery_rate.map_or(0.0, |rate| rate.as_bps() as f64),
        dsack_dups: info.dsacks,
        reord_seen: info.reorderings,
        busy: None,
    }
}

/// Every leg that stands, of the sockets that `counts` lets count.
pub(crate) fn legs(
    world: &World,
    variant: Variant,
    counts: impl Fn(SocketId) -> bool,
) -> Vec<LegRecord> {
    standing(world, variant).filter(|(id, _)| counts(*id)).map(|(_, leg)| leg).collect()
}

/// Every leg that stands, by its socket.
pub(crate) fn standing(
    world: &World,
    variant: Variant,
) -> impl Iterator<Item = (SocketId, LegRecord)> {
    world.sockets.iter().enumerate().filter_map(move |(id, socket)| {
        let socket = socket.as_ref()?;
        let peer = world.sockets[socket.peer].as_ref().map_or(socket.host, |peer| peer.host);
        Some((id, leg(socket.host, peer, socket.endpoint()?, variant)))
    })
}

/// The bytes of the data that the legs of the MEC's relay have received, and those that they have sent, each once.
pub(crate) fn passed_on(world: &World, upload: bool) -> (u64, u64) {
    let (mut taken, mut sent) = (0, 0);
    for socket in world.sockets.iter().flatten().filter(|socket| socket.host == MEC) {
        let Some(info) = socket.endpoint().map(Endpoint::info) else { continue };
        let to_ue = world.sockets[socket.peer].as_ref().is_some_and(|peer| peer.host == UE);
        match to_ue == upload {
            true => taken += info.bytes_received,
            false => sent += info.bytes_sent,
        }
    }
    (taken, sent)
}

/// What the stretches of the way have done since `before`, which is when their delays were restarted.
/// With every hundredth of these if so wanted.
pub(crate) fn links(
    before: &[(Counters, Counters)],
    world: &World,
    percentiles: bool,
) -> Vec<LinkRecord> {
    let since = |(before, after): (&(Counters, Counters), Stretch)| LinkRecord {
        link: after.name.to_owned(),
        lateness: LatenessRecord::default(),
        unintended_drops: 0,
        up: direction(&before.0, &after.counters.0).with_delays(&after.delays.0, percentiles),
        down: direction(&before.1, &after.counters.1).with_delays(&after.delays.1, percentiles),
    };
    before.iter().zip(world.stretches()).map(since).collect()
}

fn direction(before: &Counters, after: &Counters) -> DirectionRecord {
    let dropped = |(cause, count): (&&'static str, &u64)| {
        let count = count - before.dropped.get(cause).copied().unwrap_or(0);
        (count > 0).then(|| ((*cause).to_owned(), count))
    };
    DirectionRecord {
        packets_in: after.packets_in - before.packets_in,
        packets_out: after.packets_out - before.packets_out,
        bytes_out: after.bytes_out - before.bytes_out,
        dropped: after.dropped.iter().filter_map(dropped).collect(),
        marked: after.marked - before.marked,
        ..DirectionRecord::default()
    }
}
