//! How many new connections are left alone, by group of clients and server.

use core::net::IpAddr;

use ipnet::IpNet;

/// What something is decided of. The closest that there is holds of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Of {
    /// All clients' connections to the servers of a prefix, but for those of longer ones.
    Servers(IpNet),
    /// Those of the clients of one group to one server.
    Place {
        /// Its number; 0 is of all clients that are in none.
        group: u32,
        /// The server's address.
        server: IpAddr,
    },
}

/// How many are left alone, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chance {
    /// Of a thousand so many; 0 to 1000.
    pub per_mille: u16,
    /// Why.
    pub because: Because,
}

/// Why so many connections are left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Because {
    /// The policy says so.
    ByPolicy,
    /// Whether splitting harms is not known.
    Unknown,
    /// It does not.
    Fine,
    /// It does.
    Harm,
    /// An operator has said so.
    Pinned,
}

impl Because {
    /// What it is called in logs and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Because::ByPolicy => "told",
            Because::Unknown => "unknown",
            Because::Fine => "fine",
            Because::Harm => "harm",
            Because::Pinned => "pinned",
        }
    }
}
