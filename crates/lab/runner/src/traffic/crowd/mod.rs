//! The users of a mobile network and their servers, all on one thread that never blocks: their applications decide, as
//! simulated ones do, and kernels carry what they say.

mod agenda;
mod connection;
mod http;

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use midspan_apps::{BEGINNINGS, Crowd, Event, Order, Trouble};
use midspan_scenario::record::{BulkRecord, TransferRecord, WorkloadRecord};
use midspan_scenario::{Bulk, Cells, Direction, Workload};
use midspan_sys::netns::Netns;
use midspan_sys::socket;
use midspan_units::{Span, Time};
use rustix::event::{Timespec, epoll};
use socket2::{Domain, Socket, Type};

use self::agenda::Agenda;
use self::connection::{Client, Connection, Role, Server};
use super::{SERVICE_PORT, listen_on};
use crate::topology::{server_address, ue_address};

/// What users run, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrowdPlan<'a> {
    /// What those run who are measured.
    pub(crate) workload: &'a Workload,
    /// The users.
    pub(crate) cells: &'a Cells,
    /// Decides when each begins.
    pub(crate) seed: u64,
    /// Where their applications are.
    pub(crate) ue: &'a Netns,
    /// Where the servers are.
    pub(crate) server: &'a Netns,
}

/// What it came to.
#[derive(Debug)]
pub(crate) struct CrowdResult {
    pub(crate) measured_s: f64,
    /// Of the senders of those who are measured; where their workload ends, of all senders.
    pub(crate) sender_retransmits: u64,
    pub(crate) workload: WorkloadRecord,
}

/// A connection: whose it is, and the address of the user's end.
pub(crate) type Standing = (usize, SocketAddr);

impl CrowdPlan<'_> {
    /// Runs them. `warm` is called at the end of the warm-up, if there is one, `inspect` with the connections that stand
    /// once there are some and again at the end of the time, and `done` then.
    ///
    /// # Errors
    /// When a connection breaks that counts, or a user is not through in time.
    pub(crate) fn run(
        &self,
        warm: impl FnOnce() + Send,
        inspect: impl Fn(&[Standing]) -> Result<()> + Sync,
        done: impl FnOnce() + Send,
    ) -> Result<CrowdResult> {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVICE_PORT));
        let listener = self.server.run(|| listen_on(any))?.context("servers cannot listen")?;
        listener.set_nonblocking(true)?;
        // Users' sockets are made on a thread in their namespace.
        self.ue.run(|| {
            let mut running = Running::new(*self, listener)?;
            let result = running.run_workload(warm, &inspect)?;
            inspect(&running.standing())?;
            done();
            Ok(result)
        })?
    }
}

/// What epoll calls the listener; connections are counted from 1.
const LISTENER: u64 = 0;

/// Events taken at a time.
const EVENTS: usize = 64;

/// What one read takes at most.
const READ: usize = 256 * 1024;

struct Running<'a> {
    plan: CrowdPlan<'a>,
    crowd: Crowd<'a>,
    listener: TcpListener,
    epoll: OwnedFd,
    begin: Instant,
    agenda: Agenda,
    /// By what epoll calls them.
    connections: HashMap<u64, Connection>,
    /// How many there have been.
    opened: u64,
    /// Each user's ends, in the order in which they were opened.
    users: Vec<Vec<u64>>,
    /// Users' ends and servers' ends, by the users' addresses.
    clients: HashMap<SocketAddr, u64>,
    servers: HashMap<SocketAddr, u64>,
    /// What servers' ends that are gone have sent again.
    retransmits: u64,
    buffer: Vec<u8>,
}

impl<'a> Running<'a> {
    fn new(plan: CrowdPlan<'a>, listener: TcpListener) -> Result<Running<'a>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let name = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, name, epoll::EventFlags::IN)?;
        let crowd = Crowd::new(plan.workload, plan.cells);
        let mut agenda = Agenda::default();
        for (number, begin) in crowd.beginnings(plan.seed).enumerate() {
            agenda.set(number, Some(begin));
        }
        Ok(Running {
            plan,
            crowd,
            listener,
            epoll,
            begin: Instant::now(),
            agenda,
            connections: HashMap::new(),
            opened: LISTENER,
            users: vec![Vec::new(); plan.cells.total() as usize],
            clients: HashMap::new(),
            servers: HashMap::new(),
            retransmits: 0,
            buffer: vec![0; READ],
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn run_workload(
        &mut self,
        warm: impl FnOnce(),
        inspect: &dyn Fn(&[Standing]) -> Result<()>,
    ) -> Result<CrowdResult> {
        self.run_until(Time::ZERO + BEGINNINGS)?;
        inspect(&self.standing())?;
        match self.plan.workload {
            Workload::Bulk(bulk) => self.run_bulk(bulk, warm),
            Workload::Page(page) => self.load(page.limit),
            Workload::Video(video) => self.load(video.limit),
            Workload::Transfer(_) => bail!("users of cells run `bulk`, `page` or `video`"),
        }
    }

    fn run_bulk(&mut self, bulk: &Bulk, warm: impl FnOnce()) -> Result<CrowdResult> {
        self.run_until(Time::ZERO + bulk.warmup.max(BEGINNINGS))?;
        warm();
        let (begin, before) = (self.now(), self.look(bulk)?);
        self.run_until(Time::ZERO + bulk.time)?;
        let (end, after) = (self.now(), self.look(bulk)?);
        let measured_s = end.since(begin).as_secs_f64();
        let bps = |bytes: u64| bytes as f64 * 8.0 / measured_s;
        let grown = |of: fn(&Look) -> u64| {
            after.iter().zip(&before).map(move |(after, before)| of(after) - of(before))
        };
        let flows_bps: Vec<f64> = grown(|look| look.read).map(bps).collect();
        Ok(CrowdResult {
            measured_s,
            sender_retransmits: grown(|look| look.retransmits).sum(),
            workload: WorkloadRecord::Bulk(BulkRecord {
                goodput_bps: flows_bps.iter().sum(),
                acknowledged_bps: bps(grown(|look| look.acknowledged).sum()),
                flows_bps,
                ..BulkRecord::default()
            }),
        })
    }

    fn load(&mut self, limit: Span) -> Result<CrowdResult> {
        self.run_until(Time::ZERO + limit)?;
        let workload = self.crowd.record(self.now()).map_err(of_user)?;
        let standing = self.servers.values().filter_map(|name| self.connections.get(name));
        let sent_again = standing.map(retransmits).sum::<io::Result<u64>>()?;
        let closed = workload.transfers().iter().map(|transfer: &TransferRecord| transfer.closed_s);
        Ok(CrowdResult {
            measured_s: closed.sum(),
            sender_retransmits: self.retransmits + sent_again,
            workload,
        })
    }

    /// Lets everything happen until `until`, or until all are through whose workload ends.
    fn run_until(&mut self, until: Time) -> Result<()> {
        while !self.crowd.is_through() {
            let now = self.now();
            while let Some(user) = self.agenda.due(now) {
                self.turn(user)?;
            }
            let now = self.now();
            if now >= until {
                break;
            }
            let next = self.agenda.first().map_or(until, |at| at.min(until));
            self.wait(next.since(now))?;
        }
        Ok(())
    }

    /// Waits for something to happen, for so long at most, and has it dealt with.
    fn wait(&mut self, time: Span) -> Result<()> {
        let timeout = Timespec {
            tv_sec: (time.as_nanos() / 1_000_000_000) as i64,
            tv_nsec: (time.as_nanos() % 1_000_000_000) as i64,
        };
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let ready: Vec<(u64, epoll::EventFlags)> =
            match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
                Ok((events, _)) => {
                    events.iter().map(|event| (event.data.u64(), event.flags)).collect()
                }
                Err(rustix::io::Errno::INTR) => Vec::new(),
                Err(error) => return Err(error.into()),
            };
        for (name, flags) in ready {
            match name {
                LISTENER => self.accept()?,
                _ => self.serve(name, flags)?,
            }
        }
        Ok(())
    }

    /// Lets a user do what it can, and sets when it goes on by itself.
    fn turn(&mut self, user: usize) -> Result<()> {
        let now = self.now();
        let Some(activity) = self.crowd.begin(user, now) else { return self.start_flows(user) };
        let request = activity.request();
        while let Some(order) = self.crowd.doing(user).and_then(|activity| activity.poll(now)) {
            match order {
                Order::Open => {
                    let role = Role::Client(Client::new(self.users[user].len()));
                    self.open(user, role, None)?;
                }
                Order::Ask { connection, answer, .. } => {
                    let name = self.users[user][connection];
                    if let Some(connection) = self.connections.get_mut(&name)
                        && let Role::Client(client) = &mut connection.role
                    {
                        client.ask(request, answer);
                        // One that has broken says so by itself.
                        let _ = connection.write();
                        self.watch(name)?;
                    }
                }
            }
        }
        let Some(activity) = self.crowd.doing(user) else { return Ok(()) };
        if !activity.is_done() && !activity.has_failed() {
            let next = activity.wakeup(now);
            self.agenda.set(user, next);
            return Ok(());
        }
        for name in std::mem::take(&mut self.users[user]) {
            self.forget(name);
        }
        let next = self.crowd.finish(user, now).map_err(of_user)?;
        self.agenda.set(user, Some(next));
        Ok(())
    }

    /// A user's flows that send for as long as it takes.
    fn start_flows(&mut self, user: usize) -> Result<()> {
        let Workload::Bulk(bulk) = self.crowd.workload(user) else { return Ok(()) };
        for flow in 0..bulk.flows as usize {
            let upload = bulk.direction == Direction::Upload;
            let role = if upload { Role::Source } else { Role::Sink(0) };
            self.open(user, role, bulk.control_of(flow).filter(|_| upload))?;
        }
        Ok(())
    }

    /// Opens a connection of a user's to its server.
    fn open(&mut self, user: usize, role: Role, control: Option<&str>) -> Result<()> {
        let own = ue_address(user as u32);
        let server = server_address(self.plan.cells.server_of(user as u32));
        let connect = || -> io::Result<TcpStream> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            socket.bind(&SocketAddr::from((own, 0)).into())?;
            // As browsers do.
            socket.set_tcp_nodelay(matches!(role, Role::Client(_)))?;
            if let Some(name) = control {
                socket.set_tcp_congestion(name.as_bytes())?;
            }
            match socket.connect(&SocketAddr::from((server, SERVICE_PORT)).into()) {
                Err(error) if !is_under_way(&error) => Err(error),
                _ => Ok(socket.into()),
            }
        };
        let stream = connect().with_context(|| format!("user {user}: cannot connect"))?;
        let address = stream.local_addr()?;
        let name = self.add(stream, user, address, role, false)?;
        self.clients.insert(address, name);
        self.users[user].push(name);
        Ok(())
    }

    /// Takes the connections in that have come to servers.
    fn accept(&mut self) -> Result<()> {
        loop {
            let (stream, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("servers cannot accept"),
            };
            // One whose user has gone meanwhile is closed.
            let Some(name) = self.clients.get(&address).copied() else { continue };
            let Some(user) = self.connections.get(&name).map(|client| client.user) else {
                continue;
            };
            stream.set_nonblocking(true)?;
            let role = match self.crowd.workload(user) {
                Workload::Bulk(bulk) if bulk.direction == Direction::Upload => Role::Sink(0),
                Workload::Bulk(bulk) => {
                    let flow = self.users[user].iter().position(|one| *one == name);
                    if let Some(control) = flow.and_then(|flow| bulk.control_of(flow)) {
                        socket2::SockRef::from(&stream).set_tcp_congestion(control.as_bytes())?;
                    }
                    Role::Source
                }
                _ => {
                    // As web servers do.
                    stream.set_nodelay(true)?;
                    Role::Server(Server::default())
                }
            };
            let name = self.add(stream, user, address, role, true)?;
            self.servers.insert(address, name);
        }
    }

    fn add(
        &mut self,
        stream: TcpStream,
        user: usize,
        address: SocketAddr,
        role: Role,
        is_open: bool,
    ) -> Result<u64> {
        self.opened += 1;
        let waits_for = epoll::EventFlags::empty();
        let connection = Connection { stream, user, address, is_open, role, waits_for };
        let name = self.opened;
        epoll::add(&self.epoll, &connection.stream, epoll::EventData::new_u64(name), waits_for)?;
        self.connections.insert(name, connection);
        self.watch(name)?;
        Ok(name)
    }

    /// Has epoll tell of what a connection waits for.
    fn watch(&mut self, name: u64) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&name) else { return Ok(()) };
        let wants = connection.wants();
        if wants != connection.waits_for {
            connection.waits_for = wants;
            let name = epoll::EventData::new_u64(name);
            epoll::modify(&self.epoll, connection.stream.as_fd(), name, wants)?;
        }
        Ok(())
    }

    /// Something has happened to a connection.
    fn serve(&mut self, name: u64, flags: epoll::EventFlags) -> Result<()> {
        // One of events taken together may have been the end of another's connection.
        let Some(connection) = self.connections.get_mut(&name) else { return Ok(()) };
        let turned = connection.turn(flags, &mut self.buffer);
        let (user, address) = (connection.user, connection.address);
        let of_client = match &connection.role {
            Role::Client(client) => Some(client.number),
            _ => None,
        };
        let event = match turned {
            Ok(event) => {
                self.watch(name)?;
                event
            }
            Err(error) => {
                let is_users = self.clients.get(&address) == Some(&name);
                if is_users && of_client.is_none() && self.crowd.is_running(user) {
                    bail!("user {user}: a connection broke: {error}");
                }
                self.forget(name);
                Event { failed: true, ..Event::default() }
            }
        };
        if let Some(number) = of_client
            && event != Event::default()
        {
            let now = self.now();
            if let Some(activity) = self.crowd.doing(user) {
                activity.take(now, number, event);
                self.turn(user)?;
            }
        }
        Ok(())
    }

    /// Closes one end of a connection.
    fn forget(&mut self, name: u64) {
        let Some(connection) = self.connections.remove(&name) else { return };
        if self.servers.get(&connection.address) == Some(&name) {
            self.servers.remove(&connection.address);
            self.retransmits += retransmits(&connection).unwrap_or_default();
        } else if self.clients.get(&connection.address) == Some(&name) {
            self.clients.remove(&connection.address);
        }
    }

    /// The connections that stand from end to end: what lies between has taken them, if it is to.
    fn standing(&self) -> Vec<Standing> {
        let clients = self.clients.values().filter_map(|name| self.connections.get(name));
        let through = clients.filter(|client| self.servers.contains_key(&client.address));
        through.map(|client| (client.user, client.address)).collect()
    }

    /// One look at the flows of those who are measured. One that has not come to its server yet has nothing.
    fn look(&self, bulk: &Bulk) -> io::Result<Vec<Look>> {
        let running = &self.users[..self.plan.cells.running() as usize];
        let look = |name: &u64| {
            let client = self.connections.get(name);
            let server = client.and_then(|client| self.servers.get(&client.address));
            let server = server.and_then(|name| self.connections.get(name));
            let (sender, receiver) = match bulk.direction {
                Direction::Upload => (client, server),
                Direction::Download => (server, client),
            };
            let info = sender.map(|sender| socket::tcp_info(&sender.stream)).transpose()?;
            Ok(Look {
                read: match receiver.map(|receiver| &receiver.role) {
                    Some(Role::Sink(read)) => *read,
                    _ => 0,
                },
                acknowledged: info.as_ref().map_or(0, |info| info.bytes_acked),
                retransmits: info.map_or(0, |info| info.total_retrans.into()),
            })
        };
        running.iter().flatten().map(look).collect()
    }
}

/// One look at a flow.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// Bytes that the receiver has read.
    read: u64,
    /// Bytes that the sender's peer has acknowledged.
    acknowledged: u64,
    retransmits: u64,
}

/// What an end has sent again.
fn retransmits(connection: &Connection) -> io::Result<u64> {
    Ok(socket::tcp_info(&connection.stream)?.total_retrans.into())
}

fn of_user(trouble: Trouble) -> anyhow::Error {
    anyhow!("user {}: {}", trouble.number, trouble.why)
}

/// Whether a connection is being made, as it is where nothing blocks.
fn is_under_way(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}
