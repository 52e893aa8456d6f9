//! What is told of the relay, and where.

use core::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use midspan_units::ByteSize;
use serde::{Deserialize, Serialize};

/// What is told in all that follows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// How subscribers are shown.
    #[serde(default)]
    pub addresses: AddressesKind,
    /// A file with the key of the pseudonyms, 32 hexadecimal digits, so that they outlast a run;
    /// made with a random key where it is not there. Absent: a random key for each run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

/// How subscribers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressesKind {
    /// By a keyed hash of their address.
    #[default]
    Pseudonym,
    /// By address and port.
    Plain,
}

/// Where metrics are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsConfig {
    /// Address and port of `http://.../metrics`.
    #[serde(default = "default_metrics_listen")]
    pub listen: SocketAddr,
}

fn default_metrics_listen() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 9742)
}

/// The flow log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowLogConfig {
    /// The file, which is appended to.
    pub path: PathBuf,
    /// Size at which it is renamed and begun anew. Absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<ByteSize>,
    /// Renamed files that are kept.
    #[serde(default = "default_keep")]
    pub keep: u32,
    /// Whether flows have a line when they begin as well.
    #[serde(default)]
    pub starts: bool,
}

fn default_keep() -> u32 {
    5
}

/// Where a running relay is asked and told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminConfig {
    /// The Unix socket. Its folder is made if it is not there, but not that folder's.
    #[serde(default = "default_admin_socket")]
    pub socket: PathBuf,
}

fn default_admin_socket() -> PathBuf {
    AdminConfig::SOCKET.into()
}

impl AdminConfig {
    /// Where the socket is if the configuration does not say.
    pub const SOCKET: &str = "/run/midspan/relay.sock";

    pub(crate) fn first_fault(&self) -> Option<(&'static str, &'static str)> {
        // The kernel's limit is 108 bytes, and another name beside it is needed for a moment.
        let length = self.socket.as_os_str().len();
        let fits = (1..=100).contains(&length) && self.socket.file_name().is_some();
        (!fits).then_some(("socket", "must name a socket in at most 100 bytes"))
    }
}

impl FlowLogConfig {
    pub(crate) fn first_fault(&self) -> Option<(&'static str, &'static str)> {
        if self.path.as_os_str().is_empty() {
            return Some(("path", "must name a file"));
        }
        if self.max_size.is_some_and(|size| size.as_bytes() < 4096) {
            return Some(("max_size", "must be at least 4 KiB"));
        }
        (!(1..=1000).contains(&self.keep)).then_some(("keep", "must be between 1 and 1000"))
    }
}
