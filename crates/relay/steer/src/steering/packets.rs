//! The program's parser against packets that nobody should send: each goes through the kernel's
//! BPF_PROG_TEST_RUN, and through a reading of the same bytes in Rust, and both must agree.
//!
//! What the program took a packet for is seen in its counts, in what it remembers, and in the mark of
//! what is to be delivered here.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use midspan_sys::netns::Netns;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::{Choice, Tally, Verdict};

/// What a packet is to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Nothing,
    /// A part of a segment, and whose it is if it is the first and opens no connection.
    Fragment {
        of: Id,
        is_first: bool,
        connection: Option<Connection>,
    },
    /// A segment of a connection, and whether it opens it.
    Segment {
        connection: Connection,
        opens: Option<u32>,
    },
    /// An error about a connection.
    Error(Connection),
}

/// What fragments of a datagram have in common.
type Id = (IpAddr, IpAddr, [u8; 4]);

/// Where in its datagram a fragment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fragment {
    id: [u8; 4],
    is_first: bool,
}

/// From where it comes, and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Connection {
    from: SocketAddr,
    to: SocketAddr,
}

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Reads a frame as RFC 791, 792, 4443, 8200 and 9293 would have it, taking nothing on trust.
fn read(frame: &[u8]) -> Option<Read> {
    // To another host than the loopback interface.
    if frame[..6] != [0; 6] {
        return None;
    }
    let mut ethertype = be16(frame, 12)?;
    let mut rest = frame.get(14..)?;
    for _ in 0..2 {
        if matches!(ethertype, 0x8100 | 0x88a8) {
            ethertype = be16(rest, 2)?;
            rest = &rest[4..];
        }
    }
    let datagram = read_datagram(rest)?;
    let expected = if datagram.from.is_ipv4() { 0x800 } else { 0x86dd };
    if ethertype != expected {
        return None;
    }
    let icmp = if datagram.from.is_ipv4() { ICMP } else { ICMPV6 };
    if datagram.protocol == icmp && datagram.fragment.is_none() {
        return read_error(&datagram);
    }
    if datagram.protocol != TCP {
        return None;
    }
    if let Some(Fragment { id, is_first }) = datagram.fragment {
        let header = datagram.payload.get(..20).filter(|header| is_first && header[12] >> 4 >= 5);
        let connection = header.filter(|header| header[13] & 2 == 0);
        let connection = connection.and_then(|_| read_ports(&datagram));
        let of = (datagram.from, datagram.to, id);
        return Some(Read::Fragment { of, is_first: header.is_some(), connection });
    }
    let segment = datagram.payload;
    let connection = read_ports(&datagram)?;
    let (header, flags) = (usize::from(segment.get(12)? >> 4) * 4, segment.get(13)?);
    if header < 20 || segment.len() < 20 {
        return None;
    }
    // SYN without ACK, RST and FIN; and all of it is there.
    let whole = datagram.length.is_some_and(|length| header <= length && length <= segment.len());
    let opens = (flags & 0b1_0111 == 0b10).then(|| be32(segment, 4)).flatten();
    match opens {
        Some(_) if !whole => None,
        _ => Some(Read::Segment { connection, opens }),
    }
}

/// The error's connection, as if the quoted packet came back.
fn read_error(outer: &Datagram<'_>) -> Option<Read> {
    let kind = outer.payload.first()?;
    let is_error = match outer.from {
        IpAddr::V4(_) => matches!(kind, 3 | 11 | 12),
        IpAddr::V6(_) => matches!(kind, 1..=4),
    };
    let quoted = read_datagram(outer.payload.get(8..)?)?;
    let same = quoted.from.is_ipv4() == outer.from.is_ipv4();
    if !is_error || !same || quoted.protocol != TCP || quoted.fragment.is_some() {
        return None;
    }
    let Connection { from, to } = read_ports(&quoted)?;
    Some(Read::Error(Connection { from: to, to: from }))
}

fn read_ports(datagram: &Datagram<'_>) -> Option<Connection> {
    let (from, to) = (be16(datagram.payload, 0)?, be16(datagram.payload, 2)?);
    Some(Connection {
        from: SocketAddr::new(datagram.from, from),
        to: SocketAddr::new(datagram.to, to),
    })
}

struct Datagram<'a> {
    from: IpAddr,
    to: IpAddr,
    fragment: Option<Fragment>,
    protocol: u8,
    payload: &'a [u8],
    /// Of the payload, by the header; none if that cannot be.
    length: Option<usize>,
}

fn read_datagram(bytes: &[u8]) -> Option<Datagram<'_>> {
    match bytes.first()? >> 4 {
        4 => {
            let fixed = bytes.get(..20)?;
            let header = usize::from(bytes[0] & 15) * 4;
            if header < 20 {
                return None;
            }
            let address =
                |at: usize| IpAddr::from(<[u8; 4]>::try_from(&fixed[at..at + 4]).unwrap());
            Some(Datagram {
                from: address(12),
                to: address(16),
                fragment: (be16(bytes, 6)? & 0x3fff != 0).then_some(Fragment {
                    id: [bytes[4], bytes[5], 0, 0],
                    is_first: be16(bytes, 6)? & 0x1fff == 0,
                }),
                protocol: bytes[9],
                payload: bytes.get(header..).unwrap_or_default(),
                length: usize::from(be16(bytes, 2)?).checked_sub(header),
            })
        }
        6 => {
            let fixed = bytes.get(..40)?;
            let address =
                |at: usize| IpAddr::from(<[u8; 16]>::try_from(&fixed[at..at + 16]).unwrap());
            let (mut protocol, mut at, mut fragment) = (bytes[6], 40, None);
            // Hop-by-hop options, routing, fragment, destination options: five at most.
            for _ in 0..5 {
                if !matches!(protocol, 0 | 43 | 44 | 60) {
                    break;
                }
                let (next, length) = (*bytes.get(at)?, *bytes.get(at + 1)?);
                if protocol == 44 {
                    let header: &[u8; 8] = bytes.get(at..)?.first_chunk()?;
                    fragment = Some(Fragment {
                        id: *header.last_chunk()?,
                        is_first: be16(header, 2)? & 0xfff8 == 0,
                    });
                }
                at += if protocol == 44 { 8 } else { 8 * (usize::from(length) + 1) };
                protocol = next;
            }
            Some(Datagram {
                from: address(8),
                to: address(24),
                fragment,
                protocol,
                payload: bytes.get(at..).unwrap_or_default(),
                length: (usize::from(be16(bytes, 4)?) + 40).checked_sub(at),
            })
        }
        _ => None,
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The program in a namespace of its own, with an established connection of each IP version.
struct Bench {
    steering: Steering,
    tally: Tally,
    syn_records: MapHandle,
    connections: Vec<Connection>,
    /// Those in fragments that are of these.
    datagrams: RefCell<HashSet<Id>>,
    _streams: Vec<TcpStream>,
}

impl Bench {
    /// In the calling thread's namespace.
    fn new() -> Result<Bench, Error> {
        let everybody = ["0.0.0.0/0", "::/0"].map(|all| (all.parse().unwrap(), Choice::Split));
        // All verdicts are the same, whatever a route says, and are remembered.
        let ports = vec![(0..=u16::MAX, Choice::Pass)];
        let policy = Policy { clients: everybody.into(), ports, ..Policy::default() };
        let mut steering = Steering::load(Options { workers: 1, mark: MARK, pin: false })?;
        steering.take_over(&policy)?;
        let (mut streams, mut connections) = (Vec::new(), Vec::new());
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(loopback).unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (from, to) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
            connections.extend([Connection { from, to }, Connection { from: to, to: from }]);
            streams.extend([near, listener.accept().unwrap().0]);
        }
        Ok(Bench {
            tally: steering.tally()?,
            syn_records: map(&steering.object, "syn_records")?,
            steering,
            connections,
            datagrams: RefCell::default(),
            _streams: streams,
        })
    }

    /// Has the program look at a frame, and checks what it took it for.
    fn look(&self, frame: &[u8]) -> Result<Read, TestCaseError> {
        let expected = read(frame).unwrap_or(Read::Nothing);
        let before = self.tally.read().unwrap();
        let mut context = [0_u32; CONTEXT];
        let mut after = vec![0; frame.len()];
        let program = self.steering.program("steer").unwrap();
        let output = program.test_run(ProgramInput {
            context_out: Some(context.as_mut_bytes()),
            data_in: Some(frame),
            data_out: Some(&mut after),
            ..ProgramInput::default()
        });
        let output = match output {
            Ok(output) => output,
            // Too short for an IP header, which the kernel does not run.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::InvalidInput => {
                prop_assert!(frame.len() < 14 + 40, "{error}");
                return Ok(Read::Nothing);
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        prop_assert_eq!(output.return_value as i32, -1, "the packet does not go on");
        prop_assert_eq!(&after, frame, "the packet is changed");

        let now = self.tally.read().unwrap();
        let counted: Vec<_> = now
            .entries()
            .map(|(verdict, count)| (verdict, count - before.of(verdict)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let (ours, verdict) = match expected {
            Read::Nothing => (false, None),
            Read::Fragment { of, is_first, connection } => {
                let is_ours = connection.is_some_and(|one| self.connections.contains(&one));
                let mut datagrams = self.datagrams.borrow_mut();
                if is_ours {
                    datagrams.insert(of);
                }
                match is_ours || !is_first && datagrams.contains(&of) {
                    true => (true, Some(Verdict::Steered)),
                    false => (false, Some(Verdict::Fragment)),
                }
            }
            Read::Segment { connection, .. } if self.connections.contains(&connection) => {
                (true, Some(Verdict::Steered))
            }
            Read::Segment { opens: Some(_), .. } => (false, Some(Verdict::PassPort)),
            Read::Segment { opens: None, .. } => (false, None),
            Read::Error(connection) if self.connections.contains(&connection) => {
                (true, Some(Verdict::SteeredIcmp))
            }
            Read::Error(_) => (false, None),
        };
        // The connections here are without a listener's mark, as servers' legs are.
        prop_assert_eq!(context[MARK_AT], if ours { MARK + 1 } else { 0 });
        match (&counted[..], verdict) {
            ([], None) => {}
            ([(Verdict::PassAgain, 1)], Some(Verdict::PassPort)) => {}
            ([(seen, 1)], Some(verdict)) if *seen == verdict => {}
            _ => prop_assert!(false, "{counted:?} instead of {verdict:?} for {expected:?}"),
        }
        if let (Read::Segment { connection, opens: Some(sequence) }, Some(Verdict::PassPort)) =
            (expected, verdict)
        {
            let key = intf::connection::new(connection.from, connection.to);
            let remembered = self.syn_records.lookup(key.as_bytes(), MapFlags::ANY).unwrap();
            let remembered = remembered.unwrap_or_default();
            let remembered = intf::syn_record::read_from_bytes(&remembered).unwrap();
            prop_assert_eq!(remembered.sequence, sequence, "{:?}", connection);
        }
        Ok(expected)
    }
}

const MARK: u32 = 0x4d53;
/// Words of the kernel's `struct __sk_buff`, and which of them is the mark (linux/bpf.h).
const CONTEXT: usize = 48;
const MARK_AT: usize = 2;

/// A frame, and what is done to it.
#[derive(Debug, Clone)]
struct Shape {
    tags: Vec<u16>,
    /// Which of the established connections it belongs to; none for one of its own.
    connection: Option<Index>,
    v6: bool,
    own: ([u8; 16], [u8; 16], u16, u16),
    /// IPv4 options in words, or IPv6 extension headers with their lengths.
    options: u8,
    extensions: Vec<(u8, u8)>,
    fragment: u16,
    upper: Upper,
    damage: Vec<Damage>,
}

#[derive(Debug, Clone)]
enum Upper {
    Segment {
        sequence: u32,
        words: u8,
        flags: u8,
        payload: u8,
    },
    /// An error of this type, quoting so many bytes behind the quoted IP header.
    Error {
        kind: u8,
        quoted: u8,
    },
    Other(u8),
}

#[derive(Debug, Clone)]
enum Damage {
    Set(Index, u8),
    Cut(Index),
    Grow(u8),
    /// The two bytes of the IP header's length.
    Length(u16),
    Insert(Index, u8),
}

fn shape() -> impl Strategy<Value = Shape> {
    let flags =
        prop_oneof![Just(0x02), Just(0x02), Just(0xc2), Just(0x12), Just(0x10), any::<u8>()];
    let words = prop_oneof![Just(5), Just(10), 0..16u8];
    let upper = prop_oneof![
        6 => (any::<u32>(), words, flags, 0..40u8).prop_map(|(sequence, words, flags, payload)| {
            Upper::Segment { sequence, words, flags, payload }
        }),
        3 => (prop_oneof![Just(3), Just(1), Just(2), any::<u8>()], 0..24u8)
            .prop_map(|(kind, quoted)| Upper::Error { kind, quoted }),
        1 => any::<u8>().prop_map(Upper::Other),
    ];
    let damage = prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Damage::Set(at, value)),
        any::<Index>().prop_map(Damage::Cut),
        any::<u8>().prop_map(Damage::Grow),
        prop_oneof![Just(0), 0..100u16, any::<u16>()].prop_map(Damage::Length),
        (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Damage::Insert(at, value)),
    ];
    let extension = (select(vec![0u8, 43, 44, 51, 60, 60, 60, 135]), 0..3u8);
    (
        vec(select(vec![0x8100u16, 0x88a8]), 0..4),
        proptest::option::of(any::<Index>()),
        any::<bool>(),
        any::<([u8; 16], [u8; 16], u16, u16)>(),
        prop_oneof![Just(0u8), 0..11u8],
        prop_oneof![2 => Just(Vec::new()), 1 => vec(extension, 0..7)],
        prop_oneof![
            8 => Just(0u16),
            1 => Just(0x4000),
            1 => Just(0x2000),
            1 => Just(0x2001),
            1 => any::<u16>()
        ],
        upper,
        prop_oneof![1 => Just(Vec::new()), 1 => vec(damage, 1..3)],
    )
        .prop_map(
            |(tags, connection, v6, own, options, extensions, fragment, upper, damage)| Shape {
                tags,
                connection,
                v6,
                own,
                options,
                extensions,
                fragment,
                upper,
                damage,
            },
        )
}

impl Shape {
    fn frame(&self, connections: &[Connection]) -> Vec<u8> {
        let connection = match self.connection {
            Some(index) => connections[index.index(connections.len())],
            None => self.own(),
        };
        let v4 = connection.from.is_ipv4();
        let (protocol, payload) = self.payload(connection);
        // The loopback interface's own address.
        let mut frame = vec![0; 12];
        for tag in &self.tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(if v4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        let ip = frame.len();
        match v4 {
            true => frame.extend(self.ipv4(connection, protocol, payload.len())),
            false => frame.extend(self.ipv6(connection, protocol, payload.len())),
        }
        frame.extend(payload);
        for damage in &self.damage {
            match *damage {
                Damage::Set(at, value) => {
                    let at = at.index(frame.len());
                    frame[at] = value;
                }
                Damage::Cut(at) => frame.truncate(14.max(at.index(frame.len()))),
                Damage::Grow(by) => frame.extend(vec![0; by.into()]),
                Damage::Length(length) => {
                    let at = ip + if v4 { 2 } else { 4 };
                    if let Some(place) = frame.get_mut(at..at + 2) {
                        place.copy_from_slice(&length.to_be_bytes());
                    }
                }
                Damage::Insert(at, value) => frame.insert(at.index(frame.len()), value),
            }
        }
        frame
    }

    fn own(&self) -> Connection {
        let (from, to, from_port, to_port) = self.own;
        let address = |bytes: [u8; 16]| match self.v6 {
            true => IpAddr::from(bytes),
            false => IpAddr::from(*bytes.first_chunk::<4>().unwrap()),
        };
        Connection {
            from: SocketAddr::new(address(from), from_port),
            to: SocketAddr::new(address(to), to_port),
        }
    }

    fn payload(&self, connection: Connection) -> (u8, Vec<u8>) {
        match self.upper {
            Upper::Segment { sequence, words, flags, payload } => {
                let mut bytes = segment(connection, sequence, words, flags);
                bytes.extend(vec![0x55; payload.into()]);
                (TCP, bytes)
            }
            Upper::Error { kind, quoted } => {
                // What this host had sent, the other way.
                let sent = Connection { from: connection.to, to: connection.from };
                let mut bytes = vec![kind, 0, 0, 0, 0, 0, 0, 0];
                let plain =
                    Shape { options: 0, extensions: Vec::new(), fragment: 0, ..self.clone() };
                let inner = segment(sent, 1, 5, 0x10);
                let v4 = connection.from.is_ipv4();
                bytes.extend(match v4 {
                    true => plain.ipv4(sent, TCP, inner.len()),
                    false => plain.ipv6(sent, TCP, inner.len()),
                });
                bytes.extend(inner.iter().take(quoted.into()));
                (if v4 { ICMP } else { ICMPV6 }, bytes)
            }
            Upper::Other(protocol) => (protocol, vec![0x77; 30]),
        }
    }

    fn ipv4(&self, connection: Connection, protocol: u8, payload: usize) -> Vec<u8> {
        let words = 5 + self.options.min(10);
        let length = usize::from(words) * 4 + payload;
        let mut bytes = vec![0x40 | words, 0];
        bytes.extend((length as u16).to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend(self.fragment.to_be_bytes());
        bytes.extend([64, protocol, 0, 0]);
        for address in [connection.from.ip(), connection.to.ip()] {
            let IpAddr::V4(address) = address else { unreachable!() };
            bytes.extend(address.octets());
        }
        bytes.resize(usize::from(words) * 4, 1);
        bytes
    }

    fn ipv6(&self, connection: Connection, protocol: u8, payload: usize) -> Vec<u8> {
        let mut chain = Vec::new();
        let following = self.extensions.iter().skip(1).map(|(next, _)| *next).chain([protocol]);
        for ((_, words), next) in self.extensions.iter().zip(following) {
            chain.extend([next, *words]);
            chain.extend(vec![0; 8 * (usize::from(*words) + 1) - 2]);
        }
        let first = self.extensions.first().map_or(protocol, |(kind, _)| *kind);
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend(((chain.len() + payload) as u16).to_be_bytes());
        bytes.extend([first, 64]);
        for address in [connection.from.ip(), connection.to.ip()] {
            let IpAddr::V6(address) = address else { unreachable!() };
            bytes.extend(address.octets());
        }
        bytes.extend(chain);
        bytes
    }
}

fn segment(connection: Connection, sequence: u32, words: u8, flags: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(connection.from.port().to_be_bytes());
    bytes.extend(connection.to.port().to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend([words << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(vec![1; usize::from(words.saturating_sub(5)) * 4]);
    bytes
}

#[test]
fn no_packet_is_taken_for_what_it_is_not() {
    let netns = match Netns::create() {
        Ok(netns) => netns,
        Err(error) => return skip(&error.to_string()),
    };
    netns
        .run(|| {
            let bench = match Bench::new() {
                Ok(bench) => bench,
                Err(Error::Load(error)) if error.kind() == ErrorKind::PermissionDenied => {
                    return skip(&error.to_string());
                }
                Err(error) => panic!("{error}"),
            };
            let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
            let mut seen = [0; 5];
            let mut look = |frame: &[u8]| -> Result<(), TestCaseError> {
                let index = match bench.look(frame)? {
                    Read::Nothing => 0,
                    Read::Fragment { .. } => 1,
                    Read::Segment { opens: None, .. } => 2,
                    Read::Segment { opens: Some(_), .. } => 3,
                    Read::Error(_) => 4,
                };
                seen[index] += 1;
                Ok(())
            };
            let look = RefCell::new(&mut look);
            let shaped = TestRunner::new(config.clone())
                .run(&shape(), |shape| (look.borrow_mut())(&shape.frame(&bench.connections)));
            shaped.unwrap_or_else(|failure| panic!("{failure}"));
            let random = TestRunner::new(config).run(&vec(any::<u8>(), 14..200), |mut frame| {
                // Else hardly one would be of IP, and for this host.
                let v4 = frame[0] % 2 == 0;
                frame[..6].fill(0);
                frame[12..14].copy_from_slice(if v4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
                if let Some(version) = frame.get_mut(14) {
                    *version = if v4 { 0x40 } else { 0x60 } | *version & 15;
                }
                (look.borrow_mut())(&frame)
            });
            random.unwrap_or_else(|failure| panic!("{failure}"));
            // The frames were such that it matters.
            assert!(seen.iter().all(|count| *count > CASES / 100), "{seen:?}");
        })
        .unwrap();
}

const CASES: u32 = 10_000;

pub(super) fn skip(why: &str) {
    assert!(std::env::var_os("MIDSPAN_TEST_NO_SKIP").is_none(), "{why}");
    eprintln!("skipped: {why}");
}
