//! Whatever a path does to packets, a connection delivers every byte once and in order, or fails;
//! it never hangs, and it keeps to its windows.

#![allow(clippy::disallowed_methods, reason = "tests are longer if asked")]

mod common;

use common::{Fate, From, Pair};
use midspan_tcp::{Config, Failure, Segment, Stage};
use midspan_units::{Span, Time};
use proptest::prelude::*;

/// A path that loses, delays, and doubles packets at random.
#[derive(Debug, Clone, Copy)]
struct LossyPath {
    seed: u64,
    /// Out of 256.
    lost: u8,
    late: u8,
    doubled: u8,
    delay_ms: u8,
    late_ms: u8,
}

impl LossyPath {
    fn fate(mut self) -> impl FnMut(From, &Segment) -> Fate {
        move |_, _| {
            // splitmix64
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.seed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let [lost, late, doubled, jitter, ..] = (z ^ (z >> 31)).to_le_bytes();
            let mut delay = Span::from_millis(u64::from(self.delay_ms));
            if late < self.late {
                delay += Span::from_millis(u64::from(jitter % self.late_ms.max(1)));
            }
            if lost < self.lost {
                Fate::Lose
            } else if doubled < self.doubled {
                Fate::Twice(delay, delay + Span::from_millis(u64::from(jitter % 8)))
            } else {
                Fate::Deliver(delay)
            }
        }
    }
}

fn path() -> impl Strategy<Value = LossyPath> {
    (any::<u64>(), 0u8..64, 0u8..128, 0u8..40, 0u8..80, 0u8..60).prop_map(
        |(seed, lost, late, doubled, delay_ms, late_ms)| LossyPath {
            seed,
            lost,
            late,
            doubled,
            delay_ms,
            late_ms,
        },
    )
}

/// What both applications want: bytes up, bytes down, how much the readers take at once.
#[derive(Debug, Clone, Copy)]
struct Wish {
    up: u64,
    down: u64,
    gulp: u64,
}

/// Runs it to its end. The packets that were sent, and the time it took.
fn run(path: LossyPath, wish: Wish, config: &Config, name: &str) -> (usize, Time) {
    let mut pair = Pair::new(config.clone(), config.clone(), name);
    let mut fate = path.fate();
    let (mut left, mut read) = ([wish.up, wish.down], [0, 0]);
    let mut highest: [Option<u64>; 2] = [None, None];
    for step in 0.. {
        assert!(
            step < 3_000_000,
            "it does not end: {:?} {:?}",
            pair.client.info(),
            pair.client.stage()
        );
        let now = pair.now;
        let ends = [Some(&mut pair.client), pair.server.as_mut()];
        for (side, end) in ends.into_iter().enumerate() {
            let Some(end) = end else { continue };
            if end.stage() == Stage::SynReceived || end.stage() == Stage::SynSent {
                continue;
            }
            left[side] -= end.write(left[side]);
            if left[side] == 0 {
                end.close();
            }
            read[side] += end.read(now, wish.gulp);
            let info = end.info();
            assert!(info.cwnd >= 1);
            assert_eq!(end.received(), read[side] + end.readable());
            let fresh = (end.acknowledged(), info.data_segments);
            assert!(highest[side].is_none_or(|before| before <= fresh.0), "the stream goes back");
            highest[side] = Some(fresh.0);
        }
        let readable = |end: &midspan_tcp::Endpoint| end.readable() > 0;
        let unread = readable(&pair.client) || pair.server.as_ref().is_some_and(readable);
        if !pair.step(&mut fate) && !unread {
            break;
        }
    }
    let server = pair.server.as_ref().map(midspan_tcp::Endpoint::stage);
    let failed = [Some(pair.client.stage()), server]
        .into_iter()
        .any(|stage| matches!(stage, Some(Stage::Failed(Failure::TimedOut)) | None));
    if !failed {
        assert_eq!(pair.client.stage(), Stage::Closed);
        assert_eq!(server, Some(Stage::Closed));
        assert_eq!(read, [wish.down, wish.up], "every byte once");
    }
    (pair.log.len(), pair.now)
}

fn config(mss: u32, buffers: Option<u32>, lowat: bool, sack: bool) -> Config {
    Config {
        tcp_sack: sack,
        mss,
        so_rcvbuf: buffers,
        so_sndbuf: buffers,
        tcp_notsent_lowat: lowat.then_some(16_384),
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("MIDSPAN_TEST_ALL").is_some() { 2000 } else { 60 }))]
    #[test]
    fn every_byte_arrives_once_and_in_order(
        path in path(),
        (up, down) in (0u64..400_000, 0u64..100_000),
        gulp in prop_oneof![Just(u64::MAX), 500u64..50_000],
        mss in prop_oneof![Just(1448u32), 536u32..9000],
        buffers in prop_oneof![2 => Just(None), 1 => (20_000u32..200_000).prop_map(Some)],
        lowat in any::<bool>(), sack in any::<bool>(),
        name in prop_oneof![Just("cubic"), Just("reno")],
    ) {
        let wish = Wish { up, down, gulp };
        let config = config(mss, buffers, lowat, sack);
        let first = run(path, wish, &config, name);
        prop_assert_eq!(run(path, wish, &config, name), first, "the same seed, another result");
    }
}

#[test]
fn a_peer_that_is_silent_is_given_up() {
    let mut pair = Pair::new(Config::default(), Config::default(), "cubic");
    pair.run(Span::from_secs(10_000), &mut |_, _| Fate::Lose, |_| false);
    assert_eq!(pair.client.stage(), Stage::Failed(Failure::TimedOut));
    // 1, 2, 4 .. 64 s: seven SYNs.
    assert_eq!(pair.log.len(), 7);
    assert_eq!(pair.now, Time::ZERO + Span::from_secs(127));
}
