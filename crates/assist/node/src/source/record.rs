use std::fmt;
use std::net::IpAddr;

use midspan_assist_proto::{LinkReading, Rnti};
use midspan_units::Span;
use serde::Deserialize;

/// What one record of a source says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// By the source's own clock, in microseconds.
    pub stamp: Option<u64>,
    /// UE by UE.
    pub samples: Vec<Sample>,
}

/// What it says of one UE.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Which.
    pub name: UeName,
    /// Over how long; None: since the last record.
    pub window: Option<Span>,
    /// Towards the UE.
    pub downlink: LinkReading,
    /// From it.
    pub uplink: LinkReading,
}

/// How a source calls a UE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(untagged)]
pub enum UeName {
    /// As the base station does; somebody must say which address that is.
    Rnti(Rnti),
    /// By its address.
    Address(IpAddr),
}

impl fmt::Display for UeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UeName::Rnti(rnti) => write!(f, "RNTI {rnti}"),
            UeName::Address(address) => address.fmt(f),
        }
    }
}

/// A record that makes no sense, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Unreadable(error.to_string())
    }
}

/// Reads a source's records, one after the other.
pub trait Format: Send {
    /// What the record says; None if it is about something else.
    ///
    /// # Errors
    /// When it makes no sense.
    fn read(&mut self, record: &[u8]) -> Result<Option<Batch>, Unreadable>;
}

/// A number of a report as a whole one. None for what is negative or no number.
pub(crate) fn whole(value: f64) -> Option<u64> {
    (value.is_finite() && value >= 0.0).then_some(value.round() as u64)
}
