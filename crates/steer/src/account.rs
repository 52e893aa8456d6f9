//! What passed of connections, split or not, as the program has counted it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};

use crate::error::io_error;
use crate::verdict::Verdict;

/// An ended connection, seen where its packets come in, whether it was split or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowRecord {
    /// Who opened it.
    pub client: SocketAddr,
    /// Whom it was opened to.
    pub server: SocketAddr,
    /// What became of its opening: [`Verdict::Split`], or why it was passed.
    pub verdict: Verdict,
    /// When its SYN passed, by the system's monotonic clock.
    pub start: Duration,
    /// When the packet passed that ended it, or the last one if none did.
    pub end: Duration,
    /// From the client.
    pub up: Course,
    /// From the server.
    pub down: Course,
    /// How it ended.
    pub ending: Ending,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Course {
    /// Bytes of payload, each counted once however often it was sent.
    pub bytes: u64,
    /// When the first and the last new one passed, by the system's monotonic clock; none if none did.
    pub payload: Option<(Duration, Duration)>,
    /// Whether its FIN passed.
    pub finished: bool,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Both sides' FINs passed.
    Finished,
    /// The client reset it.
    ResetByClient,
    /// The server reset it.
    ResetByServer,
    /// Nothing was heard of it for long.
    Idle,
    /// Another one with the same addresses and ports was opened.
    Replaced,
}

impl Ending {
    /// What it is called in logs and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Ending::Finished => "finished",
            Ending::ResetByClient => "reset_by_client",
            Ending::ResetByServer => "reset_by_server",
            Ending::Idle => "idle",
            Ending::Replaced => "replaced",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// `struct flow` of `bpf/record.h`.
const FLOW: usize = 128;
/// `struct connection` of it.
const CONNECTION: usize = 36;
/// Flows that are looked at in one call.
const BATCH: u32 = 1024;

/// Takes the records of ended connections from the kernel. One at a time may.
pub struct Accounts {
    records: RingBuffer<'static>,
    flows: MapHandle,
    sink: Sink,
}

type Sink = std::rc::Rc<std::cell::RefCell<dyn FnMut(FlowRecord)>>;

/// The kernel's side of [`Accounts`], to be passed to the thread that takes them.
#[derive(Debug)]
pub struct AccountsSource {
    pub(crate) records: MapHandle,
    pub(crate) flows: MapHandle,
}

impl AccountsSource {
    /// Has every record given to `sink`.
    ///
    /// # Errors
    /// When the kernel does not lend its buffer.
    pub fn open(self, sink: impl FnMut(FlowRecord) + 'static) -> io::Result<Accounts> {
        let sink: Sink = std::rc::Rc::new(std::cell::RefCell::new(sink));
        let give = sink.clone();
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            if let Some(record) = parse(bytes) {
                (give.borrow_mut())(record);
            }
            0
        };
        builder.add(&self.records, take).map_err(|error| io_error(&error))?;
        let records = builder.build().map_err(|error| io_error(&error))?;
        Ok(Accounts { records, flows: self.flows, sink })
    }
}

impl Accounts {
    /// Waits, less long if many records wait, and gives those that are there.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn poll(&self, timeout: Duration) -> io::Result<()> {
        let polled = self.records.poll(timeout);
        // The kernel does not tell of few.
        polled.and_then(|()| self.records.consume()).map_err(|error| io_error(&error))
    }

    /// Gives up connections of which nothing was heard since `idle` before `now`, each with its record.
    /// `now` is the system's monotonic clock.
    ///
    /// # Errors
    /// When the kernel does not show the connections.
    pub fn give_up(&self, now: Duration, idle: Duration) -> io::Result<()> {
        let all = self.flows.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
        for (key, value) in all.map_err(|error| io_error(&error))? {
            let Some(mut record) = parse(&value) else { continue };
            if now.saturating_sub(record.end) > idle && self.flows.delete(&key).is_ok() {
                record.ending = Ending::Idle;
                (self.sink.borrow_mut())(record);
            }
        }
        Ok(())
    }

    /// Connections that are open now, as far as is known.
    ///
    /// # Errors
    /// When the kernel does not show the connections.
    pub fn open(&self) -> io::Result<usize> {
        let all = self.flows.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
        Ok(all.map_err(|error| io_error(&error))?.count())
    }
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").field("flows", &self.flows).finish_non_exhaustive()
    }
}

/// A `struct flow`; none if it is not one. An open one counts as [`Ending::Idle`], ended with its
/// last payload.
pub(crate) fn parse(bytes: &[u8]) -> Option<FlowRecord> {
    let bytes: &[u8; FLOW] = bytes.first_chunk()?;
    let long = |at: usize| bytes[at..].first_chunk().map(|b| u64::from_ne_bytes(*b));
    let short = |at: usize| bytes[at..].first_chunk().map(|b| u32::from_ne_bytes(*b));
    let course = |at: usize| {
        let (first, last) = (long(at + 8)?, long(at + 16)?);
        let payload = (Duration::from_nanos(first), Duration::from_nanos(last));
        let payload = (first > 0).then_some(payload);
        Some(Course { bytes: long(at)?, payload, finished: short(at + 28)? != 0 })
    };
    let start = Duration::from_nanos(long(CONNECTION + 4)?);
    let (up, down) = (course(56)?, course(88)?);
    let (ending, end) = match short(124)? {
        0 => {
            let last = [up, down].into_iter().filter_map(|course| course.payload);
            (Ending::Idle, last.map(|(_, last)| last).max().unwrap_or(start))
        }
        code => (ending(code)?, Duration::from_nanos(long(48)?)),
    };
    Some(FlowRecord {
        client: socket_address(&bytes[..16], &bytes[32..34])?,
        server: socket_address(&bytes[16..32], &bytes[34..36])?,
        verdict: *Verdict::ALL.get(short(120)? as usize)?,
        start,
        end,
        up,
        down,
        ending,
    })
}

/// `enum ending`, but for an open one.
fn ending(code: u32) -> Option<Ending> {
    Some(match code {
        1 => Ending::Finished,
        2 => Ending::ResetByClient,
        3 => Ending::ResetByServer,
        4 => Ending::Idle,
        5 => Ending::Replaced,
        _ => return None,
    })
}

pub(crate) fn socket_address(address: &[u8], port: &[u8]) -> Option<SocketAddr> {
    let address = Ipv6Addr::from(*address.first_chunk::<16>()?);
    let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
    Some(SocketAddr::new(address, u16::from_be_bytes(*port.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(ending: u32) -> Vec<u8> {
        let mut bytes = vec![0; FLOW];
        bytes[..16].copy_from_slice(&"::ffff:10.1.0.2".parse::<Ipv6Addr>().unwrap().octets());
        bytes[16..32].copy_from_slice(&"fd02::2".parse::<Ipv6Addr>().unwrap().octets());
        bytes[32..34].copy_from_slice(&40_000u16.to_be_bytes());
        bytes[34..36].copy_from_slice(&443u16.to_be_bytes());
        let mut put = |at: usize, value: u64| {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        };
        put(40, 1_000);
        put(48, 9_000);
        put(56, 512);
        put(64, 2_000);
        put(72, 7_000);
        bytes[84..88].copy_from_slice(&1u32.to_ne_bytes());
        bytes[120..124].copy_from_slice(&(Verdict::PassHoldout as u32).to_ne_bytes());
        bytes[124..128].copy_from_slice(&ending.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_record_is_read_as_the_program_wrote_it() {
        let record = parse(&flow(1)).unwrap();
        assert_eq!(record.client, "10.1.0.2:40000".parse().unwrap());
        assert_eq!(record.server, "[fd02::2]:443".parse().unwrap());
        assert_eq!(record.verdict, Verdict::PassHoldout);
        assert_eq!((record.start.as_nanos(), record.end.as_nanos()), (1_000, 9_000));
        assert_eq!((record.up.bytes, record.up.finished), (512, true));
        assert_eq!(record.down, Course::default());
        assert_eq!(record.ending, Ending::Finished);
    }

    #[test]
    fn an_open_connection_ends_with_its_last_payload() {
        let record = parse(&flow(0)).unwrap();
        assert_eq!((record.ending, record.end.as_nanos()), (Ending::Idle, 7_000));
    }

    #[test]
    fn what_is_no_record_is_none() {
        assert_eq!(parse(&flow(6)), None);
        assert_eq!(parse(&flow(1)[..FLOW - 1]), None);
        let mut wild = flow(1);
        wild[120..124].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(parse(&wild), None);
    }

    #[test]
    fn the_endings_are_the_programs() {
        let header = include_str!("../bpf/record.h");
        let body = header.split_once("enum ending {").unwrap().1.split_once("};").unwrap().0;
        let names = body.lines().filter_map(|line| line.trim().split(',').next());
        let names: Vec<_> = names.filter(|name| !name.is_empty()).map(str::to_lowercase).collect();
        assert_eq!(names[0], "open");
        for (code, name) in (1..).zip(&names[1..]) {
            assert_eq!(ending(code).unwrap().label(), name);
        }
    }
}
