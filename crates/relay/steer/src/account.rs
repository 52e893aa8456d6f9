//! What passed of connections, split or not, as the program has counted it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use zerocopy::FromBytes;

use crate::chances::because_of;
use crate::error::{io_error, unless_interrupted};
use crate::intf::{self, ending};
use crate::verdict::Verdict;
use midspan_decide::Because;

/// An ended connection, seen where its packets come in, whether it was split or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowRecord {
    /// Who opened it.
    pub client: SocketAddr,
    /// Whom it was opened to.
    pub server: SocketAddr,
    /// The sequence number of its SYN.
    pub sequence: u32,
    /// What became of its SYN: [`Verdict::Split`], or why it was passed.
    pub verdict: Verdict,
    /// When its SYN passed first, by the system's monotonic clock.
    pub start: Duration,
    /// The holdout that it was drawn from, if it was.
    pub holdout: Option<Drawn>,
    /// When the packet passed that ended it, or the last one if none did.
    pub end: Duration,
    /// From the client.
    pub up: Course,
    /// From the server.
    pub down: Course,
    /// How it ended.
    pub ending: Ending,
}

/// What a connection was drawn from, to be split or left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// Of a thousand so many were to be left alone.
    pub per_mille: u16,
    /// Why so many.
    pub because: Because,
    /// When the slot began in which all connections of its client had the same lot, by the system's monotonic clock. None:
    /// it had its own.
    pub slot: Option<Duration>,
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Course {
    /// Bytes of payload, each counted once however often it was sent.
    pub bytes: u64,
    /// When the first and the last new one passed, by the system's monotonic clock; none if none did.
    pub payload: Option<(Duration, Duration)>,
    /// When who they are for first acknowledged any, and when the last that it had not before: the client's, or the server's own
    /// segments say so, whether the connection was split or not. None if it has acknowledged none.
    pub acknowledged: Option<(Duration, Duration)>,
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

/// How long the last acknowledgements of a connection are waited for that both ends have finished.
const LAST_ACKNOWLEDGEMENTS: Duration = Duration::from_secs(30);
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
    /// Waits, less long if many records wait or the process was stopped meanwhile, and gives those that are there.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn poll(&self, timeout: Duration) -> io::Result<()> {
        unless_interrupted(self.records.poll(timeout))?;
        // The kernel does not tell of few.
        self.records.consume().map_err(|error| io_error(&error))
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
            let (ending, patience) = match record.up.finished && record.down.finished {
                true => (Ending::Finished, LAST_ACKNOWLEDGEMENTS.min(idle)),
                false => (Ending::Idle, idle),
            };
            if now.saturating_sub(record.end) > patience && self.flows.delete(&key).is_ok() {
                record.ending = ending;
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

/// Shows the connections that are open.
#[derive(Debug)]
pub struct OpenFlows {
    pub(crate) flows: MapHandle,
}

impl OpenFlows {
    /// What is known of each so far, as [`Ending::Idle`] with what passed last. While it is looked at connections come and
    /// go: those that are there all the time are seen.
    ///
    /// # Errors
    /// When the kernel does not show them.
    pub fn each(&self, mut look: impl FnMut(FlowRecord)) -> io::Result<()> {
        let all = self.flows.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
        let all = all.map_err(|error| io_error(&error))?;
        all.filter_map(|(_, value)| parse(&value)).for_each(&mut look);
        Ok(())
    }
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").field("flows", &self.flows).finish_non_exhaustive()
    }
}

/// A record; none if it is not one. An open connection's counts as [`Ending::Idle`], ended with its last
/// payload or the acknowledgement of that.
pub(crate) fn parse(bytes: &[u8]) -> Option<FlowRecord> {
    let flow = intf::flow::read_from_bytes(bytes).ok()?;
    let start = Duration::from_nanos(flow.start_ns);
    let (up, down) = (Course::from(&flow.up), Course::from(&flow.down));
    let (ending, end) = match flow.ending {
        ending::OPEN => {
            let of = |course: Course| [course.payload, course.acknowledged];
            let last = [up, down].into_iter().flat_map(of).flatten();
            (Ending::Idle, last.map(|(_, last)| last).max().unwrap_or(start))
        }
        code => (ending_of(code)?, Duration::from_nanos(flow.end_ns)),
    };
    Some(FlowRecord {
        client: flow.connection.client(),
        server: flow.connection.server(),
        sequence: flow.sequence,
        verdict: Verdict::of_code(flow.verdict)?,
        start,
        holdout: (flow.holdout > 0).then(|| Drawn {
            per_mille: flow.holdout,
            because: because_of(flow.because),
            slot: (flow.slot_ns > 0).then(|| Duration::from_nanos(flow.slot_ns)),
        }),
        end,
        up,
        down,
        ending,
    })
}

impl From<&intf::course> for Course {
    fn from(course: &intf::course) -> Self {
        let times = |first, last| {
            (first > 0).then_some((Duration::from_nanos(first), Duration::from_nanos(last)))
        };
        Course {
            bytes: course.bytes,
            payload: times(course.first_ns, course.last_ns),
            acknowledged: times(course.first_acknowledged_ns, course.last_acknowledged_ns),
            finished: course.finished != 0,
        }
    }
}

/// Of an ended connection.
fn ending_of(code: u32) -> Option<Ending> {
    Some(match code {
        ending::FINISHED => Ending::Finished,
        ending::RESET_BY_CLIENT => Ending::ResetByClient,
        ending::RESET_BY_SERVER => Ending::ResetByServer,
        ending::IDLE => Ending::Idle,
        ending::REPLACED => Ending::Replaced,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;
    use crate::intf::verdict;

    fn flow(ending: ending::Type) -> intf::flow {
        let (client, server) = ("10.1.0.2:40000", "[fd02::2]:443");
        intf::flow {
            connection: intf::connection::new(client.parse().unwrap(), server.parse().unwrap()),
            start_ns: 1_000,
            end_ns: 9_000,
            up: intf::course {
                bytes: 512,
                first_ns: 2_000,
                last_ns: 7_000,
                first_acknowledged_ns: 3_000,
                last_acknowledged_ns: 8_000,
                finished: 1,
                ..intf::course::new_zeroed()
            },
            verdict: verdict::PASS_HOLDOUT,
            ending,
            sequence: 77,
            ..intf::flow::new_zeroed()
        }
    }

    #[test]
    fn a_record_is_read_as_the_program_wrote_it() {
        let record = parse(flow(ending::FINISHED).as_bytes()).unwrap();
        assert_eq!(record.client, "10.1.0.2:40000".parse().unwrap());
        assert_eq!(record.server, "[fd02::2]:443".parse().unwrap());
        assert_eq!((record.verdict, record.sequence), (Verdict::PassHoldout, 77));
        assert_eq!((record.start.as_nanos(), record.end.as_nanos()), (1_000, 9_000));
        assert_eq!((record.up.bytes, record.up.finished), (512, true));
        let acknowledged = record.up.acknowledged.map(|(a, b)| (a.as_nanos(), b.as_nanos()));
        assert_eq!(acknowledged, Some((3_000, 8_000)));
        assert_eq!(record.down, Course::default());
        assert_eq!(record.ending, Ending::Finished);
    }

    /// As the kernel lays them out: its own 48 bytes, the name, the account.
    #[test]
    fn an_account_takes_whole_cache_lines_and_each_course_one() {
        let up = 48 + 8 + std::mem::offset_of!(intf::flow, up);
        let down = 48 + 8 + std::mem::offset_of!(intf::flow, down);
        let course = size_of::<intf::course>();
        assert_eq!((48 + 8 + size_of::<intf::flow>()) % 64, 0);
        assert_eq!((up / 64, down / 64), ((up + course - 1) / 64, (down + course - 1) / 64));
        assert_ne!(up / 64, down / 64);
    }

    #[test]
    fn an_open_connection_ends_with_its_last_acknowledgement() {
        let record = parse(flow(ending::OPEN).as_bytes()).unwrap();
        assert_eq!((record.ending, record.end.as_nanos()), (Ending::Idle, 8_000));
    }

    #[test]
    fn what_is_no_record_is_none() {
        assert_eq!(parse(flow(ending::REPLACED + 1).as_bytes()), None);
        assert_eq!(parse(&flow(ending::FINISHED).as_bytes()[1..]), None);
        let fuzzed = intf::flow { verdict: u32::MAX, ..flow(ending::FINISHED) };
        assert_eq!(parse(fuzzed.as_bytes()), None);
    }
}
