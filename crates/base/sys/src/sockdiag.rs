//! TCP sockets of the calling thread's network namespace, with their TCP_INFO (sock_diag).

use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_sys::{Socket, protocols::NETLINK_SOCK_DIAG};

pub use netlink_packet_sock_diag::inet::nlas::TcpInfo;

/// A TCP socket as the kernel describes it.
#[derive(Debug, Clone)]
pub struct TcpSocket {
    /// Its own address and port.
    pub local: SocketAddr,
    /// Its peer's.
    pub remote: SocketAddr,
    /// Its inode, by which processes that have it are found; zero if none has it any more.
    pub inode: u32,
    /// Name of its congestion control.
    pub congestion_control: String,
    /// The kernel's TCP_INFO.
    pub info: TcpInfo,
}

/// All established and closing TCP sockets, IPv4 and IPv6, that still have TCP_INFO.
///
/// # Errors
/// When the kernel has no sock_diag.
pub fn tcp_sockets() -> io::Result<Vec<TcpSocket>> {
    let mut sockets = Vec::new();
    let connected = StateFlags::all() & !(StateFlags::LISTEN | StateFlags::TIME_WAIT);
    dump(connected, |response| sockets.extend(described(response)))?;
    Ok(sockets)
}

/// Whether somebody's handshake with a listener is under way: a SYN has been answered, and the answer not been
/// acknowledged. Handshakes by SYN cookies leave nothing that could be seen.
///
/// # Errors
/// When the kernel has no sock_diag.
pub fn handshakes_under_way() -> io::Result<bool> {
    let mut found = false;
    dump(StateFlags::SYN_RECV, |_| found = true)?;
    Ok(found)
}

/// Sees every TCP socket of a namespace once more when the kernel has done with it, with the final
/// state of its counters.
#[derive(Debug)]
pub struct DestroyNotifications {
    socket: Socket,
}

impl DestroyNotifications {
    /// Starts watching the calling thread's namespace.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN.
    pub fn open() -> io::Result<DestroyNotifications> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        // Many sockets may end at once; what does not fit here is lost.
        socket.set_rx_buf_sz(4 << 20)?;
        socket.add_membership(SKNLGRP_INET_TCP_DESTROY)?;
        socket.add_membership(SKNLGRP_INET6_TCP_DESTROY)?;
        socket.set_non_blocking(true)?;
        Ok(DestroyNotifications { socket })
    }

    /// The sockets that ended since the last call. The kernel does not tell their congestion
    /// control any more: the name is empty.
    ///
    /// # Errors
    /// When more ended than could be kept (`ENOBUFS`).
    pub fn read(&mut self) -> io::Result<Vec<TcpSocket>> {
        let mut sockets = Vec::new();
        loop {
            match self.socket.recv_from_full() {
                Ok((buffer, _)) => parse(&buffer, |response| sockets.extend(described(response)))?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(sockets),
                Err(error) => return Err(error),
            };
        }
    }
}

/// Multicast groups of sock_diag, as `linux/sock_diag.h` numbers them.
const SKNLGRP_INET_TCP_DESTROY: u32 = 1;
const SKNLGRP_INET6_TCP_DESTROY: u32 = 3;

fn dump(states: StateFlags, mut each: impl FnMut(InetResponse)) -> io::Result<()> {
    for (family, socket_id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        let extensions = ExtensionFlags::INFO | ExtensionFlags::CONG;
        let request = InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions,
            states: states.clone(),
            socket_id,
        };
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let message = SockDiagMessage::InetRequest(request);
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut buffer = vec![0; packet.buffer_len()];
        packet.serialize(&mut buffer);
        socket.send(&buffer, 0)?;
        while parse(&socket.recv_from_full()?.0, &mut each)? == End::MoreToCome {}
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum End {
    Reached,
    MoreToCome,
}

fn parse(mut rest: &[u8], mut each: impl FnMut(InetResponse)) -> io::Result<End> {
    while !rest.is_empty() {
        let message: NetlinkMessage<SockDiagMessage> =
            NetlinkMessage::deserialize(rest).map_err(io::Error::other)?;
        // Messages of a dump are padded to four bytes.
        let length = (message.header.length as usize).next_multiple_of(4).min(rest.len());
        rest = &rest[length..];
        match message.payload {
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                each(*response);
            }
            NetlinkPayload::Done(_) => return Ok(End::Reached),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            _ => {}
        }
    }
    Ok(End::MoreToCome)
}

fn described(response: InetResponse) -> Option<TcpSocket> {
    let id = response.header.socket_id;
    let mut congestion_control = String::new();
    let mut tcp_info = None;
    for attribute in response.nlas {
        match attribute {
            Nla::Congestion(name) => congestion_control = name,
            Nla::TcpInfo(info) => tcp_info = Some(info),
            _ => {}
        }
    }
    Some(TcpSocket {
        local: endpoint(id.source_address, id.source_port),
        remote: endpoint(id.destination_address, id.destination_port),
        inode: response.header.inode,
        congestion_control,
        info: tcp_info?,
    })
}

/// IPv4 traffic of an IPv6 socket is shown by its IPv4 addresses, as its peer sees it.
fn endpoint(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address.to_canonical(), port)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn both_ends_of_a_connection_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.write_all(b"seven b").unwrap();
        let sockets = tcp_sockets().unwrap();
        let mine = near.local_addr().unwrap();
        let sender = sockets.iter().find(|socket| socket.local == mine).unwrap();
        assert_eq!(sender.remote, far.local_addr().unwrap());
        assert!(!sender.congestion_control.is_empty());
        let receiver = sockets.iter().find(|socket| socket.remote == mine).unwrap();
        assert_eq!(receiver.info.bytes_received, 7);
    }

    #[test]
    fn a_socket_that_ended_is_seen_with_its_last_counters() {
        let Ok(netns) = crate::netns::Netns::create() else {
            eprintln!("skipped: this user may not create network namespaces");
            return;
        };
        netns
            .run(|| {
                let mut notifications = DestroyNotifications::open().unwrap();
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (mut far, _) = listener.accept().unwrap();
                let mine = near.local_addr().unwrap();
                near.write_all(b"seven b").unwrap();
                drop(near);
                let mut seven = Vec::new();
                std::io::Read::read_to_end(&mut far, &mut seven).unwrap();
                drop(far);
                let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
                let mut sockets = Vec::new();
                while sockets.len() < 2 && std::time::Instant::now() < deadline {
                    sockets.extend(notifications.read().unwrap());
                }
                let sender = sockets.iter().find(|socket| socket.local == mine).unwrap();
                // SYN and FIN count as one each.
                assert_eq!(sender.info.bytes_acked, 9);
                assert!(sockets.iter().any(|socket| socket.remote == mine));
            })
            .unwrap();
    }
}
