//! Sockets of both legs, set up before anything can happen to them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use midspan_config::{Config, Dscp, LegConfig, Marks};
use midspan_units::ByteSize;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::forward::Forward;
use crate::opening::{self, Opening};

/// The kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// An IP version that the relay takes connections of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// A socket; `transparent` if it is to have others' addresses, which takes CAP_NET_ADMIN.
    fn socket(self, protocol: Protocol, transparent: bool) -> io::Result<Socket> {
        let domain = match self {
            Family::V4 => Domain::IPV4,
            Family::V6 => Domain::IPV6,
        };
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(domain, kind, Some(protocol))?;
        match self {
            _ if !transparent => {}
            Family::V4 => socket.set_ip_transparent_v4(true)?,
            Family::V6 => socket.set_ip_transparent_v6(true)?,
        }
        // Until a flow has ended in order on both legs, its sockets' death, ours included, must
        // be a reset and never an early end of stream.
        socket.set_linger(Some(Duration::ZERO))?;
        // Segments are passed on as they come; what was held back for company was held back
        // by the sender already.
        socket.set_tcp_nodelay(true)?;
        // Else urgent bytes would have to be asked for one by one, and be lost. MPTCP has none
        // (RFC 8684, 3.3.1).
        if protocol == Protocol::TCP {
            socket.set_out_of_band_inline(true)?;
        }
        Ok(socket)
    }

    /// A socket for connections of clients, and whether it speaks MPTCP, which this kernel may not.
    fn for_clients(self, mptcp: bool, transparent: bool) -> io::Result<(Socket, bool)> {
        if mptcp {
            match self.socket(Protocol::MPTCP, transparent) {
                Ok(socket) => return Ok((socket, true)),
                // Not built in; switched off (net.mptcp.enabled).
                Err(error) if is_any(&error, &[Errno::PROTONOSUPPORT, Errno::NOPROTOOPT]) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((self.socket(Protocol::TCP, transparent)?, false))
    }

    const fn loopback(self) -> IpAddr {
        match self {
            Family::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }

    const fn any(self) -> IpAddr {
        match self {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
}

/// Where a listener is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// At a port of every address, which all workers share.
    Port(u16),
    /// At a port of the loopback that nobody knows. What BPF steers is given to the listener itself,
    /// wherever it is; and Linux before 6.6 gives it to none that shares its port.
    Private,
    /// Where it was told to be, for who connects to it. All workers share it.
    Open(SocketAddr),
}

/// A listener that takes connections to any address. All options that its accepted sockets need
/// are set on it: they inherit them, and buffers must be known before the handshake for the
/// window scale to fit.
pub(crate) fn listen(family: Family, place: Place, config: &Config) -> io::Result<Listener> {
    let leg = &config.client_leg;
    let (socket, mptcp) = family.for_clients(config.mptcp, !matches!(place, Place::Open(_)))?;
    if family == Family::V6 {
        socket.set_only_v6(true)?;
    }
    configure(&socket, leg)?;
    if !matches!(place, Place::Open(_)) {
        socket.set_mark(Marks::of(config).outgoing)?;
    }
    if let Dscp::Always(point) = leg.dscp {
        mark(&socket, family.any(), point)?;
    }
    if !mptcp {
        midspan_sys::socket::save_syn(&socket)?;
        if config.fast_open {
            midspan_sys::socket::accept_fast_open(&socket, config.limits.half_open)?;
        }
    }
    match place {
        Place::Port(port) => {
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(true)?;
            socket.bind(&SocketAddr::new(family.any(), port).into())?;
        }
        Place::Private => socket.bind(&SocketAddr::new(family.loopback(), 0).into())?,
        Place::Open(address) => {
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(true)?;
            socket.bind(&address.into())?;
        }
    }
    socket.listen(BACKLOG)?;
    let address = socket.local_addr()?.as_socket();
    let address = address.ok_or_else(|| io::Error::other("a listener without an address"))?;
    Ok(Listener { fd: socket.into(), family, address, mptcp, forward: None })
}

/// Sets a listener up for connections to come, as [`listen`] did. What it was given and is not any more
/// stays.
pub(crate) fn reconfigure(listener: &Listener, leg: &LegConfig) -> io::Result<()> {
    configure(&SockRef::from(&listener.fd), leg)
}

/// A socket that connections are taken from.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) fd: OwnedFd,
    pub(crate) family: Family,
    address: SocketAddr,
    mptcp: bool,
    /// What becomes of its connections; none if they go to whom they were meant for.
    pub(crate) forward: Option<Arc<Forward>>,
}

impl Listener {
    /// Has the kernel give it, of the connections to a port that it shares, those that arrive on this
    /// processor (SO_INCOMING_CPU; since Linux 6.2), or if on none a like share of all.
    pub(crate) fn prefer(&self, processor: Option<usize>) -> io::Result<()> {
        // None is -1.
        SockRef::from(&self.fd).set_cpu_affinity(processor.unwrap_or(usize::MAX))
    }

    /// Whether a connection to this address was made to the listener itself, and not to a server.
    pub(crate) fn is_at(&self, server: SocketAddr) -> bool {
        match self.address.ip().is_unspecified() {
            true => server.port() == self.address.port(),
            false => server == self.address,
        }
    }
}

/// A socket for the connection to `server`; `transparent` if it is made from the client's address. Its
/// packets have the code point `dscp`, unless the configuration has another.
pub(crate) fn open(
    server: SocketAddr,
    leg: &LegConfig,
    transparent: bool,
    dscp: u8,
) -> io::Result<Socket> {
    let family = Family::of(server.ip());
    let socket = family.socket(Protocol::TCP, transparent)?;
    if transparent {
        socket.set_reuse_address(true)?;
    }
    configure(&socket, leg)?;
    let dscp = match leg.dscp {
        Dscp::Copy => dscp,
        Dscp::Always(point) => point,
    };
    mark(&socket, server.ip(), dscp)?;
    Ok(socket)
}

/// Has a socket's packets carry a code point, above the bits that are ECN's (RFC 3168, 5).
pub(crate) fn mark(socket: impl AsFd, peer: IpAddr, dscp: u8) -> io::Result<()> {
    match peer {
        // As they are anyway.
        _ if dscp == 0 => {}
        IpAddr::V4(_) => sockopt::set_ip_tos(socket, dscp << 2)?,
        IpAddr::V6(_) => sockopt::set_ipv6_tclass(socket, u32::from(dscp) << 2)?,
    }
    Ok(())
}

/// Has a socket connect from the client's own address and port.
pub(crate) fn bind_as(socket: &Socket, client: SocketAddr, place: Place) -> io::Result<()> {
    if place == Place::Port(client.port()) {
        // Our listener holds this port on every address.
        socket.set_reuse_port(true)?;
    }
    socket.bind(&client.into())
}

/// Starts to connect to `server`.
pub(crate) fn connect(socket: Socket, server: SocketAddr) -> io::Result<OwnedFd> {
    begin_connect(&socket, server)?;
    Ok(socket.into())
}

/// The same. Where it fails because [a former connection](is_former) is in the way it may be tried again.
pub(crate) fn begin_connect(socket: impl AsFd, server: SocketAddr) -> io::Result<()> {
    match rustix::net::connect(socket, &server) {
        Err(Errno::INPROGRESS) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether it says that another connection of this host still has these addresses and ports: a client has used
/// its port again before the server has acknowledged the end of its last one (LAST-ACK), or before we have
/// come to end it.
pub(crate) fn is_former(error: &io::Error) -> bool {
    is_any(error, &[Errno::ADDRNOTAVAIL, Errno::ADDRINUSE])
}

/// Starts to connect to `server` with the first of what a client has sent, as much of it as the
/// server is known to take with the SYN (RFC 7413); and says how much that is. It is then the kernel's
/// to deliver, and no longer the client's socket's.
pub(crate) fn connect_with_data_of(
    client: impl AsFd,
    socket: &Socket,
    server: SocketAddr,
) -> io::Result<usize> {
    /// `MSG_FASTOPEN`
    const FAST_OPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);
    /// More fits on no SYN.
    const MOST: usize = 1460;
    let mut buffer = [0; MOST];
    let data = match rustix::net::recv(&client, &mut buffer, RecvFlags::PEEK) {
        Ok((_, length)) if length > 0 => &mut buffer[..length],
        // It comes after all, or an error is there to be met.
        _ => return begin_connect(socket, server).map(|()| 0),
    };
    match rustix::net::sendto(socket, data, FAST_OPEN | SendFlags::NOSIGNAL, &server) {
        Ok(sent) => match rustix::io::read(&client, &mut data[..sent])? {
            read if read == sent => Ok(sent),
            // Nobody else reads.
            _ => Err(io::Error::other("what was sent cannot be taken from the client's socket")),
        },
        // Without data, but asking for a cookie to send some next time.
        Err(Errno::INPROGRESS) => Ok(0),
        // net.ipv4.tcp_fastopen forbids it.
        Err(Errno::OPNOTSUPP) => begin_connect(socket, server).map(|()| 0),
        Err(error) => Err(error.into()),
    }
}

fn is_any(error: &io::Error, kinds: &[Errno]) -> bool {
    Errno::from_io_error(error).is_some_and(|error| kinds.contains(&error))
}

/// Sees whether a leg's sockets can be set up as configured, with MPTCP if that is to be, and warns of
/// what falls short.
pub(crate) fn probe(leg: &LegConfig, mptcp: bool) -> io::Result<()> {
    let (socket, is_mptcp) = Family::V4.for_clients(mptcp, false)?;
    if mptcp && !is_mptcp {
        tracing::warn!("this kernel has no MPTCP, or net.mptcp.enabled is 0: clients get TCP");
    }
    configure(&socket, leg).map_err(|error| match is_mptcp {
        true => io::Error::new(error.kind(), format!("{error}; with `mptcp` it cannot be set")),
        false => error,
    })?;
    let sizes = [
        ("receive_buffer", leg.receive_buffer, socket.recv_buffer_size()?, "net.core.rmem_max"),
        ("send_buffer", leg.send_buffer, socket.send_buffer_size()?, "net.core.wmem_max"),
    ];
    for (key, wanted, given, limit) in sizes {
        // The kernel says twice what it was told, to account for overhead.
        let given = ByteSize::from_bytes(given as u64 / 2);
        if let Some(wanted) = wanted
            && given.as_bytes() + 1 < wanted.as_bytes()
        {
            tracing::warn!(%wanted, %given, "{key} is cut to {limit}, as CAP_NET_ADMIN is missing");
        }
    }
    Ok(())
}

fn configure(socket: &Socket, leg: &LegConfig) -> io::Result<()> {
    let key = |key: &'static str| {
        move |error: io::Error| io::Error::new(error.kind(), format!("`{key}`: {error}"))
    };
    if let Some(size) = leg.receive_buffer {
        let size = size.as_bytes() as usize;
        // Forced where we may, as net.core.rmem_max is meant for ordinary programs.
        sockopt::set_socket_recv_buffer_size_force(socket, size)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, size))
            .map_err(|error| key("receive_buffer")(error.into()))?;
    }
    if let Some(size) = leg.send_buffer {
        let size = size.as_bytes() as usize;
        sockopt::set_socket_send_buffer_size_force(socket, size)
            .or_else(|_| sockopt::set_socket_send_buffer_size(socket, size))
            .map_err(|error| key("send_buffer")(error.into()))?;
    }
    if let Some(size) = leg.notsent_lowat {
        socket.set_tcp_notsent_lowat(size.as_bytes() as u32).map_err(key("notsent_lowat"))?;
    }
    // What an end asks of its own accord is answered by us, and no longer by the other end: only
    // our own question finds out that a reset was lost, or that an end has gone without a word.
    match leg.keepalive.map(Duration::from) {
        Some(idle) => {
            let keepalive = TcpKeepalive::new().with_time(idle).with_interval(idle);
            socket.set_tcp_keepalive(&keepalive).map_err(key("keepalive"))?;
        }
        None => socket.set_keepalive(true)?,
    }
    if let Some(timeout) = leg.user_timeout {
        sockopt::set_tcp_user_timeout(socket, (timeout.as_micros() / 1000) as u32)
            .map_err(|error| key("user_timeout")(error.into()))?;
    }
    if let Some(bytes) = leg.max_segment {
        socket.set_tcp_mss(bytes.into()).map_err(key("max_segment"))?;
    }
    if let Some(rate) = leg.max_pacing_rate {
        midspan_sys::socket::set_max_pacing_rate(socket, rate.as_bps() / 8)
            .map_err(key("max_pacing_rate"))?;
    }
    if let Some(name) = &leg.congestion_control {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|error| unknown(name, error))?;
    }
    Ok(())
}

/// Whether sockets of this process can have a congestion control.
pub(crate) fn has(name: &str) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::TCP));
    socket.is_ok_and(|socket| socket.set_tcp_congestion(name.as_bytes()).is_ok())
}

fn unknown(name: &str, error: io::Error) -> io::Error {
    let available = midspan_sys::sysctl::get("net.ipv4.tcp_available_congestion_control")
        .unwrap_or_else(|_| "unknown".into());
    io::Error::new(
        error.kind(),
        format!("`congestion_control`: `{name}`: {error}; this kernel has loaded: {available}"),
    )
}

/// Whom the client of a transparently accepted connection believes to be connected to.
pub(crate) fn server_of(client_leg: impl AsFd) -> Option<SocketAddr> {
    rustix::net::getsockname(client_leg).ok()?.try_into().ok()
}

/// A connection that a listener took.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    pub(crate) client: SocketAddr,
    /// Whom the client believes to be connected to.
    pub(crate) server: SocketAddr,
    pub(crate) opening: Opening,
    /// Whether the client's connection is MPTCP.
    pub(crate) mptcp: bool,
    /// What the server is to be sent before what the client sends.
    pub(crate) preface: Option<Box<[u8]>>,
}

/// Why no connection was taken from a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAccepted {
    /// None waits.
    NoneWaiting,
    /// This one failed; the next may not.
    Failed,
    /// Neither this one nor the next can be, for lack of descriptors or memory.
    NoRoom,
}

/// Takes a connection. It is for the first that the listener's are passed on to, or else for whom the
/// client believes to be connected to.
pub(crate) fn accept(listener: &Listener, now: Instant) -> Result<Accepted, NotAccepted> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, client) =
        rustix::net::acceptfrom_with(&listener.fd, flags).map_err(|error| match error {
            Errno::AGAIN => NotAccepted::NoneWaiting,
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => NotAccepted::NoRoom,
            // What accept(2) passes on from the new connection's own network errors.
            _ => NotAccepted::Failed,
        })?;
    let client = client.and_then(|client| SocketAddr::try_from(client).ok());
    let mptcp = listener.mptcp && is_mptcp(&socket).map_err(|_| NotAccepted::Failed)?;
    let opening = match midspan_sys::socket::saved_syn(&socket, &mut [0; opening::LONGEST]) {
        Ok(Some(headers)) => Opening::of(headers),
        // Answered with a SYN cookie, or by an MPTCP listener, neither of which keeps anything.
        Ok(None) | Err(_) => Opening::default(),
    };
    let server = match &listener.forward {
        Some(forward) => forward.to.first(now),
        None => opening.server.or_else(|| address_of(&socket)),
    };
    match (client, server) {
        (Some(client), Some(server)) => {
            Ok(Accepted { socket, client, server, opening, mptcp, preface: None })
        }
        _ => Err(NotAccepted::Failed),
    }
}

/// How many connections wait at the listener, or may. Asking costs little; to accept where there is none makes
/// the kernel set up a socket and take it apart again.
pub(crate) fn waiting(listener: &Listener) -> usize {
    midspan_sys::socket::accept_queue(&listener.fd).map_or(usize::MAX, |waiting| waiting as usize)
}

/// Whether a connection that an MPTCP listener took is one. If not it is TCP, and may have urgent
/// data, of which that listener knew nothing.
fn is_mptcp(socket: &OwnedFd) -> Result<bool, Errno> {
    let is = sockopt::socket_protocol(socket)? == Some(rustix::net::ipproto::MPTCP);
    if !is {
        sockopt::set_socket_oobinline(socket, true)?;
    }
    Ok(is)
}

/// A connection's own address.
pub(crate) fn address_of(socket: &OwnedFd) -> Option<SocketAddr> {
    rustix::net::getsockname(socket).ok()?.try_into().ok()
}
