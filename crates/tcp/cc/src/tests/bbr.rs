//! BBR version 1: draft-cardwell-iccrg-bbr-congestion-control-00.

use super::paced::{MSS, Path};
use super::*;

const CAPACITY: f64 = 8000.0;
const RTT: Span = Span::from_millis(50);
/// Packets.
const BDP: u32 = 400;

/// 100 Mbit/s or so at 50 ms.
fn path() -> Path {
    Path::new("bbr", CAPACITY, RTT)
}

/// The pacing rate over what the path carries.
fn gain(path: &Path) -> f64 {
    path.control.pacing_rate().unwrap().as_bps() as f64 / 8.0 / f64::from(MSS) / path.capacity
}

/// Section 4.2.1: at first 2 / ln 2 windows in a round trip.
#[test]
fn it_starts_with_the_initial_window_over_the_round_trip() {
    let rate = path().control.pacing_rate().unwrap().as_bps() as f64;
    let window = f64::from(10 * MSS * 8) / RTT.as_secs_f64();
    assert!((rate / window / (2.0 / 2_f64.ln()) - 1.0).abs() < 0.001, "{rate}");
}

/// Sections 4.3.2 and 4.3.3: the rate doubles each round, so that the bandwidth is found in log2(BDP / 10) rounds;
/// three rounds on the pipe is held full, and what startup has queued is drained at ln 2 / 2.
#[test]
fn startup_ends_when_the_pipe_is_full_and_is_drained() {
    let mut path = path();
    let rounds = (f64::from(BDP) / 10.0).log2().ceil() + 1.0;
    path.run(rounds * RTT.as_secs_f64());
    assert!(gain(&path) > 2.0, "{}", gain(&path));
    let mut least = f64::MAX;
    for _ in 0..1500 {
        path.step();
        least = least.min(gain(&path));
    }
    assert!((least / (2_f64.ln() / 2.0) - 1.0).abs() < 0.03, "{least}");
    path.run(0.5);
    assert!((0.7..1.3).contains(&gain(&path)), "{}", gain(&path));
}

/// Section 4.3.4: a cycle of eight phases, each of a round trip or so: 5/4, 3/4, and 1 for the rest; a per cent below.
#[test]
fn it_probes_for_bandwidth_in_a_cycle_of_eight() {
    let mut path = path();
    path.run(3.0);
    let mut spent = [0.0; 3];
    for _ in 0..6000 {
        path.step();
        let phase = [1.25, 0.75, 1.0].iter().position(|of| (gain(&path) / of - 0.99).abs() < 0.02);
        spent[phase.unwrap_or_else(|| panic!("a gain of {}", gain(&path)))] += 1.0 / 6000.0;
    }
    let [up, down, level] = spent;
    assert!((0.08..0.2).contains(&up), "{spent:?}");
    assert!((0.03..0.2).contains(&down), "{spent:?}");
    assert!(level > 0.6, "{spent:?}");
}

/// Section 4.2.3: the window is twice the bandwidth-delay product and room for three bursts, which bounds
/// the queue.
#[test]
fn it_fills_a_path_with_a_window_of_two() {
    let mut path = path();
    path.run(3.0);
    path.longest_queue = Span::ZERO;
    let rate = path.run(6.0);
    assert!(rate > 0.95 * CAPACITY, "{rate}");
    let cwnd = path.control.cwnd();
    assert!((2 * BDP..2 * BDP + 60).contains(&cwnd), "{cwnd}");
    assert!(path.longest_queue < RTT * 23 / 20, "{}", path.longest_queue);
}

/// Loss is no sign of congestion: version 1 has no threshold for it.
#[test]
fn loss_takes_nothing() {
    let mut path = path();
    path.run(3.0);
    path.lose_every = 10;
    let rate = path.run(10.0);
    assert!(rate > 0.9 * CAPACITY, "{rate}");
}

/// Section 4.3.5: every ten seconds four packets in flight for 200 ms.
#[test]
fn it_probes_the_round_trip_time() {
    let mut path = path();
    path.run(4.0);
    let mut narrow = 0;
    for _ in 0..20_000 {
        path.step();
        narrow += u32::from(path.control.cwnd() <= 4);
    }
    // Milliseconds, twice; the window needs a round trip to come down.
    assert!((2 * 200..2 * 350).contains(&narrow), "{narrow}");
}

/// What ProbeRTT delivers is not taken for the bandwidth, even where all that is sent before and after it is limited by
/// the application, which says nothing of it either.
#[test]
fn probing_the_round_trip_time_leaves_the_bandwidth() {
    let mut path = path();
    path.run(4.0);
    path.offered = CAPACITY / 4.0;
    // The round-trip time is never again as short as it was.
    path.base += Span::from_millis(1);
    path.run(12.0);
    path.offered = f64::INFINITY;
    path.run(0.2);
    let rate = path.run(1.0);
    assert!(rate > 0.9 * CAPACITY, "{rate}");
}

/// Section 4.1.1.3: the estimate is the greatest of ten rounds.
#[test]
fn it_follows_the_bandwidth() {
    let mut path = path();
    path.run(5.0);
    path.capacity = CAPACITY / 4.0;
    path.run(5.0);
    assert!((0.7..1.3).contains(&gain(&path)), "{}", gain(&path));
    path.capacity = CAPACITY;
    path.run(10.0);
    let rate = path.run(5.0);
    assert!(rate > 0.9 * CAPACITY, "{rate}");
}

#[test]
fn a_timeout_is_got_over() {
    let mut path = path();
    path.run(3.0);
    path.control.on_reduction(&path.connection, State::Loss);
    path.control.set_cwnd(1);
    path.run(0.2);
    path.control.set_state(&path.connection, State::Open);
    path.run(1.0);
    let rate = path.run(3.0);
    assert!(rate > 0.9 * CAPACITY, "{rate}");
}
