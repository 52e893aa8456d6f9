//! Options that a leg's configuration asks for.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use midspan_config::LegConfig;
use midspan_units::ByteSize;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::family::Family;

/// Has a socket's packets carry a code point, above the bits that are ECN's (RFC 3168, 5).
///
/// # Errors
/// What the kernel says.
pub fn mark(socket: impl AsFd, peer: IpAddr, dscp: u8) -> io::Result<()> {
    match peer {
        // As they are anyway.
        _ if dscp == 0 => {}
        IpAddr::V4(_) => sockopt::set_ip_tos(socket, dscp << 2)?,
        IpAddr::V6(_) => sockopt::set_ipv6_tclass(socket, u32::from(dscp) << 2)?,
    }
    Ok(())
}

/// Sees whether a leg's sockets can be set up as configured, with MPTCP if that is to be, and warns of
/// what falls short.
///
/// # Errors
/// The first option that the kernel refuses, with its key.
pub fn probe(leg: &LegConfig, mptcp: bool) -> io::Result<()> {
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

/// Sets a socket up for what comes.
pub(crate) fn configure(socket: &Socket, leg: &LegConfig) -> io::Result<()> {
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
    match &leg.congestion_control {
        Some(name) => set_control(socket, name, leg.is_control_by_default),
        None => Ok(()),
    }
}

/// Has a socket use a congestion control; but where that one is nobody's wish, and whoever had registered it has let go of
/// it since we have seen it, the kernel's.
fn set_control(socket: &Socket, name: &str, by_default: bool) -> io::Result<()> {
    match socket.set_tcp_congestion(name.as_bytes()) {
        Err(error) if by_default && error.kind() == io::ErrorKind::NotFound => {
            tracing::warn!("nobody holds {name} any more: the kernel's congestion control is used");
            Ok(())
        }
        set => set.map_err(|error| unknown(name, error)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_that_is_gone_is_an_error_only_where_it_was_asked_for() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        let before = socket.tcp_congestion().unwrap();
        let congestion_control = Some("ms_gone".to_owned());
        let mut leg = LegConfig { congestion_control, ..LegConfig::default() };
        let error = configure(&socket, &leg).unwrap_err().to_string();
        assert!(error.starts_with("`congestion_control`: `ms_gone`: "), "{error}");
        leg.is_control_by_default = true;
        configure(&socket, &leg).unwrap();
        assert_eq!(socket.tcp_congestion().unwrap(), before);
    }
}
