//! The program in force, and what the relay tells it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel, ProgramMut, set_print,
};
use midspan_observe::subscriber;
use midspan_sys::netns::Netns;

use crate::attach::Attachment;
use crate::policy::{Policy, SPLIT_ALWAYS};
use crate::record::{self, Settings, Worker};
use crate::verdict::{Counts, Verdict};

/// Workers that a relay may have.
pub const WORKERS: u32 = 64;
/// One for IPv4 and one for IPv6.
pub const LISTENERS_PER_SLOT: u32 = 2;

/// Age of a worker's last beat at which it counts as dead.
const PATIENCE: Duration = Duration::from_millis(500);

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// Why connections cannot be steered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel did not take the program.
    #[error(
        "the steering program cannot be loaded: {0} (it takes Linux 6.1 with BTF, CAP_BPF and CAP_NET_ADMIN)"
    )]
    Load(#[source] io::Error),
    /// A link refused the program.
    #[error("the steering program cannot be attached to {interface}: {error}")]
    Attach {
        /// The link's name.
        interface: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// A map refused an entry.
    #[error("the steering program's map `{map}` cannot be written: {error}")]
    Map {
        /// Its name.
        map: &'static str,
        /// What the kernel says.
        error: io::Error,
    },
    /// More workers than there are places for.
    #[error("{0} workers are more than the {WORKERS} that can be steered to")]
    TooManyWorkers(usize),
}

/// The program, loaded, and attached where it was told to be. Dropping this detaches it; packets go on
/// then as if it had never been.
#[derive(Debug)]
pub struct Steering {
    /// By the interface's index.
    attachments: BTreeMap<u32, Attachment>,
    reopen: Option<Link>,
    maps: Maps,
    object: Object,
}

#[derive(Debug)]
struct Maps {
    settings: MapHandle,
    workers: MapHandle,
    listeners: MapHandle,
    full_clients: MapHandle,
    counts: MapHandle,
}

impl Steering {
    /// Loads the program with this policy. It acts on nothing until it is attached, and splits
    /// nothing until a [`Slot`] is open. Packets to be delivered on this host get `mark`.
    ///
    /// # Errors
    /// When the kernel or the user's rights do not suffice.
    pub fn load(policy: &Policy, workers: usize, mark: u32) -> Result<Steering, Error> {
        let workers = match u32::try_from(workers) {
            Ok(number) if number <= WORKERS => number,
            _ => return Err(Error::TooManyWorkers(workers)),
        };
        set_print(Some((PrintLevel::Debug, |_, said| {
            tracing::trace!("libbpf: {}", said.trim_end());
        })));
        let load = || ObjectBuilder::default().open_memory(OBJECT)?.load();
        let object = load().map_err(|error| Error::Load(io_error(&error)))?;
        let maps = Maps {
            settings: map(&object, "settings")?,
            workers: map(&object, "workers")?,
            listeners: map(&object, "listeners")?,
            full_clients: map(&object, "full_clients")?,
            counts: map(&object, "counts")?,
        };
        let (syn_rate, syn_burst) = policy.syn_rate.unwrap_or_default();
        let settings = Settings {
            pass_dscp: policy.dscp_word(),
            patience_ns: PATIENCE.as_nanos() as u64,
            bank: 0,
            workers,
            mark,
            holdout: policy.holdout_per_mille,
            seed: std::process::id(),
            half_open: policy.half_open,
            syn_rate,
            syn_burst,
        };
        let steering = Steering { attachments: BTreeMap::new(), reopen: None, maps, object };
        steering.write_policy(policy)?;
        put(&steering.maps.settings, "settings", &0u32.to_ne_bytes(), &settings.to_bytes())?;
        Ok(steering)
    }

    /// Attaches the program at the ingress of an interface, if it is not yet.
    ///
    /// # Errors
    /// When the link refuses it.
    pub fn attach(&mut self, index: u32, name: &str) -> Result<(), Error> {
        let failed = |error: io::Error| Error::Attach { interface: name.to_owned(), error };
        if self.reopen.is_none() {
            let here = Netns::current().map_err(failed)?;
            let link = self.program("reopen").and_then(|program| {
                program.attach_netns(here.as_fd().as_raw_fd()).map_err(|error| io_error(&error))
            });
            self.reopen = Some(link.map_err(failed)?);
        }
        if !self.attachments.contains_key(&index) {
            let program = self.program("steer").map_err(failed)?;
            let attachment = Attachment::new(&program, index).map_err(failed)?;
            self.attachments.insert(index, attachment);
        }
        Ok(())
    }

    /// Forgets the attachments to interfaces that are not among these any more.
    pub fn retain(&mut self, present: &[u32]) {
        self.attachments.retain(|index, _| present.contains(index));
    }

    /// A worker's place. `listeners` are its own, IPv4 and IPv6, where it has them; each must listen
    /// already, be transparent, and be the only one of its address and port.
    ///
    /// # Errors
    /// When the kernel does not take a listener.
    pub fn slot(
        &self,
        worker: usize,
        listeners: [Option<BorrowedFd<'_>>; LISTENERS_PER_SLOT as usize],
    ) -> Result<Slot, Error> {
        let index = u32::try_from(worker).ok().filter(|index| *index < WORKERS);
        let index = index.ok_or(Error::TooManyWorkers(worker))?;
        for (family, listener) in (0..).zip(listeners) {
            if let Some(listener) = listener {
                let key: u32 = index * LISTENERS_PER_SLOT + family;
                let fd = listener.as_raw_fd() as u64;
                put(&self.maps.listeners, "listeners", &key.to_ne_bytes(), &fd.to_ne_bytes())?;
            }
        }
        Ok(Slot {
            workers: clone(&self.maps.workers, "workers")?,
            full_clients: clone(&self.maps.full_clients, "full_clients")?,
            index,
        })
    }

    /// What counts the verdicts.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn tally(&self) -> Result<Tally, Error> {
        Ok(Tally { counts: clone(&self.maps.counts, "counts")? })
    }

    fn write_policy(&self, policy: &Policy) -> Result<(), Error> {
        for (name, prefixes) in
            [("clients", policy.clients.clone()), ("servers", policy.all_servers())]
        {
            let map = map(&self.object, name)?;
            for (prefix, choice) in prefixes {
                put(&map, name, &record::prefix(prefix), &[choice.to_byte()])?;
            }
        }
        let ports = map(&self.object, "ports")?;
        for (index, word) in (0u32..).zip(policy.port_words()) {
            put(&ports, "ports", &index.to_ne_bytes(), &word.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Has all connections of a client split whatever the policy, to prove that they arrive, or
    /// not any more.
    ///
    /// # Errors
    /// When the map is full, or the client was none.
    pub fn set_probe(&self, client: IpAddr, is_one: bool) -> Result<(), Error> {
        let clients = map(&self.object, "clients")?;
        let key = record::prefix(client.into());
        match is_one {
            true => put(&clients, "clients", &key, &[SPLIT_ALWAYS]),
            false => clients
                .delete(&key)
                .map_err(|error| Error::Map { map: "clients", error: io_error(&error) }),
        }
    }

    fn program(&self, name: &str) -> io::Result<ProgramMut<'_>> {
        let missing = || io::Error::other(format!("the object has no program `{name}`"));
        self.object.progs_mut().find(|program| program.name() == name).ok_or_else(missing)
    }
}

/// A worker's place among those that new connections go to. It must [beat](Slot::beat) several times
/// within half a second, or counts as dead.
#[derive(Debug)]
pub struct Slot {
    workers: MapHandle,
    full_clients: MapHandle,
    index: u32,
}

impl Slot {
    /// Says that the worker is alive, whether it takes new connections, and how many it has room for.
    ///
    /// # Errors
    /// When the kernel refuses, which it has no reason to.
    pub fn beat(&self, open: bool, room: u32) -> io::Result<()> {
        let worker = Worker { beat_ns: monotonic_ns(), room, open };
        self.workers
            .update(&self.index.to_ne_bytes(), &worker.to_bytes(), MapFlags::ANY)
            .map_err(|error| io_error(&error))
    }

    /// Says whether a client has as many connections as it may, so that further ones are passed.
    ///
    /// # Errors
    /// When more clients are at their limit than the map has room for.
    pub fn set_full(&self, client: IpAddr, full: bool) -> io::Result<()> {
        let key = record::address(subscriber(client));
        let result = match full {
            true => self.full_clients.update(&key, &[1], MapFlags::ANY),
            false => self.full_clients.delete(&key),
        };
        result.map_err(|error| io_error(&error))
    }
}

/// The counts of verdicts, for who only reads them.
#[derive(Debug)]
pub struct Tally {
    counts: MapHandle,
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
            *count = of_processors.iter().map(|bytes| word(bytes)).sum();
        }
        Ok(Counts(counts))
    }
}

fn map(object: &Object, name: &'static str) -> Result<MapHandle, Error> {
    let failed = |error| Error::Map { map: name, error };
    let found = object.maps().find(|map| map.name() == name);
    let found = found.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    MapHandle::try_from(&found).map_err(|error| failed(io_error(&error)))
}

fn clone(map: &MapHandle, name: &'static str) -> Result<MapHandle, Error> {
    MapHandle::try_from(map).map_err(|error| Error::Map { map: name, error: io_error(&error) })
}

fn put(map: &MapHandle, name: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
    map.update(key, value, MapFlags::ANY)
        .map_err(|error| Error::Map { map: name, error: io_error(&error) })
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// What BPF programs read as the time.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The kernel's error, with the library's words around it.
fn io_error(error: &libbpf_rs::Error) -> io::Error {
    io::Error::new(error.kind().into_io(), format!("{error:#}"))
}

/// The kinds are the same, by another name.
trait IntoIo {
    fn into_io(self) -> io::ErrorKind;
}

impl IntoIo for libbpf_rs::ErrorKind {
    fn into_io(self) -> io::ErrorKind {
        match self {
            libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
            libbpf_rs::ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::Other,
        }
    }
}

#[cfg(test)]
mod packets;
