//! Explicit mode: connections made to the relay, and whom they are passed on to.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::proxy_protocol::ProxyVersion;
use crate::servers::Servers;

/// A place where the relay is connected to, for where nothing can be intercepted. The server sees the
/// relay's address then, and not the client's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardConfig {
    /// Address and port to listen at, such as `0.0.0.0:8080` or `[::]:8080`.
    pub listen: SocketAddr,
    /// Servers as `HOST:PORT`, tried in order, each name's addresses too; those last that could not be connected to
    /// in the last 10 s. Names are resolved when the relay starts.
    pub to: To,
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

/// The same as [`ForwardConfig`], with names resolved.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) listen: SocketAddr,
    pub(crate) to: Servers,
    proxies: Vec<IpNet>,
    pub(crate) send: Option<ProxyVersion>,
}

impl ForwardConfig {
    /// What is wrong with it, without asking anybody.
    pub(super) fn fault(&self) -> Option<&'static str> {
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

    /// Resolves its names.
    ///
    /// # Errors
    /// The first name that has no address.
    pub(crate) fn resolve(&self) -> io::Result<Forward> {
        let proxy = self.proxy_protocol.as_ref();
        Ok(Forward {
            listen: self.listen,
            to: Servers::new(self.to.resolve()?),
            proxies: proxy.map_or(Vec::new(), |proxy| proxy.from.clone()),
            send: proxy.and_then(|proxy| proxy.send),
        })
    }
}

impl Forward {
    /// Whether its connections begin with a PROXY protocol header.
    pub(crate) fn is_told(&self) -> bool {
        !self.proxies.is_empty()
    }

    /// Whether this is a proxy that may tell whose connection it passes on.
    pub(crate) fn trusts(&self, proxy: IpAddr) -> bool {
        self.proxies.iter().any(|prefix| prefix.contains(&proxy))
    }
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
    fn names(&self) -> &[String] {
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

    /// All addresses, in order.
    fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let mut all = Vec::new();
        for name in self.names() {
            let addresses = name
                .to_socket_addrs()
                .map_err(|error| io::Error::new(error.kind(), format!("`{name}`: {error}")))?;
            all.extend(addresses);
        }
        Ok(all)
    }
}
