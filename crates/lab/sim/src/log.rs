//! What senders do, for those who want to be told.

use std::collections::BTreeMap;

use midspan_scenario::record::Variant;
use midspan_tcp::Event;
use midspan_units::Time;

use crate::host::{self, Host};

/// An end of a TCP leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// As a record has it: `ue`, `enb`, `mec` or `server`.
    pub host: &'static str,
    /// As a record has it: `end-to-end`, `client` or `server`.
    pub leg: &'static str,
    /// Which of this host's ends of such legs, from 0, in the order in which they were opened.
    pub number: u32,
    /// It has opened the leg, and not accepted it.
    pub initiates: bool,
    /// Its congestion control.
    pub congestion_control: String,
}

/// What is told of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told<'a> {
    /// What its sender did, and when. Times of an end do not decrease.
    Event(Time, &'a Event),
    /// There is no more. Not told of those that are there when the run ends.
    Over,
}

/// Is told of every end but those of cross traffic.
pub type Log = Box<dyn FnMut(&End, Told<'_>)>;

/// A log, and the ends so far.
pub(crate) struct Logged {
    log: Log,
    variant: Variant,
    numbers: BTreeMap<(Host, &'static str), u32>,
}

impl Logged {
    pub(crate) fn new(log: Log, variant: Variant) -> Logged {
        Logged { log, variant, numbers: BTreeMap::new() }
    }

    /// The end on `host` of a leg that is being opened.
    pub(crate) fn open(&mut self, host: Host, peer: Host, initiates: bool, control: &str) -> End {
        let leg = host::leg(self.variant, host, peer);
        let next = self.numbers.entry((host, leg)).or_default();
        let number = *next;
        *next += 1;
        End {
            host: host::name(host),
            leg,
            number,
            initiates,
            congestion_control: control.to_owned(),
        }
    }

    pub(crate) fn tell(&mut self, end: &End, what: Told<'_>) {
        (self.log)(end, what);
    }
}
