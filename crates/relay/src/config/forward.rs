//! Explicit mode: connections made to the relay, and whom they are passed on to.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A place where the relay is connected to, for where nothing can be intercepted. The server sees the
/// relay's address then, and not the client's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardConfig {
    /// Address and port to listen at, such as `0.0.0.0:8080` or `[::]:8080`.
    pub listen: SocketAddr,
    /// Servers as `HOST:PORT`, tried in order, each name's addresses too. Names are resolved when the
    /// relay starts.
    pub to: To,
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

    /// What is wrong with it, without asking anybody.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let is_pair = |name: &String| {
            name.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
        };
        let fits = !self.names().is_empty() && self.names().iter().all(is_pair);
        (!fits).then_some("must name servers as \"HOST:PORT\", such as \"server.example:80\"")
    }

    /// All addresses, in order.
    ///
    /// # Errors
    /// The first name that has none.
    pub(crate) fn resolve(&self) -> io::Result<Arc<[SocketAddr]>> {
        let mut all = Vec::new();
        for name in self.names() {
            let addresses = name
                .to_socket_addrs()
                .map_err(|error| io::Error::new(error.kind(), format!("`{name}`: {error}")))?;
            all.extend(addresses);
        }
        Ok(all.into())
    }
}
