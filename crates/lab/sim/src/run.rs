//! One cell of a sweep, from nothing to its measurement.

use midspan_path::{Counters, Path, Times, Traces};
use midspan_scenario::record::{
    BulkRecord, CutRecord, CutWatch, HeldWatch, LegRecord, Measurement, TransferRecord, Variant,
    WorkloadRecord,
};
use midspan_scenario::{
    Bulk, CellSpec, Direction, ReadAheadKind, ServiceHost, Split, Transfer, Workload,
};
use midspan_split::{PerLeg, ReadAhead};
use midspan_units::{Span, Time};

use crate::application::{self, Application, Receive, Send};
use crate::assist::NetAssist;
use crate::error::Error;
use crate::externals::{Controls, Externals};
use crate::host::{ENB, Host, MEC, SERVER, UE};
use crate::log::{Log, Logged};
use crate::measure;
use crate::mobile::Mobile;
use crate::net::Net;
use crate::series::Series;
use crate::setup;
use crate::socket::{Setup, Socket, SocketId, User};
use crate::splitter::Splitter;
use crate::tap::{Tap, Tapped};
use crate::world::World;

/// What a run took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Virtual time that passed.
    pub simulated: Span,
    /// Events handled: packets that left a link, and timers.
    pub events: u64,
}

/// Runs `variant` in the cell that `spec` describes; `seed` decides all randomness.
///
/// # Errors
/// When the cell cannot be simulated, a connection does not open within two minutes or breaks, or
/// the workload's own limit passes.
pub fn run(
    spec: &CellSpec,
    variant: Variant,
    traces: &Traces,
    seed: u64,
) -> Result<(Measurement, Work), Error> {
    run_with(spec, variant, traces, &Externals::default(), seed)
}

/// The same with what the scenario has from outside; a mobile network takes no elements.
///
/// # Errors
/// As [`run`] has them.
pub fn run_with(
    spec: &CellSpec,
    variant: Variant,
    traces: &Traces,
    externals: &Externals,
    seed: u64,
) -> Result<(Measurement, Work), Error> {
    run_observed(spec, variant, traces, externals, seed, Observers::default())
}

/// Who is told of what happens in a run, which changes nothing.
#[derive(Default)]
pub struct Observers {
    /// Of every packet.
    pub tap: Option<Tap>,
    /// Of what senders do.
    pub log: Option<Log>,
}

/// The same, while others are told of it.
///
/// # Errors
/// As [`run`] has them.
pub fn run_observed(
    spec: &CellSpec,
    variant: Variant,
    traces: &Traces,
    externals: &Externals,
    seed: u64,
    observers: Observers,
) -> Result<(Measurement, Work), Error> {
    if variant == Variant::Haproxy {
        return Err(Error::Variant(variant));
    }
    let links = [spec.path.access.clone(), spec.path.wide.clone()];
    let flows = match &spec.workload {
        Workload::Bulk(bulk) => bulk.flows,
        Workload::Transfer(_) | Workload::Page(_) | Workload::Video(_) => 1,
    };
    let assist = NetAssist::new(spec, traces, flows)?;
    let net = match &spec.cells {
        None => Net::Row(Path::with(&links, traces, &externals.elements, seed)?),
        Some(cells) => Net::Cells(Box::new(Mobile::new(cells, &spec.path, traces, seed)?)),
    };
    let mut run = Run {
        spec,
        variant,
        controls: Controls::new(externals, seed),
        world: World::new(
            net,
            observers.tap.map(Tapped::new),
            observers.log.map(|log| Logged::new(log, variant)),
        ),
        assist,
        held: None,
        series: None,
        cross: Vec::new(),
    };
    let measurement = match (&spec.cells, &spec.workload) {
        (Some(cells), _) => run.users(cells, seed)?,
        (None, Workload::Bulk(bulk)) => run.bulk(bulk)?,
        (None, Workload::Transfer(transfer)) => run.transfers(transfer)?,
        (None, Workload::Page(page)) => run.pages(page)?,
        (None, Workload::Video(video)) => run.videos(video)?,
    };
    let work = Work { simulated: run.world.now.since(Time::ZERO), events: run.world.events };
    Ok((measurement, work))
}

pub(crate) struct Run<'a> {
    pub(crate) spec: &'a CellSpec,
    pub(crate) variant: Variant,
    controls: Controls<'a>,
    pub(crate) world: World,
    assist: Option<NetAssist>,
    /// Once something is measured that goes through a relay, and when it looks again.
    held: Option<(HeldWatch, Time)>,
    /// While a workload runs that asks for it.
    series: Option<Series>,
    /// The sockets of cross traffic.
    cross: Vec<SocketId>,
}

/// A connection of the application's: the sockets of its two ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) client: SocketId,
    /// Through a relay it is there once that has connected.
    server: Option<SocketId>,
    flow: Option<usize>,
}

/// A connection that has not opened by then never will.
const PATIENCE: Span = Span::from_secs(120);

impl Run<'_> {
    /// Lets everything happen up to and including `until`, or until `done`. Whether it is done.
    pub(crate) fn advance(&mut self, until: Time, mut done: impl FnMut(&World) -> bool) -> bool {
        let upload = self.spec.workload.direction() == Direction::Upload;
        loop {
            let told = self.assist.as_mut().map_or(Time::MAX, NetAssist::next);
            let looked = self.held.as_ref().map_or(Time::MAX, |&(_, at)| at);
            let seen = self.series.as_ref().map_or(Time::MAX, Series::next);
            let next = told.min(looked).min(seen);
            let at = next.max(self.world.now).min(until);
            if self.world.run(at, &mut done) {
                return true;
            }
            if next > until {
                return false;
            }
            if told <= at
                && let Some(assist) = &mut self.assist
                && let Some(feedback) = assist.step(at)
            {
                self.world.tell(assist.host, feedback);
            }
            if looked <= at
                && let Some((watch, next)) = &mut self.held
            {
                let (taken, sent) = measure::passed_on(&self.world, upload);
                watch.look(at.since(Time::ZERO), taken, sent);
                *next = at + HeldWatch::LOOK;
            }
            if seen <= at
                && let Some(series) = &mut self.series
            {
                series.look(&self.world, self.variant);
            }
        }
    }

    /// Opens a connection between two applications, through the relays if there are any. The sending application's
    /// socket has the `control`, if it is not to have its host's.
    pub(crate) fn connect(
        &mut self,
        number: u32,
        client: Application,
        server: Application,
        control: Option<&str>,
    ) -> Result<Connection, Error> {
        let hosts = &self.spec.hosts;
        let mut ue = setup::of_host(UE, &hosts.ue, &self.controls)?;
        let (place, host) = match self.spec.service.at {
            ServiceHost::Server => (SERVER, &hosts.server),
            ServiceHost::Mec => (MEC, &hosts.mec),
        };
        let mut service = setup::of_host(place, host, &self.controls)?;
        if matches!(client, Application::Client(_)) {
            // As browsers and web servers do.
            ue.config.tcp_nodelay = true;
            service.config.tcp_nodelay = true;
        }
        if let Some(name) = control {
            let sends = matches!(client, Application::Source(_));
            let sender = if sends { &mut ue } else { &mut service };
            setup::set_control(sender, self.controls.named(name)?);
        }
        let (client, server) = (User::Application(client), User::Application(server));
        let relay = &self.spec.relay;
        let buffer = relay.shared.unwrap_or(relay.buffer()).as_bytes();
        let mut to = (service, server);
        // From the server's side on.
        let (mut first, mut last) = (None, None);
        for host in self.relays(number, place).iter().rev() {
            let (mec, controls) = (&hosts.mec, &self.controls);
            let mut client_leg = setup::of_client_leg(*host, relay, mec, controls)?;
            let mut server_leg = setup::of_server_leg(*host, relay, mec, controls)?;
            for leg in [&mut client_leg, &mut server_leg] {
                setup::share(relay.shared, leg);
            }
            let mss = client_leg.config.mss;
            let ahead = |draining: &Setup| match relay.read_ahead.unwrap_or_default() {
                ReadAheadKind::Fixed => ReadAhead::fixed(buffer),
                ReadAheadKind::Auto => {
                    let unsent = draining.config.tcp_notsent_lowat;
                    ReadAhead::measured(buffer, unsent.map(u64::from))
                }
            };
            let ahead = PerLeg { client: ahead(&server_leg), server: ahead(&client_leg) };
            let flow = self.world.split(Splitter::new(
                ahead,
                server_leg,
                to,
                relay.first_windows(&hosts.mec),
                relay.server_leg.initial_window.is_none(),
            ));
            if relay.shared.is_some() {
                self.world.flows[flow].share(buffer, mss);
            }
            to = (client_leg, User::Relay(flow));
            (first, last) = (Some(flow), last.or(Some(flow)));
        }
        let (client, peer) = self.world.connect(number, (ue, client), to);
        match first {
            Some(first) => self.world.flows[first].set_client_leg(peer),
            None => return Ok(Connection { client, server: Some(peer), flow: None }),
        }
        Ok(Connection { client, server: None, flow: last })
    }

    /// Where relays split a connection of user `number` to a service at `place`, from the UE's side on.
    fn relays(&self, number: u32, place: Host) -> &'static [Host] {
        let cells = self.spec.cells.as_ref();
        let passes = cells.is_some_and(|cells| !cells.splits(number));
        if self.variant == Variant::None || place == MEC || passes {
            return &[];
        }
        match cells.map(|cells| cells.split) {
            None | Some(Split::Gateway) => &[MEC],
            Some(Split::Enb) => &[ENB],
            Some(Split::Both) => &[ENB, MEC],
        }
    }

    /// A connection over which the server's host sends to the MEC's as fast as it can; it shares the wide
    /// area with the workload and is in none of its numbers.
    pub(crate) fn connect_cross(
        &mut self,
        control: Option<&str>,
        number: usize,
    ) -> Result<(), Error> {
        let hosts = &self.spec.hosts;
        let mut sender = setup::of_host(SERVER, &hosts.server, &self.controls)?;
        if let Some(name) = control {
            sender.control = self.controls.named(name)?;
        }
        let receiver = setup::of_host(MEC, &hosts.mec, &self.controls)?;
        let ends = application::flow(false, 0);
        let (receiver, sender) =
            ((receiver, User::Application(ends.0)), (sender, User::Application(ends.1)));
        let logged = self.world.logged.take();
        let (client, server) = self.world.connect(0, receiver, sender);
        self.world.logged = logged;
        self.cross.extend([client, server]);
        self.open(Connection { client, server: Some(server), flow: None }, number)
    }

    /// Drops all connections but cross traffic's.
    pub(crate) fn forget_connections(&mut self) {
        for id in 0..self.world.sockets.len() {
            if !self.cross.contains(&id) {
                self.world.remove(id);
            }
        }
        self.world.forget_flows();
    }

    /// Every leg that stands, cross traffic's left out.
    pub(crate) fn legs(&self) -> Vec<LegRecord> {
        measure::legs(&self.world, self.variant, |id| !self.cross.contains(&id))
    }

    /// The socket of the server's application, once there is one.
    pub(crate) fn server(&self, connection: Connection) -> Option<SocketId> {
        connection.server.or_else(|| {
            let leg = self.world.flows[connection.flow?].server_leg()?;
            self.world.sockets[leg].as_ref().map(|socket| socket.peer)
        })
    }

    pub(crate) fn socket(&self, id: SocketId) -> Option<&Socket> {
        self.world.sockets[id].as_ref()
    }

    fn bulk(&mut self, bulk: &Bulk) -> Result<Measurement, Error> {
        let upload = bulk.direction == Direction::Upload;
        let mut flows = Vec::with_capacity(bulk.flows as usize);
        // Of many users what one relay holds says little.
        let splits = self.spec.cells.is_none() && self.spec.service.at == ServiceHost::Server;
        if splits && self.variant != Variant::None {
            self.held = Some((HeldWatch::default(), self.world.now));
        }
        // Of many users no leg is told of alone.
        let every = bulk.series.filter(|_| self.spec.cells.is_none());
        self.series = every.map(|every| Series::new(self.world.now, every));
        for number in 0..bulk.flows as usize {
            if number > 0 {
                self.advance(self.world.now + bulk.stagger, |_| false);
            }
            let (client, server) = application::flow(upload, bulk.greeting.as_bytes());
            let connection = self.connect(0, client, server, bulk.control_of(number))?;
            self.open(connection, number)?;
            flows.push(connection);
        }
        let begin = self.world.now;
        self.advance(begin + bulk.warmup, |_| false);
        let (before, links_before) = (self.look(&flows, upload), self.world.counters());
        self.world.restart_delays();
        if let Some((watch, _)) = &mut self.held {
            watch.restart();
        }
        let cuts = self.watch_cuts(&flows, upload, begin + bulk.time);
        self.advance(begin + bulk.time, |_| false);
        let after = self.look(&flows, upload);
        let seen = BulkRecord {
            held: self.held.take().and_then(|(watch, _)| watch.record()),
            cuts,
            series: self.series.take().map(Series::record),
            ..BulkRecord::default()
        };
        Ok(Measurement {
            legs: self.legs(),
            links: measure::links(&links_before, &self.world, bulk.percentiles),
            feedback: self.assist.as_ref().map(NetAssist::record),
            ..Look::measurement(&before, &after, bulk.time.saturating_sub(bulk.warmup), seen)
        })
    }

    /// What becomes of the flows around the cuts of feedback until `until`. Ends with the last.
    fn watch_cuts(&mut self, flows: &[Connection], upload: bool, until: Time) -> Vec<CutRecord> {
        let Some((assist, cuts)) = self.spec.cuts() else { return Vec::new() };
        let (period, age) = (assist.period, |time: Time| time.since(Time::ZERO));
        let mut records = Vec::new();
        for cut in cuts.between(age(self.world.now), age(until), period) {
            let earlier = self.access_delays(cut.before);
            let before = self.access_delays(cut.start).since(&earlier);
            let mut watch = CutWatch::start(cut.start, self.received(flows, upload));
            let mut at = cut.start;
            let mut earlier = Times::new();
            while at < cut.end {
                let next = (at + CutWatch::LOOK).min(cut.end);
                if (at..next).contains(&cut.late) {
                    earlier = self.access_delays(cut.late);
                }
                at = next;
                self.advance(Time::ZERO + at, |_| false);
                watch.look(at, self.received(flows, upload));
            }
            let during = self.access_delays(cut.end).since(&earlier);
            let earlier = self.access_delays(cut.after);
            let after = self.access_delays(cut.last).since(&earlier);
            records.push(watch.record(&cut, &before, &during, &after));
        }
        records
    }

    /// The delays of what has gone to the UE, so long after the beginning.
    fn access_delays(&mut self, at: Span) -> Times {
        self.advance(Time::ZERO + at, |_| false);
        let stretch = self.world.stretches().into_iter().next();
        stretch.map(|access| access.delays.1).unwrap_or_default()
    }

    fn received(&self, flows: &[Connection], upload: bool) -> u64 {
        self.look(flows, upload).iter().map(|flow| flow.read).sum()
    }

    /// Waits until both applications are connected.
    fn open(&mut self, connection: Connection, number: usize) -> Result<(), Error> {
        let deadline = self.world.now + PATIENCE;
        loop {
            let opened = self
                .server(connection)
                .and_then(|server| self.socket(server))
                .is_some_and(|socket| {
                    socket
                        .endpoint()
                        .is_some_and(|endpoint| endpoint.stage() == midspan_tcp::Stage::Established)
                });
            if opened {
                return Ok(());
            }
            // Nothing else happens, so looking after each event costs little.
            let events = self.world.events;
            if !self.advance(deadline, |world| world.events > events) {
                let why = "it did not open within two minutes";
                return Err(Error::Connection { what: "flow", number, why });
            }
        }
    }

    pub(crate) fn look(&self, flows: &[Connection], upload: bool) -> Vec<Look> {
        flows
            .iter()
            .map(|connection| {
                let client = self.socket(connection.client);
                let server = self.server(*connection).and_then(|id| self.socket(id));
                let (sender, receiver) = if upload { (client, server) } else { (server, client) };
                let sender = sender.and_then(Socket::endpoint);
                let read = match receiver.map(|socket| &socket.user) {
                    Some(User::Application(Application::Sink(sink))) => sink.read,
                    _ => 0,
                };
                Look {
                    read,
                    acknowledged: sender.map_or(0, midspan_tcp::Endpoint::acknowledged),
                    retransmits: sender.map_or(0, |sender| sender.info().retransmissions),
                }
            })
            .collect()
    }

    fn transfers(&mut self, transfer: &Transfer) -> Result<Measurement, Error> {
        let upload = transfer.direction == Direction::Upload;
        let deadline = self.world.now + transfer.limit;
        let before = self.world.counters();
        let (mut records, mut legs) = (Vec::new(), Vec::<LegRecord>::new());
        for number in 0..transfer.count as usize {
            let record = self.transfer(number, transfer.size.as_bytes(), upload, deadline)?;
            records.push(record);
            legs.extend(self.legs());
            self.forget_connections();
        }
        Ok(self.of_workload(WorkloadRecord::Transfers(records), legs, upload, &before))
    }

    /// What transfers, pages or videos come to: their records, all legs that there were, who sent, and what the
    /// links had counted before.
    pub(crate) fn of_workload(
        &self,
        workload: WorkloadRecord,
        legs: Vec<LegRecord>,
        upload: bool,
        before: &[(Counters, Counters)],
    ) -> Measurement {
        let host = match (upload, self.spec.service.at) {
            (true, _) => "ue",
            (false, ServiceHost::Server) => "server",
            (false, ServiceHost::Mec) => "mec",
        };
        let of_sender = legs.iter().filter(|leg| leg.host == host);
        Measurement {
            measured_s: workload.transfers().iter().map(|transfer| transfer.closed_s).sum(),
            sender_retransmits: of_sender.map(|leg| u64::from(leg.retransmits)).sum(),
            workload,
            legs,
            links: measure::links(before, &self.world, false),
            feedback: self.assist.as_ref().map(NetAssist::record),
        }
    }

    fn transfer(
        &mut self,
        number: usize,
        bytes: u64,
        upload: bool,
        deadline: Time,
    ) -> Result<TransferRecord, Error> {
        let fault = |why| Error::Connection { what: "transfer", number, why };
        let begin = self.world.now;
        let (send, receive) =
            (Application::Send(Send::new(bytes)), Application::Receive(Receive::default()));
        let (client, server) = if upload { (send, receive) } else { (receive, send) };
        let connection = self.connect(0, client, server, None)?;
        loop {
            let times = |id: Option<SocketId>| match &self.socket(id?)?.user {
                User::Application(application) => application.times(),
                User::Relay(_) => None,
            };
            let ends = (times(Some(connection.client)), times(self.server(connection)));
            if [ends.0, ends.1].into_iter().flatten().any(|times| times.failed.is_some()) {
                return Err(fault("its connection broke"));
            }
            if let (Some(client), Some(server)) = ends
                && let (Some(connected), Some(closed)) = (client.connected, client.closed)
                && server.closed.is_some()
            {
                let (sender, receiver) = if upload { (client, server) } else { (server, client) };
                let since = |at: Option<Time>| at.map_or(0.0, |at| at.since(begin).as_secs_f64());
                return Ok(TransferRecord {
                    bytes,
                    connected_s: since(Some(connected)),
                    acknowledged_s: since(sender.last_byte),
                    closed_s: since(Some(closed)),
                    received_s: since(receiver.last_byte),
                });
            }
            let events = self.world.events;
            if !self.advance(deadline, |world| world.events > events) {
                return Err(fault("the workload's limit has passed"));
            }
        }
    }
}

/// One look at a flow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Look {
    read: u64,
    acknowledged: u64,
    retransmits: u64,
}

impl Look {
    /// What flows came to from one look at them to the next, so much later; `seen` has what was watched in between.
    pub(crate) fn measurement(
        before: &[Look],
        after: &[Look],
        time: Span,
        seen: BulkRecord,
    ) -> Measurement {
        let seconds = time.as_secs_f64();
        let bps = |bytes: u64| bytes as f64 * 8.0 / seconds;
        let pairs = || after.iter().zip(before);
        let flows_bps: Vec<f64> = pairs().map(|(a, b)| bps(a.read - b.read)).collect();
        Measurement {
            measured_s: seconds,
            sender_retransmits: pairs().map(|(a, b)| a.retransmits - b.retransmits).sum(),
            workload: WorkloadRecord::Bulk(BulkRecord {
                goodput_bps: flows_bps.iter().sum(),
                acknowledged_bps: bps(pairs().map(|(a, b)| a.acknowledged - b.acknowledged).sum()),
                flows_bps,
                ..seen
            }),
            legs: Vec::new(),
            links: Vec::new(),
            feedback: None,
        }
    }
}
