//! Listeners of clients' connections, set up before any can come.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use midspan_config::{Config, Dscp, LegConfig, Marks};
use midspan_split::defaults::CLIENT_LEG_RECEIVE_WINDOW;
use midspan_units::ByteSize;
use rustix::net::sockopt;
use socket2::{SockRef, Socket};

use crate::family::Family;
use crate::options::{configure, mark};

/// The kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// Where a listener is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenAddress {
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
///
/// # Errors
/// What the kernel says; where an option was refused, with its key.
pub fn listen(family: Family, place: ListenAddress, config: &Config) -> io::Result<Listener> {
    let leg = &config.client_leg;
    let (socket, mptcp) =
        family.for_clients(config.mptcp, !matches!(place, ListenAddress::Open(_)))?;
    if family == Family::V6 {
        socket.set_only_v6(true)?;
    }
    configure(&socket, leg)?;
    let intercepts = !matches!(place, ListenAddress::Open(_));
    if intercepts {
        socket.set_mark(Marks::of(config).outgoing)?;
    }
    begin_receive_window(&socket, leg, intercepts);
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
        ListenAddress::Port(port) => {
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(true)?;
            socket.bind(&SocketAddr::new(family.any(), port).into())?;
        }
        ListenAddress::Private => socket.bind(&SocketAddr::new(family.loopback(), 0).into())?,
        ListenAddress::Open(address) => {
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(true)?;
            socket.bind(&address.into())?;
        }
    }
    socket.listen(BACKLOG)?;
    let address = socket.local_addr()?.as_socket();
    let address = address.ok_or_else(|| io::Error::other("a listener without an address"))?;
    Ok(Listener { fd: socket.into(), family, address, intercepts, mptcp })
}

/// Has receive windows begin as the leg says, or as the relay has it by itself where it intercepts clients; where that cannot
/// be they begin as the kernel has it.
fn begin_receive_window(socket: &Socket, leg: &LegConfig, intercepts: bool) {
    let by_default = intercepts && leg.receive_buffer.is_none();
    let by_default = by_default.then_some(ByteSize::from_bytes(CLIENT_LEG_RECEIVE_WINDOW));
    if let Some(window) = leg.initial_receive_window.or(by_default)
        && let Err(error) = begin_with(socket, window)
    {
        tracing::info!("clients' receive windows begin as the kernel has it: {error}");
    }
}

/// Lets receive windows open to so many bytes at once, within what the host has buffers begin with and lets them be, and the
/// kernel tune them from there.
fn begin_with(socket: &Socket, window: ByteSize) -> io::Result<()> {
    let tcp_rmem = midspan_sys::sysctl::get("net.ipv4.tcp_rmem")?;
    let sizes: Vec<u64> =
        tcp_rmem.split_whitespace().filter_map(|size| size.parse().ok()).collect();
    let [_, initial, most] = sizes[..] else { return Err(io::Error::other(tcp_rmem)) };
    // The kernel sets twice what it is told, and has windows of half of that.
    let window = window.as_bytes().max(initial / 2).min(most / 2);
    // Where it cannot be unlocked it is not to be set.
    midspan_sys::socket::unlock_receive_buffer(socket)?;
    sockopt::set_socket_recv_buffer_size_force(socket, window as usize)?;
    midspan_sys::socket::unlock_receive_buffer(socket)
}

/// Sets a listener up for connections to come, as [`listen`] did. What it was given and is not any more
/// stays.
///
/// # Errors
/// What the kernel says, with the option's key.
pub fn reconfigure(listener: &Listener, leg: &LegConfig) -> io::Result<()> {
    let socket = SockRef::from(&listener.fd);
    configure(&socket, leg)?;
    begin_receive_window(&socket, leg, listener.intercepts);
    Ok(())
}

/// A socket that connections are taken from.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub fd: OwnedFd,
    /// The IP version of its connections.
    pub family: Family,
    address: SocketAddr,
    /// What comes to it was meant for others.
    intercepts: bool,
    /// It speaks MPTCP.
    pub(crate) mptcp: bool,
}

impl Listener {
    /// Has the kernel give it, of the connections to a port that it shares, those that arrive on this
    /// processor (SO_INCOMING_CPU; since Linux 6.2), or if on none a like share of all.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn prefer(&self, processor: Option<usize>) -> io::Result<()> {
        // None is -1.
        SockRef::from(&self.fd).set_cpu_affinity(processor.unwrap_or(usize::MAX))
    }

    /// Whether a connection to this address was made to the listener itself, and not to a server.
    pub fn is_at(&self, server: SocketAddr) -> bool {
        match self.address.ip().is_unspecified() {
            true => server.port() == self.address.port(),
            false => server == self.address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Protocol, Type};

    #[test]
    fn a_buffer_is_still_tuned_from_what_it_begins_with() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        let before = socket.recv_buffer_size().unwrap();
        if begin_with(&socket, ByteSize::from_kib(1024)).is_err() {
            return eprintln!("skipped: it takes CAP_NET_ADMIN, and Linux 5.15");
        }
        assert!(socket.recv_buffer_size().unwrap() > before);
        assert!(!midspan_sys::socket::is_receive_buffer_locked(&socket).unwrap());
        begin_with(&socket, ByteSize::from_kib(4)).unwrap();
        assert_eq!(socket.recv_buffer_size().unwrap(), before);
        socket.set_recv_buffer_size(1 << 16).unwrap();
        assert!(midspan_sys::socket::is_receive_buffer_locked(&socket).unwrap());
    }
}
