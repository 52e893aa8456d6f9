//! Proof that what is steered to the relay arrives, and that the relay gets through to servers: a connection of the
//! relay's own through both legs.
//!
//! Redirected packets take the way of packets for this host, where its firewall, `rp_filter` or
//! routing may eat them; the server's leg is a connection of this host's, which its rules may forbid or translate. A relay
//! that steered without having seen that neither stops it would take its clients' network down.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_config::{Config, LegConfig, Marks};
use midspan_sockets::{self as sockets, ListenAddress};
use midspan_steer::Steering;
use midspan_sys::netlink::{Netlink, Route, RouteTcp};
use midspan_sys::netns::Netns;
use midspan_sys::sysctl;
use midspan_threads::Privileges;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use socket2::{Domain, Socket, Type};

use crate::error::InterceptionError;

/// One end of a link to a namespace of the proof's own, in which its client is, and of one for its server; as long as it
/// takes.
const LINKS: [&str; 2] = ["midspan-proof", "midspan-proof2"];
/// Addresses that no network routes: they are set apart for benchmarks (RFC 2544, RFC 5180).
const CLIENTS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 19, 77, 2)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 77, 0, 0, 0, 2)),
];
const GATEWAYS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 19, 77, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 77, 0, 0, 0, 1)),
];
const SERVER_GATEWAYS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 18, 77, 2)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 78, 0, 0, 0, 2)),
];
const SERVERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 18, 77, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 78, 0, 0, 0, 1)),
];
/// What never answers, whoever has it: discard (RFC 863).
const PORT: u16 = 9;

/// What the server and the client say.
const WORDS: [&[u8; 4]; 2] = [b"here", b"good"];

/// How long each step of an attempt may take, and all attempts. The links come up a moment after they were set up.
/// A machine that is busy may be late.
const STEP: Duration = Duration::from_millis(200);
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Whom the proof's connections come from.
pub fn clients() -> Vec<IpNet> {
    CLIENTS.map(IpNet::from).into()
}

/// Whether a connection is one of these.
pub fn is_probe(client: IpAddr, server: SocketAddr) -> bool {
    CLIENTS.contains(&client) && SERVERS.contains(&server.ip()) && server.port() == PORT
}

/// The proof's connections that workers have taken.
#[derive(Debug, Default)]
pub struct Probes(Mutex<Option<Sender<OwnedFd>>>);

impl Probes {
    /// Gives one to the proof that waits for it. If none does it is reset.
    pub fn give(&self, socket: OwnedFd) {
        if let Some(waits) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = waits.send(socket);
        }
    }

    fn take(&self) -> Receiver<OwnedFd> {
        let (give, take) = channel();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(give);
        take
    }
}

/// What a proof takes: namespaces for its client and its server.
#[derive(Debug)]
pub(crate) struct Proof {
    client: Far,
    server: Far,
    probes: Arc<Probes>,
}

impl Proof {
    /// Makes the namespaces, which takes CAP_SYS_ADMIN. To prove does not.
    pub(crate) fn prepare(probes: Arc<Probes>) -> Result<Proof, InterceptionError> {
        let far = || Far::new().map_err(InterceptionError::NoProof);
        Ok(Proof { client: far()?, server: far()?, probes })
    }

    /// Has its threads keep these privileges only.
    pub(crate) fn lower(&self, privileges: Privileges) -> Result<(), InterceptionError> {
        for far in [&self.client, &self.server] {
            far.run(move || privileges.lower()).map_err(InterceptionError::NoProof)?;
        }
        Ok(())
    }

    /// Connects through the steering program to the relay, which must be running and [give](Probes::give) what
    /// [`is_probe`], and from there on to a server; for each IP version that the relay's clients have.
    pub(crate) fn run(
        &self,
        steering: &mut Steering,
        config: &Config,
        patience: Duration,
    ) -> Result<(), InterceptionError> {
        let (clients, failed) = (&config.clients, InterceptionError::NoProof);
        let [to_client, to_server] = LINKS;
        let near = Veth::new(to_client, &self.client, GATEWAYS, CLIENTS).map_err(failed)?;
        let wide = Veth::new(to_server, &self.server, SERVER_GATEWAYS, SERVERS).map_err(failed)?;
        steering.attach(near.index, to_client, false)?;
        steering.attach(wide.index, to_server, false)?;
        for version in [0, 1] {
            if !clients.iter().any(|prefix| prefix.addr().is_ipv4() == CLIENTS[version].is_ipv4()) {
                continue;
            }
            let server = SocketAddr::new(SERVERS[version], PORT);
            steering.set_probe(CLIENTS[version], true)?;
            let proven = self.connects(server, &config.server_leg, patience);
            steering.set_probe(CLIENTS[version], false)?;
            proven.map_err(|failure| {
                let name = if version == 0 { "IPv4" } else { "IPv6" };
                InterceptionError::Unproven(failure.words(name, Marks::of(config)))
            })?;
        }
        Ok(())
    }

    /// Connects, until that was seen to go through.
    fn connects(
        &self,
        server: SocketAddr,
        leg: &LegConfig,
        patience: Duration,
    ) -> Result<(), Failure> {
        let (taken, deadline) = (self.probes.take(), Instant::now() + patience);
        loop {
            match self.attempt(server, leg, &taken) {
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                result => return result,
            }
        }
    }

    fn attempt(
        &self,
        server: SocketAddr,
        leg: &LegConfig,
        taken: &Receiver<OwnedFd>,
    ) -> Result<(), Failure> {
        let by_client = |error| Failure { leg: "client", error };
        let by_server = |error| Failure { leg: "server", error };
        // One of its own: connections of attempts that were given up may still wait at the last one's.
        let listen = move || TcpListener::bind(server);
        let listener = self.server.run(listen).and_then(|it| it).map_err(by_server)?;
        let open = move || Socket::new(Domain::for_address(server), Type::STREAM, None);
        let near = self.client.run(open).and_then(|it| it).map_err(by_client)?;
        near.set_linger(Some(Duration::ZERO)).map_err(by_client)?;
        near.connect_timeout(&server.into(), STEP).map_err(by_client)?;
        let near = stream(near).map_err(by_client)?;
        let client = near.local_addr().map_err(by_client)?;
        let client_leg = await_leg(taken, client).map_err(by_client)?;
        // As a worker does.
        let connect = || -> io::Result<TcpStream> {
            let socket = sockets::open(server, leg, true, 0)?;
            sockets::bind_as(&socket, client, ListenAddress::Private)?;
            sockets::begin_connect(&socket, server)?;
            await_event(&socket, PollFlags::OUT)?;
            sockopt::socket_error(&socket)??;
            sockets::end_handshake(&socket)?;
            stream(socket)
        };
        let server_leg = connect().map_err(by_server)?;
        let accept = || -> io::Result<TcpStream> {
            await_event(&listener, PollFlags::IN)?;
            stream(listener.accept()?.0.into())
        };
        let far = accept().map_err(by_server)?;
        let [down, up] = WORDS;
        say(&far, &server_leg, down).map_err(by_server)?;
        say(&client_leg, &near, down).map_err(by_client)?;
        say(&near, &client_leg, up).map_err(by_client)?;
        say(&server_leg, &far, up).map_err(by_server)
    }
}

/// Where a proof came to an end.
#[derive(Debug)]
struct Failure {
    leg: &'static str,
    error: io::Error,
}

impl Failure {
    fn words(&self, version: &str, marks: Marks) -> String {
        let Marks { client, server, .. } = marks;
        let error = &self.error;
        let (what, where_to_look): (&str, fmt::Arguments<'_>) = match self.leg {
            "client" => (
                "what is steered to the relay",
                format_args!(
                    "a firewall rule in the INPUT path (let in what has the mark {client:#x}), rp_filter, or a \
                     routing rule before that of the relay's mark"
                ),
            ),
            _ => (
                "the relay's connection to a server",
                format_args!(
                    "a firewall rule in the OUTPUT path (this host connects to servers in its clients' names), one in \
                     the INPUT path (let in what has the mark {server:#x}), rp_filter, or NAT"
                ),
            ),
        };
        match self.leg {
            "client" => {
                format!("{what} over {version} does not arrive ({error}): look for {where_to_look}")
            }
            _ => format!(
                "{what} over {version} does not come about ({error}): look for {where_to_look}"
            ),
        }
    }
}

/// The client's leg of the connection from here.
fn await_leg(taken: &Receiver<OwnedFd>, client: SocketAddr) -> io::Result<TcpStream> {
    loop {
        let leg = taken.recv_timeout(STEP).map_err(|_| io::Error::from(ErrorKind::TimedOut))?;
        let leg = stream(leg.into())?;
        // Another may be of an attempt that was given up.
        if leg.peer_addr().is_ok_and(|peer| peer == client) {
            return Ok(leg);
        }
    }
}

/// A word crosses.
fn say(mut from: &TcpStream, mut to: &TcpStream, word: &[u8; 4]) -> io::Result<()> {
    from.write_all(word)?;
    let mut heard = [0; 4];
    to.read_exact(&mut heard).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    })?;
    match &heard == word {
        true => Ok(()),
        false => Err(io::Error::other("somebody else answered")),
    }
}

fn stream(socket: Socket) -> io::Result<TcpStream> {
    socket.set_nonblocking(false)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(STEP))?;
    Ok(stream)
}

fn await_event(socket: impl AsFd, event: PollFlags) -> io::Result<()> {
    let timeout = Timespec::try_from(STEP).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&socket, event)], Some(&timeout))? {
        0 => Err(ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// A network namespace, and a thread in it: who has given up CAP_SYS_ADMIN cannot enter it any more.
#[derive(Debug)]
struct Far {
    netns: Netns,
    work: Sender<Box<dyn FnOnce() + Send>>,
}

impl Far {
    fn new() -> io::Result<Far> {
        let netns = Netns::create()?;
        let (work, all) = channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = channel();
        let here = netns.clone();
        // It ends with its work.
        thread::Builder::new().name("proof".into()).spawn(move || {
            let entered = here.enter();
            let is_here = entered.is_ok();
            let _ = tell.send(entered);
            if is_here {
                all.into_iter().for_each(|work| work());
            }
        })?;
        told.recv().map_err(io::Error::other)??;
        Ok(Far { netns, work })
    }

    /// Runs this in the namespace.
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (tell, told) = channel();
        let work = move || drop(tell.send(work()));
        self.work.send(Box::new(work)).map_err(|_| io::Error::other("its thread has ended"))?;
        told.recv().map_err(io::Error::other)
    }
}

/// Whether this namespace has IPv6 at all, and not switched off.
fn has_ipv6() -> bool {
    let off = |scope| sysctl::get(&format!("net.ipv6.conf.{scope}.disable_ipv6"));
    [off("all"), off("default")].iter().all(|off| off.as_deref().is_ok_and(|off| off == "0"))
}

/// A link to a namespace. It goes with this.
struct Veth {
    index: u32,
}

impl Veth {
    /// With these addresses at this end and the other.
    fn new(name: &str, far: &Far, own: [IpAddr; 2], theirs: [IpAddr; 2]) -> io::Result<Veth> {
        let mut netlink = Netlink::open()?;
        netlink.add_veth(name, "proof", far.netns.as_fd())?;
        let link = Veth { index: netlink.index(name)? };
        netlink.set_up(link.index)?;
        for (own, other) in own.into_iter().zip(theirs) {
            // Where IPv6 is switched off there are no clients of it either.
            if own.is_ipv4() || has_ipv6() {
                let prefix = whole(own);
                netlink.add_address(link.index, own, prefix)?;
                netlink.add_route(&route(other, prefix, link.index, None))?;
            }
        }
        far.run(move || set_up_far(own, theirs))??;
        Ok(link)
    }
}

/// The end of a link in a namespace of the proof's, whose gateway is the other one.
fn set_up_far(gateways: [IpAddr; 2], own: [IpAddr; 2]) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let index = netlink.index("proof")?;
    netlink.set_up(index)?;
    for (gateway, own) in gateways.into_iter().zip(own) {
        if gateway.is_ipv6() && !has_ipv6() {
            continue;
        }
        let any = match gateway {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        netlink.add_address(index, own, whole(own))?;
        netlink.add_route(&route(gateway, whole(gateway), index, None))?;
        netlink.add_route(&route(any, 0, index, Some(gateway)))?;
    }
    Ok(())
}

/// The length of the prefix that has this address alone.
const fn whole(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // Its namespace would take it along, a moment later.
        if let Err(error) = Netlink::open().and_then(|mut netlink| netlink.remove(self.index)) {
            tracing::warn!(%error, "the proof's link could not be removed");
        }
    }
}

fn route(destination: IpAddr, prefix: u8, index: u32, gateway: Option<IpAddr>) -> Route<'static> {
    Route { destination, prefix, index, gateway, tcp: RouteTcp::default() }
}
