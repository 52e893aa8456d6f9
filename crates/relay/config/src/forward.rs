//! Explicit mode: connections made to the relay, and whom they are passed on to.

use core::net::{IpAddr, SocketAddr};
use std::fmt;

use ipnet::IpNet;
use midspan_split::proxy_protocol::ProxyVersion;
use serde::{Deserialize, Serialize};

/// A place where the relay is connected to, for where nothing can be intercepted. The server sees the
/// relay's address then, and not the client's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardConfig {
    /// Address and port to listen at, such as `0.0.0.0:8080` or `[::]:8080`.
    pub listen: SocketAddr,
    /// Servers as `HOST:PORT`, tried in order, each name's addresses too; those last that could not be connected to
    /// in the last 10 s. Names are resolved at the start and every 30 s.
    pub to: To,
    /// Prefixes of the clients that may connect. Empty: all may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<IpNet>,
    /// Prefixes of clients that may not, also if they are in `allow`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<IpNet>,
    /// Whether and from whom connections are told by the PROXY protocol, and whether servers are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyConfig>,
}

/// The PROXY protocol, in and out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyConfig {
    /// Prefixes of the proxies whose connections begin with a header, of either version. Each must, and
    /// nobody else may connect: the protocol forbids to guess. Empty: connections are plain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<IpNet>,
    /// The version of the header that servers are sent. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<ProxyVersion>,
}

impl ForwardConfig {
    /// What is wrong with it, without asking anybody.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if self.listen.port() == 0 {
            return Some("must listen at a port between 1 and 65535");
        }
        let proxy = self.proxy_protocol.as_ref();
        if proxy.is_some_and(|proxy| proxy.from.is_empty() && proxy.send.is_none()) {
            return Some(
                "has a `proxy_protocol` with neither `from` nor `send`: it takes one of them",
            );
        }
        self.to.fault()
    }

    /// Whether some of its servers need resolving.
    pub fn has_names(&self) -> bool {
        self.to.literal().len() < self.to.names().len()
    }

    /// Where it listens, and its servers that need no resolving.
    pub fn literal(&self) -> (SocketAddr, Vec<SocketAddr>) {
        (self.listen, self.to.literal())
    }
}

/// A listener whose connections come back to it, and the server by which they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop {
    listen: SocketAddr,
    to: SocketAddr,
}

impl fmt::Display for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loop { listen, to } = self;
        write!(f, "that listens at {listen} would be connected to itself: take {to} out of `to`")
    }
}

/// The first listener whose connections come back to it, by one server or by those of other listeners too.
/// `is_here` is whether an address is one of this host.
pub fn first_loop(
    forwards: &[(SocketAddr, Vec<SocketAddr>)],
    is_here: impl Fn(IpAddr) -> bool,
) -> Option<Loop> {
    let place_of = |to: &SocketAddr| {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let mut listens = forwards.iter().map(|(listen, _)| listen);
        let is_any_here = |listen: &SocketAddr| {
            let is_meant = match listen.ip().is_unspecified() {
                true => to.ip().is_unspecified() || is_here(to.ip()),
                false => to.ip().is_unspecified() && listen.ip().is_loopback(),
            };
            is_meant && to.port() == listen.port() && to.is_ipv4() == listen.is_ipv4()
        };
        let exactly = listens.clone().position(|listen| *listen == to);
        exactly.or_else(|| listens.position(is_any_here))
    };
    (0..forwards.len()).find_map(|goal| {
        let (listen, servers) = &forwards[goal];
        let comes_back = |to: &&SocketAddr| {
            let mut seen = vec![false; forwards.len()];
            let mut ahead = Vec::from_iter(place_of(to));
            while let Some(here) = ahead.pop() {
                if here == goal {
                    return true;
                }
                if !std::mem::replace(&mut seen[here], true) {
                    ahead.extend(forwards[here].1.iter().filter_map(place_of));
                }
            }
            false
        };
        servers.iter().find(comes_back).map(|to| Loop { listen: *listen, to: *to })
    })
}

/// One server, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum To {
    /// `HOST:PORT`
    One(String),
    /// Tried in order.
    Several(Vec<String>),
}

impl To {
    /// As they are written, in order.
    pub fn names(&self) -> &[String] {
        match self {
            To::One(name) => std::slice::from_ref(name),
            To::Several(names) => names,
        }
    }

    fn fault(&self) -> Option<&'static str> {
        let is_pair = |name: &String| {
            name.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        let fits = !self.names().is_empty() && self.names().iter().all(is_pair);
        (!fits).then_some("must name servers as \"HOST:PORT\", such as \"server.example:80\"")
    }

    /// Those that are addresses, and no names.
    fn literal(&self) -> Vec<SocketAddr> {
        self.names().iter().filter_map(|name| name.parse().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// The listener that a loop is found at, and by which server, where 192.0.2.1 and 2001:db8::1 are here.
    fn found(forwards: &[(&str, &[&str])]) -> Option<(SocketAddr, SocketAddr)> {
        let forwards: Vec<_> = forwards
            .iter()
            .map(|(listen, to)| (at(listen), to.iter().map(|to| at(to)).collect()))
            .collect();
        let here = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse::<IpAddr>().unwrap());
        let is_here = |address: IpAddr| address.is_loopback() || here.contains(&address);
        first_loop(&forwards, is_here).map(|Loop { listen, to }| (listen, to))
    }

    #[test]
    fn a_listener_leads_to_itself_however_it_is_called() {
        for (listen, to) in [
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("198.51.100.1:80", "198.51.100.1:80"),
            ("0.0.0.0:80", "192.0.2.1:80"),
            ("0.0.0.0:80", "127.0.0.5:80"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("0.0.0.0:80", "[::ffff:192.0.2.1]:80"),
            ("127.0.0.1:80", "0.0.0.0:80"),
            ("[::]:80", "[2001:db8::1]:80"),
            ("[::]:80", "[::1]:80"),
            ("[::1]:80", "[::]:80"),
        ] {
            assert_eq!(found(&[(listen, &["203.0.113.9:80", to])]), Some((at(listen), at(to))));
        }
        for (listen, to) in [
            ("192.0.2.1:80", "192.0.2.1:81"),
            ("192.0.2.1:80", "127.0.0.1:80"),
            ("0.0.0.0:80", "203.0.113.9:80"),
            ("0.0.0.0:80", "[2001:db8::1]:80"),
            ("[::]:80", "192.0.2.1:80"),
            ("192.0.2.1:80", "0.0.0.0:80"),
        ] {
            assert_eq!(found(&[(listen, &[to])]), None, "{listen} {to}");
        }
    }

    #[test]
    fn listeners_lead_to_each_other_and_that_ends_or_not() {
        let (first, second) = ("127.0.0.1:1", "127.0.0.1:2");
        let last = "127.0.0.1:3";
        let with = |to: &[&str]| found(&[(first, &[second]), (second, &[last]), (last, to)]);
        assert_eq!(with(&["127.0.0.1:4"]), None);
        assert_eq!(with(&["127.0.0.1:4", first]), Some((at(first), at(second))));
        assert_eq!(with(&[second]), Some((at(second), at(last))));
        // Who listens at an address alone has what is for it.
        assert_eq!(found(&[("0.0.0.0:1", &[first]), (first, &["127.0.0.1:4"])]), None);
    }
}
