//! The three hosts, and what programs on them are told.

use std::net::IpAddr;

use crate::topology::{Addresses, MEC_ACCESS, SERVER, UE};

/// A host of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// Where the user's program runs.
    Ue,
    /// Where the relay is, if there is one.
    Mec,
    /// Beyond the wide area.
    Server,
}

impl Host {
    /// All of them, from the radio to the wide area.
    pub const ALL: [Host; 3] = [Host::Ue, Host::Mec, Host::Server];

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Host::Ue => "ue",
            Host::Mec => "mec",
            Host::Server => "server",
        }
    }

    /// Its addresses; the MEC's are those towards the UE.
    pub fn addresses(self) -> [IpAddr; 2] {
        let both = |of: Addresses| [of.v4.into(), of.v6.into()];
        match self {
            Host::Ue => both(UE),
            Host::Mec => both(MEC_ACCESS),
            Host::Server => both(SERVER),
        }
    }

    /// What a program on it finds in its environment. `title` says what the path is.
    pub(super) fn environment(self, title: &str) -> Vec<(&'static str, String)> {
        vec![
            ("MIDSPAN_SHELL", format!("{} {title}", self.name())),
            ("MIDSPAN_UE", UE.v4.to_string()),
            ("MIDSPAN_MEC", MEC_ACCESS.v4.to_string()),
            ("MIDSPAN_SERVER", SERVER.v4.to_string()),
            ("MIDSPAN_UE6", UE.v6.to_string()),
            ("MIDSPAN_MEC6", MEC_ACCESS.v6.to_string()),
            ("MIDSPAN_SERVER6", SERVER.v6.to_string()),
        ]
    }
}
