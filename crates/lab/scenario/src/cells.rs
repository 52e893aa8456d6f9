//! A mobile network in place of one UE's access: the file's `[cells]`.

use midspan_path::lte::{CELLS, LteSpec, NetworkSpec};
use midspan_units::Span;
use serde::{Deserialize, Serialize};

use crate::{PathSpec, Workload};

/// Seven LTE cells with users, before the path: `path.access` is then the link between each base
/// station and the gateway, which is the MEC, and `path.wide` that between the gateway and each server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    /// In each cell at the beginning: users of whom each runs the workload.
    pub users: u32,
    /// Where Midspan's relay splits their connections.
    #[serde(default)]
    pub split: Split,
    /// Whose connections it splits: those of the others pass.
    #[serde(default, skip_serializing_if = "is_all")]
    pub clients: Clients,
    /// How many servers there are, each behind a link of its own: the users of one cell share one, and
    /// so do those of several where there are fewer servers than cells.
    #[serde(default = "one_each")]
    pub servers: u32,
    /// How many links there are between base stations and the gateway: one each, or fewer, which base
    /// stations share.
    #[serde(default = "one_each", skip_serializing_if = "is_one_each")]
    pub links: u32,
    /// From the end of a user's page or video to the beginning of its next one.
    #[serde(default)]
    pub pause: Span,
    /// Users beside them, in whom no number is interested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Others>,
    /// The radio network.
    #[serde(default)]
    pub radio: LteSpec,
}

/// Users who run something else for as long as the workload takes. What ends begins anew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// In each cell at the beginning.
    pub users: u32,
    /// What each of them runs.
    pub workload: Workload,
}

/// Where relays split the connections of a mobile network's users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// At the gateway: the SAE-GW, which a handover does not change.
    #[default]
    Gateway,
    /// At the base stations: what a relay holds of a user moves along with it.
    Enb,
    /// At both.
    Both,
}

/// Whose connections the relays of a mobile network split, as a live relay's `clients` and policy say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clients {
    /// Everybody's.
    #[default]
    All,
    /// Of those who run the workload.
    Users,
    /// Of those beside them.
    Others,
}

fn one_each() -> u32 {
    CELLS as u32
}

/// Files from before there was the key keep their digest, as with `links`.
fn is_all(clients: &Clients) -> bool {
    *clients == Clients::All
}

/// Files from before there was the key keep their digest.
fn is_one_each(count: &u32) -> bool {
    *count == one_each()
}

impl Cells {
    /// Users of all cells, those with another workload included.
    pub fn total(&self) -> u32 {
        let others = self.others.iter().map(|others| others.users);
        others.fold(self.users, u32::saturating_add).saturating_mul(CELLS as u32)
    }

    /// Users of whom each runs the workload.
    pub fn running(&self) -> u32 {
        self.users.saturating_mul(CELLS as u32)
    }

    /// The server of user `number`, counted from 0: that of the cell in which it begins.
    pub fn server_of(&self, number: u32) -> u32 {
        number % CELLS as u32 % self.servers
    }

    /// The network that users are in; `path` has its links.
    pub fn network<'a>(&'a self, path: &'a PathSpec) -> NetworkSpec<'a> {
        NetworkSpec {
            radio: &self.radio,
            users: self.total(),
            links: self.links,
            access: &path.access,
            servers: self.servers,
            wide: &path.wide,
        }
    }

    /// Whether relays split the connections of user `number`, those who run the workload first.
    pub fn splits(&self, number: u32) -> bool {
        match self.clients {
            Clients::All => true,
            Clients::Users => number < self.running(),
            Clients::Others => number >= self.running(),
        }
    }
}
