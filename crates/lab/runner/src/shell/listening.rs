//! Which ports servers listen on.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

/// A port that somebody listens on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// Its number.
    pub number: u16,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.protocol, self.number)
    }
}

/// The tables of the kernel, and the state in which a socket of each waits for whoever comes.
const TABLES: [(&str, &str, &str); 4] =
    [("tcp", "tcp", "0A"), ("tcp6", "tcp", "0A"), ("udp", "udp", "07"), ("udp6", "udp", "07")];

/// Those in the calling thread's network namespace.
pub(crate) fn ports() -> BTreeSet<Port> {
    let mut ports = BTreeSet::new();
    for (table, protocol, state) in TABLES {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        let lines = text.lines().skip(1);
        ports.extend(
            lines.filter_map(|line| port(line, state)).map(|number| Port { protocol, number }),
        );
    }
    ports
}

/// The local port of a line, if its socket is in this state.
fn port(line: &str, state: &str) -> Option<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next()?;
    (fields.nth(1)? == state).then_some(())?;
    u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = std::net::UdpSocket::bind("[::1]:0").ok();
        let seen = ports();
        let number = listener.local_addr().unwrap().port();
        assert!(seen.contains(&Port { protocol: "tcp", number }), "{seen:?}");
        if let Some(number) = datagrams.map(|socket| socket.local_addr().unwrap().port()) {
            assert!(seen.contains(&Port { protocol: "udp", number }), "{seen:?}");
        }
        assert_eq!(Port { protocol: "tcp", number: 80 }.to_string(), "tcp/80");
    }
}
