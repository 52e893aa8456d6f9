//! The TCP legs of a run, as the kernels of the three hosts know them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use midspan_assist::now;
use midspan_scenario::ServiceHost;
use midspan_scenario::record::{
    BusyRecord, DelayRecord, HeldWatch, LegRecord, SeriesRecord, SeriesWatch, Variant,
};
use midspan_sys::netns::Netns;
use midspan_sys::sockdiag::{self, DestroyNotifications, TcpSocket};
use midspan_units::Span;

use crate::topology::{Topology, UE};
use crate::traffic::SERVICE_PORT;

/// How long a connection that carries nothing may take to end: its FINs may be lost a few times.
const END: Duration = Duration::from_secs(15);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// All legs that stand now.
///
/// # Errors
/// When a host's sockets cannot be listed.
pub(crate) fn standing(topology: &Topology, variant: Variant) -> Result<Vec<LegRecord>> {
    let mut legs = Vec::new();
    for (host, netns) in hosts(topology) {
        let sockets = netns.run(sockdiag::tcp_sockets)?.context("cannot list TCP sockets")?;
        legs.extend(sockets.iter().filter_map(|socket| record(host, socket, variant)));
    }
    Ok(legs)
}

/// Waits until no connection of the traffic's stands any more.
///
/// # Errors
/// When a host's sockets cannot be listed, or one stands for longer than a connection takes to end.
pub(crate) fn wait_until_none(topology: &Topology) -> Result<()> {
    let deadline = Instant::now() + END;
    loop {
        let mut stand = false;
        for (_, netns) in hosts(topology) {
            let sockets = netns.run(sockdiag::tcp_sockets)?.context("cannot list TCP sockets")?;
            stand |= sockets.iter().any(is_traffic);
        }
        if !stand {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "a connection that was closed still stands");
        thread::sleep(LOOK);
    }
}

/// Follows how long the proxy holds the data until `over` is true; what goes before `measured` is does not count.
///
/// # Errors
/// When its host's sockets cannot be listed.
pub(crate) fn watch_held(
    topology: &Topology,
    upload: bool,
    measured: &AtomicBool,
    over: &AtomicBool,
) -> Result<Option<DelayRecord>> {
    let look = || -> io::Result<Option<DelayRecord>> {
        let (mut watch, begin) = (HeldWatch::default(), now());
        while !over.load(Ordering::Relaxed) {
            if !measured.load(Ordering::Relaxed) {
                watch.restart();
            }
            let (taken, sent) = passed_on(&sockdiag::tcp_sockets()?, upload);
            watch.look(now().since(begin), taken, sent);
            thread::sleep(HeldWatch::LOOK.into());
        }
        Ok(watch.record())
    };
    topology.mec.run(look)?.context("cannot list TCP sockets")
}

/// Follows legs and queues until `over` is true, with a look each `every`.
///
/// # Errors
/// When a host's sockets cannot be listed.
pub(crate) fn watch_series(
    topology: &Topology,
    variant: Variant,
    every: Duration,
    over: &AtomicBool,
) -> Result<SeriesRecord> {
    let begin = Instant::now();
    let each = |look: &mut dyn FnMut(Span) -> io::Result<()>| {
        for number in 1.. {
            thread::sleep((begin + every * number).saturating_duration_since(Instant::now()));
            if over.load(Ordering::Relaxed) {
                break;
            }
            let at = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            look(Span::from_nanos(at))?;
        }
        io::Result::Ok(())
    };
    let of_host = |host: &'static str, netns: &Netns| {
        // A listing takes its time, so the hosts are looked at beside each other.
        let look = || {
            let mut looks = Vec::new();
            each(&mut |at| {
                let legs = sockdiag::tcp_sockets()?;
                looks.extend(legs.iter().filter_map(|socket| {
                    let key = (host, socket.local, socket.remote);
                    Some((at, key, record(host, socket, variant)?))
                }));
                Ok(())
            })?;
            io::Result::Ok(looks)
        };
        netns.run(look)?
    };
    let mut watch = SeriesWatch::default();
    let looks = thread::scope(|scope| {
        let of_host = &of_host;
        let looks = hosts(topology).map(|(host, netns)| scope.spawn(move || of_host(host, netns)));
        let links = each(&mut |at| {
            let reports = topology.reports();
            for report in std::iter::once(&reports.access).chain(&reports.wide) {
                watch.link(at, &report.name, [report.up_waiting, report.down_waiting]);
            }
            Ok(())
        });
        let looks = looks.map(|look| look.join().expect("it does not panic"));
        links.map(|()| looks)
    });
    for look in looks? {
        for (at, key, leg) in look.context("cannot list TCP sockets")? {
            watch.leg(at, key, &leg);
        }
    }
    Ok(watch.record())
}

/// The bytes of the data that the proxy's legs have received, and those that they have sent, each once.
fn passed_on(sockets: &[TcpSocket], upload: bool) -> (u64, u64) {
    let (mut taken, mut sent) = (0, 0);
    for socket in sockets.iter().filter(|socket| is_traffic(socket)) {
        let info = &socket.info;
        match is_to_ue(socket) == upload {
            true => taken += info.bytes_received,
            false => sent += info.bytes_sent.saturating_sub(info.bytes_retrans),
        }
    }
    (taken, sent)
}

/// Collects legs as they end.
pub(crate) struct Watch {
    hosts: Vec<(&'static str, DestroyNotifications)>,
}

impl Watch {
    /// Starts to watch; legs that ended before are not seen.
    ///
    /// # Errors
    /// When the kernel cannot tell of sockets that end.
    pub(crate) fn start(topology: &Topology) -> Result<Watch> {
        let open = |(host, netns): (&'static str, &Netns)| {
            let notifications =
                netns.run(DestroyNotifications::open)?.context("cannot watch TCP sockets")?;
            Ok((host, notifications))
        };
        Ok(Watch { hosts: hosts(topology).into_iter().map(open).collect::<Result<_>>()? })
    }

    /// Everything that ended, once the legs of `connections` connections have, or after a moment:
    /// a proxy may take its time to let go of them.
    ///
    /// # Errors
    /// When some were lost.
    pub(crate) fn finish(mut self, variant: Variant, connections: usize) -> Result<Vec<LegRecord>> {
        let expected = connections * if variant == Variant::None { 2 } else { 4 };
        let deadline = Instant::now() + MOMENT;
        let mut legs = Vec::new();
        loop {
            for (host, notifications) in &mut self.hosts {
                let sockets = notifications.read().context("cannot follow TCP sockets")?;
                legs.extend(sockets.iter().filter_map(|socket| record(host, socket, variant)));
            }
            if legs.len() >= expected || Instant::now() >= deadline {
                return Ok(legs);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Longer than a FIN takes that was lost.
const MOMENT: Duration = Duration::from_secs(5);

/// Refuses a run in which a proxy let the connection pass, which would be measured as if there
/// were none, or one was split that should not be.
///
/// # Errors
/// In that case.
pub(crate) fn check_split(
    legs: &[LegRecord],
    variant: Variant,
    service: ServiceHost,
) -> Result<()> {
    let on_mec = legs.iter().any(|leg| leg.host == "mec");
    let expected = variant != Variant::None || service == ServiceHost::Mec;
    let was = if on_mec { "ended" } else { "did not end" };
    ensure!(on_mec == expected, "the UE's connection {was} at the MEC, unlike the variant says");
    Ok(())
}

fn hosts(topology: &Topology) -> [(&'static str, &Netns); 3] {
    [("ue", &topology.ue), ("mec", &topology.mec), ("server", &topology.server)]
}

/// A listener has no remote end, and a server that connects to itself to stop is none of the traffic.
fn is_traffic(socket: &TcpSocket) -> bool {
    let is_service = |end: &SocketAddr| end.port() == SERVICE_PORT;
    let leads_elsewhere = socket.remote.port() != 0 && socket.local.ip() != socket.remote.ip();
    leads_elsewhere && (is_service(&socket.local) || is_service(&socket.remote))
}

fn is_to_ue(socket: &TcpSocket) -> bool {
    socket.remote.ip() == IpAddr::V4(UE.v4)
}

/// `None` for sockets that are not the traffic's.
fn record(host: &str, socket: &TcpSocket, variant: Variant) -> Option<LegRecord> {
    if !is_traffic(socket) {
        return None;
    }
    let leg = match (variant, host) {
        (Variant::None, _) => "end-to-end",
        (_, "ue") => "client",
        (_, "server") => "server",
        _ if is_to_ue(socket) => "client",
        _ => "server",
    };
    let info = &socket.info;
    Some(LegRecord {
        host: host.to_owned(),
        leg: leg.to_owned(),
        congestion_control: socket.congestion_control.clone(),
        rtt_us: info.rtt,
        min_rtt_us: info.min_rtt,
        cwnd: info.snd_cwnd,
        retransmits: info.total_retrans,
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        delivery_rate_bps: info.delivery_rate as f64 * 8.0,
        dsack_dups: info.dsack_dups,
        reord_seen: info.reord_seen,
        busy: Some(BusyRecord {
            busy_us: info.busy_time,
            rwnd_limited_us: info.rwnd_limited,
            sndbuf_limited_us: info.sndbuf_limited,
        }),
    })
}
