//! Everything that reads bytes from outside, fed with what an attacker or a fault might send:
//! valid input that is cut, spliced, flipped and padded. A fuzzer that needs no special compiler and
//! gives the same bytes on every machine, so that it runs in CI; `MIDSPAN_TEST_ALL` makes it run
//! fifty times as long.

#![allow(clippy::disallowed_methods, reason = "tests are longer if asked")]

use std::net::IpAddr;

use midspan_assist_proto::fairness::Coefficient;
use midspan_assist_proto::{
    BasisKind, FRAME_BYTES, FeedbackDatagram, Frames, Inbox, Quality, Reason, ToDaemon, ToSender,
    UeMap,
};
use midspan_units::{Rate, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

const ROUNDS: usize = 100_000;

fn rounds() -> usize {
    if std::env::var_os("MIDSPAN_TEST_ALL").is_some() { ROUNDS * 50 } else { ROUNDS }
}

fn feedback() -> FeedbackDatagram {
    FeedbackDatagram {
        registration: 7,
        sequence: 99,
        ue: "10.45.0.2".parse().unwrap(),
        bandwidth: Rate::from_bps(12_000_000),
        min_rtt: Span::from_millis(11),
        fairness: Coefficient::of_flows(2),
        age: Span::from_millis(1),
        basis: BasisKind::Causal,
        quality: Quality::default(),
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let ue: IpAddr = "2001:db8::7".parse().unwrap();
    let period = Span::from_millis(50);
    let refused = ToSender::Refused { registration: 1, reason: Reason::NotAllowed };
    let mut corpus: Vec<Vec<u8>> = vec![
        feedback().encode().into(),
        FeedbackDatagram { ue, fairness: None, basis: BasisKind::Oracle, ..feedback() }
            .encode()
            .into(),
        ToDaemon::HELLO.encode().into(),
        ToDaemon::Register { registration: 1, ue, period }.encode().into(),
        ToDaemon::Withdraw { registration: 1 }.encode().into(),
        ToDaemon::Flows { ue, flows: 2 }.encode().into(),
        ToSender::welcome(BasisKind::Oracle).encode().into(),
        ToSender::Registered { registration: 1, period }.encode().into(),
        refused.encode().into(),
        b"70,10.45.0.2\n0x4601,fd00::2 # two\n".to_vec(),
    ];
    corpus.push(Vec::new());
    corpus
}

struct FuzzedBytes {
    random: Xoshiro256PlusPlus,
    corpus: Vec<Vec<u8>>,
}

impl FuzzedBytes {
    fn below(&mut self, bound: usize) -> usize {
        (self.random.next_u64() % bound.max(1) as u64) as usize
    }

    fn pick(&mut self) -> Vec<u8> {
        let index = self.below(self.corpus.len());
        self.corpus[index].clone()
    }

    fn next(&mut self) -> Vec<u8> {
        let mut bytes = self.pick();
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.extend(self.pick()),
                2 => {
                    let byte = self.random.next_u32() as u8;
                    bytes.insert(at, byte);
                }
                3 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                4 if !bytes.is_empty() => bytes[at] = [0, 1, 127, 128, 255][self.below(5)],
                5 if !bytes.is_empty() => {
                    let end = (at + 8).min(bytes.len());
                    bytes[at..end].fill([0, 255][self.below(2)]);
                }
                _ => {}
            }
        }
        bytes
    }
}

#[test]
fn nothing_that_reads_bytes_can_be_broken_by_them() {
    let mut fuzzed = FuzzedBytes { random: Xoshiro256PlusPlus::seed_from_u64(5), corpus: corpus() };
    let mut inbox =
        Inbox::new(BasisKind::Causal, Span::from_millis(200), Rate::from_bps(1_000_000_000));
    inbox.register(7, feedback().ue);
    let mut frames = Frames::default();
    let now = Time::from_nanos(1 << 40);
    let (mut accepted, mut datagrams, mut messages) = (0u64, 0u64, 0u64);
    let mut fed = 0;
    for _ in 0..rounds() {
        let bytes = fuzzed.next();
        if let Ok(feedback) = FeedbackDatagram::parse(&bytes) {
            assert_eq!(&feedback.encode()[..], &bytes[..]);
            assert!(feedback.bandwidth > Rate::from_bps(0) && feedback.min_rtt > Span::ZERO);
            datagrams += 1;
        }
        if let Ok(update) = inbox.accept(&bytes, now) {
            assert_eq!(update.ue, feedback().ue);
            assert!((1..=1_000_000_000).contains(&update.bandwidth.as_bps()));
            assert!(update.measured <= now && now.since(update.measured) <= Span::from_millis(200));
            accepted += 1;
        }
        fed += bytes.len();
        frames.feed(&bytes, |frame| {
            fed -= FRAME_BYTES;
            if let Ok(message) = ToDaemon::parse(frame) {
                assert_eq!(&message.encode(), frame);
                messages += 1;
            }
            if let Ok(message) = ToSender::parse(frame) {
                assert_eq!(&message.encode(), frame);
                messages += 1;
            }
        });
        assert!(fed < FRAME_BYTES);
        if let Ok(text) = std::str::from_utf8(&bytes)
            && let Ok(map) = UeMap::parse(text)
        {
            assert!(map.iter().all(|(rnti, address)| map.address(rnti) == Some(address)));
        }
    }
    let tally = inbox.tally();
    assert_eq!(tally.accepted, accepted);
    let refused = tally.malformed
        + tally.unregistered
        + tally.other_ue
        + tally.other_basis
        + tally.replayed
        + tally.overtaken
        + tally.old
        + tally.implausible;
    assert_eq!(accepted + refused, rounds() as u64);
    // The fuzzed bytes were not so strange that nothing came through.
    assert!(
        accepted > 3 && datagrams > 1_000 && messages > 100,
        "{accepted} {datagrams} {messages}"
    );
}
