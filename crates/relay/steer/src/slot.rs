//! What the relay's workers and its monitor keep in hand of the maps.

use std::io;
use std::net::{IpAddr, SocketAddr};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use midspan_observe::subscriber;
use midspan_sys::clock::monotonic;
use midspan_sys::shared::SharedBytes;
use zerocopy::{FromBytes, IntoBytes};

use crate::WORKERS;
use crate::error::io_error;
use crate::intf::{self, PROCESSORS, release, verdict};
use crate::verdict::{Counts, Verdict};

/// A worker's place among those that new connections go to. It must [beat](WorkerSlot::beat) several times
/// within half a second, or counts as dead.
#[derive(Debug)]
pub struct WorkerSlot {
    pub(crate) workers: MapHandle,
    pub(crate) full_clients: MapHandle,
    pub(crate) nearby: MapHandle,
    pub(crate) routes: MapHandle,
    pub(crate) syn_records: MapHandle,
    pub(crate) answering: MapHandle,
    pub(crate) marked_servers: SharedBytes,
    pub(crate) index: u32,
}

/// How long a prefix is passed whose server did not answer.
const DOUBT_NS: u64 = 60_000_000_000;

impl WorkerSlot {
    /// Says that the worker is alive, whether it takes new connections, how many it has room for, and how many it
    /// has.
    ///
    /// # Errors
    /// When the kernel refuses, which it has no reason to.
    pub fn beat(&self, open: bool, room: u32, flows: u32) -> io::Result<()> {
        let beat_ns = monotonic_ns();
        let worker = intf::worker { beat_ns, room, open: open.into(), flows, unused: 0 };
        self.workers
            .update(&self.index.to_ne_bytes(), worker.as_bytes(), MapFlags::ANY)
            .map_err(|error| io_error(&error))
    }

    /// Says whether the worker takes the new connections whose packets come in on a processor. Otherwise
    /// they are anyone's. No worker has processors beyond the 1024th to itself.
    ///
    /// # Errors
    /// When the kernel refuses, which it has no reason to.
    pub fn take_nearby(&self, processor: usize, wanted: bool) -> io::Result<()> {
        let Some(processor) = u32::try_from(processor).ok().filter(|it| *it < PROCESSORS) else {
            return Ok(());
        };
        let key = self.index / WORKERS * PROCESSORS + processor;
        let worker = if wanted { self.index % WORKERS + 1 } else { 0 };
        self.nearby
            .update(&key.to_ne_bytes(), &worker.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| io_error(&error))
    }

    /// Says whether a client has as many connections as it may, so that further ones are passed.
    ///
    /// # Errors
    /// When more clients are at their limit than the map has room for.
    pub fn set_full(&self, client: IpAddr, full: bool) -> io::Result<()> {
        let key = intf::address::from(subscriber(client));
        let result = match full {
            true => self.full_clients.update(key.as_bytes(), &[1], MapFlags::ANY),
            false => self.full_clients.delete(key.as_bytes()),
        };
        result.map_err(|error| io_error(&error))
    }

    /// Says that a server has refused, or not answered: it is not taken to answer the next client.
    pub fn distrust(&self, server: SocketAddr) {
        // It may be none of those that are.
        let _ = self.answering.delete(intf::service::from(server).as_bytes());
    }

    /// Says that a server did not answer. It may be down, or its answers may come by another way: new
    /// connections to its prefix (/24, or /48 of IPv6) pass for a minute, and how they fare tells.
    ///
    /// # Errors
    /// When the kernel refuses, which it has no reason to.
    pub fn doubt(&self, server: IpAddr) -> io::Result<()> {
        let (key, now) = (intf::network_of(server), monotonic_ns());
        let known = self.routes.lookup(key.as_bytes(), MapFlags::ANY);
        let known = known.map_err(|error| io_error(&error))?;
        let known = known.and_then(|bytes| intf::route::read_from_bytes(&bytes).ok());
        // What the program has found out by itself says more.
        if known.is_some_and(|route| route.until_ns > now) {
            return Ok(());
        }
        let route = intf::route { until_ns: now + DOUBT_NS };
        self.routes
            .update(key.as_bytes(), route.as_bytes(), MapFlags::ANY)
            .map_err(|error| io_error(&error))
    }
}

impl WorkerSlot {
    /// The code point of the packet by which a server has answered; none if that is not known any more. It takes a system
    /// call only for servers that have ever had one, and a few others.
    ///
    /// # Errors
    /// When the kernel refuses, which it has no reason to.
    pub fn answer_dscp(&self, client: SocketAddr, server: SocketAddr) -> io::Result<Option<u8>> {
        if self.marked_servers.get(intf::place_of(server.ip())) == Some(0) {
            return Ok(Some(0));
        }
        let found = self.syn_record(&intf::connection::new(client, server))?;
        Ok(found.map(|record| record.answer_dscp))
    }

    /// Says what becomes of a SYN that is held: it is split if the server has `confirmed`, and else goes on
    /// to the server.
    ///
    /// # Errors
    /// When it is not held any more, or the kernel refuses.
    pub fn release(
        &self,
        client: SocketAddr,
        server: SocketAddr,
        confirmed: bool,
    ) -> io::Result<()> {
        let key = intf::connection::new(client, server);
        let mut record = self.syn_record(&key)?.ok_or(io::ErrorKind::NotFound)?;
        if u32::from(record.verdict) != verdict::HELD {
            return Err(io::ErrorKind::NotFound.into());
        }
        record.release = if confirmed { release::CONFIRMED } else { release::REFUSED } as u8;
        self.syn_records
            .update(key.as_bytes(), record.as_bytes(), MapFlags::EXIST)
            .map_err(|error| io_error(&error))
    }

    fn syn_record(&self, key: &intf::connection) -> io::Result<Option<intf::syn_record>> {
        let found = self.syn_records.lookup(key.as_bytes(), MapFlags::ANY);
        let found = found.map_err(|error| io_error(&error))?;
        Ok(found.and_then(|bytes| intf::syn_record::read_from_bytes(&bytes).ok()))
    }
}

/// The counts of verdicts, for who only reads them.
#[derive(Debug)]
pub struct Tally {
    pub(crate) counts: MapHandle,
}

impl Tally {
    /// How often each verdict was given so far.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn read(&self) -> io::Result<Counts> {
        let mut counts = [0; Verdict::ALL.len()];
        for (verdict, count) in Verdict::ALL.iter().zip(&mut counts) {
            let key = (*verdict as u32).to_ne_bytes();
            let found = self.counts.lookup_percpu(&key, MapFlags::ANY);
            let of_processors = found.map_err(|error| io_error(&error))?.unwrap_or_default();
            *count =
                of_processors.iter().filter_map(|bytes| u64::read_from_bytes(bytes).ok()).sum();
        }
        Ok(Counts(counts))
    }
}

/// What BPF programs read as the time.
fn monotonic_ns() -> u64 {
    monotonic().as_nanos() as u64
}
