//! A UE and a server at the two ends of an emulated link.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use midspan_emu::{Backend, Emulator, LinkConfig, PortConfig};
use midspan_path::{Link, LinkSpec, Traces};
use midspan_sys::netlink::{Netlink, Route, RouteTcp};
use midspan_sys::netns::Netns;
use midspan_sys::sysctl;
use midspan_units::Span;
use socket2::{Domain, SockRef, Socket, Type};

const UE: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 2);

/// A server that sends to a UE.
pub(crate) struct EmulatedPath {
    sender: TcpStream,
    receiver: TcpStream,
    _emulator: Emulator,
}

impl EmulatedPath {
    /// Whose elements are those of a scenario's `up` and `down`.
    pub(crate) fn new(control: &str, seed: u64, up: &str, down: &str) -> EmulatedPath {
        let (ue, server) = (Netns::create().unwrap(), Netns::create().unwrap());
        let spec: LinkSpec = toml::from_str(&format!("up = [{up}]\ndown = [{down}]")).unwrap();
        let port = |netns: &Netns| PortConfig {
            netns: netns.clone(),
            interface: "link".to_owned(),
            mtu: 1500,
        };
        let config = LinkConfig {
            name: "link".to_owned(),
            backend: Backend::available(),
            left: port(&ue),
            right: port(&server),
            shortest_rtt: Span::from_millis(10),
            tap: None,
        };
        let link = Link::new(&spec, &Traces::new(), seed).unwrap();
        let emulator = midspan_emu::start(config, link).unwrap();
        for (netns, own) in [(&ue, UE), (&server, SERVER)] {
            netns.run(|| address(own)).unwrap();
        }
        let listener = server
            .run(|| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                socket.set_tcp_congestion(control.as_bytes()).unwrap();
                socket.bind(&(SERVER, 80).into_address()).unwrap();
                socket.listen(1).unwrap();
                TcpListener::from(socket)
            })
            .unwrap();
        let receiver = ue.run(|| TcpStream::connect((SERVER, 80)).unwrap()).unwrap();
        let (sender, _) = listener.accept().unwrap();
        EmulatedPath { sender, receiver, _emulator: emulator }
    }

    /// Sends until `look` answers something, of which it is asked every few milliseconds.
    pub(crate) fn send_until<T>(&self, mut look: impl FnMut(&TcpStream) -> Option<T>) -> T {
        thread::scope(|scope| {
            scope.spawn(|| {
                let chunk = [0; 1 << 14];
                while (&self.sender).write_all(&chunk).is_ok() {}
            });
            scope.spawn(|| {
                let mut chunk = [0; 1 << 14];
                while matches!((&self.receiver).read(&mut chunk), Ok(1..)) {}
            });
            let deadline = Instant::now() + Duration::from_secs(90);
            let seen = loop {
                if let Some(seen) = look(&self.sender) {
                    break Some(seen);
                }
                if Instant::now() > deadline {
                    break None;
                }
                thread::sleep(Duration::from_millis(3));
            };
            self.end();
            seen.expect("it was seen within a minute and a half")
        })
    }

    /// Sends each part by itself, and answers when the last has come.
    pub(crate) fn send(&self, parts: &[usize]) {
        self.sender.set_nodelay(true).unwrap();
        self.receiver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        for part in parts {
            (&self.sender).write_all(&vec![0; *part]).unwrap();
        }
        (&self.receiver).read_exact(&mut vec![0; parts.iter().sum()]).unwrap();
    }

    pub(crate) fn sender(&self) -> &TcpStream {
        &self.sender
    }

    /// Ends the connection at once: a socket that goes on trying to close keeps its control loaded.
    pub(crate) fn end(&self) {
        for end in [&self.sender, &self.receiver] {
            let _ = SockRef::from(end).set_linger(Some(Duration::ZERO));
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

trait IntoAddress {
    fn into_address(self) -> socket2::SockAddr;
}

impl IntoAddress for (Ipv4Addr, u16) {
    fn into_address(self) -> socket2::SockAddr {
        std::net::SocketAddr::from(self).into()
    }
}

fn address(own: Ipv4Addr) {
    let mut netlink = Netlink::open().unwrap();
    let index = netlink.index("link").unwrap();
    netlink.add_address(index, own.into(), 30).unwrap();
    let destination = Ipv4Addr::from_bits(own.to_bits() & !3).into();
    let (prefix, gateway, tcp) = (30, None, RouteTcp::default());
    let route = Route { destination, prefix, index, gateway, tcp };
    netlink.add_route(&route).unwrap();
    sysctl::set("net.ipv4.tcp_ecn", "1").unwrap();
    sysctl::set("net.ipv4.tcp_no_metrics_save", "1").unwrap();
}
