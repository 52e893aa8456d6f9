//! Three network namespaces in a row: client, relay box, server. They are anonymous, so that they
//! vanish with the test, whatever becomes of it.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_sys::netlink::{Netlink, Route, RouteTcp};
use midspan_sys::netns::Netns;
use midspan_sys::sysctl;
use rustix::net::{SendFlags, sendto};
use socket2::{Domain, Socket, Type};

pub(crate) struct World {
    pub(crate) client: Netns,
    pub(crate) relay: Netns,
    pub(crate) server: Netns,
}

pub(crate) const CLIENT: [&str; 2] = ["10.1.0.2", "fd01::2"];
pub(crate) const SERVER: [&str; 2] = ["10.2.0.2", "fd02::2"];
/// The relay box as the client sees it.
pub(crate) const BOX: [&str; 2] = ["10.1.0.1", "fd01::1"];
/// Another address of the client, in none of the prefixes that the tests configure.
pub(crate) const FOREIGN: &str = "192.168.77.2";

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

impl World {
    /// `None`, and says so, where namespaces may not be created.
    pub(crate) fn new() -> Option<World> {
        match World::build() {
            Ok(world) => Some(world),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                skip("network namespaces may not be created here");
                None
            }
            Err(error) => panic!("namespaces: {error}"),
        }
    }

    fn build() -> io::Result<World> {
        let (client, relay, server) = (Netns::create()?, Netns::create()?, Netns::create()?);
        for netns in [&client, &relay, &server] {
            // Addresses are usable at once, link-local ones included.
            netns.run(|| sysctl::set("net.ipv6.conf.default.accept_dad", "0"))??;
        }
        relay.run(|| {
            for name in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
                sysctl::set(name, "1")?;
            }
            let mut netlink = Netlink::open()?;
            for (name, peer, netns) in
                [("access", "uplink", &client), ("wide", "downlink", &server)]
            {
                use std::os::fd::AsFd;
                netlink.add_veth(name, peer, netns.as_fd())?;
            }
            let access = up(&mut netlink, "access", &["10.1.0.1", "fd01::1"])?;
            up(&mut netlink, "wide", &["10.2.0.1", "fd02::1"])?;
            route(&mut netlink, "192.168.77.0", 24, access, None)
        })??;
        client.run(|| {
            let mut netlink = Netlink::open()?;
            let link = up(&mut netlink, "uplink", &["10.1.0.2", "fd01::2", FOREIGN])?;
            route(&mut netlink, "0.0.0.0", 0, link, Some("10.1.0.1"))?;
            route(&mut netlink, "::", 0, link, Some("fd01::1"))
        })??;
        server.run(|| {
            let mut netlink = Netlink::open()?;
            let link = up(&mut netlink, "downlink", &["10.2.0.2", "fd02::2"])?;
            route(&mut netlink, "0.0.0.0", 0, link, Some("10.2.0.1"))?;
            route(&mut netlink, "::", 0, link, Some("fd02::1"))
        })??;
        let world = World { client, relay, server };
        world.relay.run(|| CLIENT.into_iter().chain(SERVER).for_each(await_link))?;
        Ok(world)
    }

    /// A listener of the server on a port of the kernel's choice.
    pub(crate) fn listen(&self, server: &str) -> (TcpListener, SocketAddr) {
        let listener = self.server.run(|| TcpListener::bind((ip(server), 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Connects from the client.
    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let from = if to.is_ipv4() { CLIENT[0] } else { CLIENT[1] };
        self.connect_from(SocketAddr::new(ip(from), 0), to)
    }

    /// Connects from an address and port of the client.
    pub(crate) fn connect_from(&self, from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
        let stream = self.client.run(|| connect(from, to))??;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Connects from the client with TCP Fast Open: `data` goes with the SYN if the client has a
    /// cookie of the server's, and else as soon as it is connected.
    pub(crate) fn fast_open(&self, to: SocketAddr, data: &[u8]) -> TcpStream {
        /// `MSG_FASTOPEN`
        const FAST_OPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);
        let open = || Socket::new(Domain::for_address(to), Type::STREAM, None);
        let socket = self.client.run(open).unwrap().unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(sendto(&socket, data, FAST_OPEN, &to).unwrap(), data.len());
        socket.into()
    }

    /// Both ends of a connection through the box.
    pub(crate) fn pair(&self, server: &str) -> (TcpStream, TcpStream) {
        let (listener, address) = self.listen(server);
        let client = self.connect(address).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        server.set_write_timeout(Some(PATIENCE)).unwrap();
        (client, server)
    }
}

/// Says why a test is skipped; fails where none may be, as in a virtual machine of the test's own.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("MIDSPAN_TEST_NO_SKIP").is_none(), "{why}");
    eprintln!("skipped: {why}");
}

/// Connects in the calling thread's namespace, within [`PATIENCE`].
pub(crate) fn connect(from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&from.into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket.into())
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Checks that a connection was reset. With the early handshake its opener may or may not have been
/// told "connected" first; the error of a connect that was reset depends on which.
pub(crate) fn assert_reset(opened: io::Result<TcpStream>) {
    let error = match opened {
        Ok(mut stream) => stream.read(&mut [0]).unwrap_err(),
        Err(error) => error,
    };
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::ConnectionRefused];
    assert!(kinds.contains(&error.kind()), "{error}");
}

/// Makes a stream's closing a reset.
pub(crate) fn abort(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

pub(crate) fn up(netlink: &mut Netlink, name: &str, addresses: &[&str]) -> io::Result<u32> {
    let link = netlink.index(name)?;
    netlink.set_up(link)?;
    for address in addresses {
        let prefix = if ip(address).is_ipv4() { 24 } else { 64 };
        netlink.add_address(link, ip(address), prefix)?;
        route(netlink, address, prefix, link, None)?;
    }
    Ok(link)
}

/// Waits until a neighbour answers, from the calling thread's namespace. A link that was just set up drops what is sent on it until the
/// kernel has taken note that its peer is up too.
pub(crate) fn await_link(neighbour: &str) {
    let closed = SocketAddr::new(ip(neighbour), 9);
    let start = Instant::now();
    while let Err(error) = TcpStream::connect_timeout(&closed, Duration::from_millis(50))
        && error.kind() != ErrorKind::ConnectionRefused
    {
        assert!(start.elapsed() < PATIENCE, "no link to {neighbour}: {error}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Routes the network of `destination/prefix`.
pub(crate) fn route(
    netlink: &mut Netlink,
    destination: &str,
    prefix: u8,
    index: u32,
    gateway: Option<&str>,
) -> io::Result<()> {
    let network = IpNet::new(ip(destination), prefix).unwrap().network();
    netlink.add_route(&Route {
        destination: network,
        prefix,
        index,
        gateway: gateway.map(ip),
        tcp: RouteTcp::default(),
    })
}
