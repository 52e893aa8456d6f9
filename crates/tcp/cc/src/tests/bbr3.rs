use super::paced::{MSS, Path};
use super::*;

/// 100 Mbit/s or so at 50 ms.
fn path() -> Path {
    Path::new("bbr3", 8000.0, Span::from_millis(50))
}

/// It finds the bandwidth within seconds, and fills it with a short queue.
#[test]
fn it_fills_a_path_without_filling_its_queue() {
    let mut path = path();
    path.run(3.0);
    path.longest_queue = Span::ZERO;
    let rate = path.run(20.0);
    assert!(rate > 0.93 * 8000.0, "{rate}");
    // Never more than the window of two round-trips and a quarter allows, which is while it probes.
    assert!(path.longest_queue < Span::from_millis(75), "{}", path.longest_queue);
}

/// Section 2: loss below 2 % is no sign of congestion.
#[test]
fn loss_below_the_threshold_takes_nothing() {
    let mut path = path();
    path.lose_every = 100;
    path.run(3.0);
    let rate = path.run(20.0);
    assert!(rate > 0.9 * 8000.0, "{rate}");
}

/// Above it, it is: bounds come down to what gets through.
#[test]
fn loss_above_the_threshold_does() {
    let mut path = path();
    path.run(3.0);
    path.lose_every = 10;
    let rate = path.run(20.0);
    assert!(rate < 0.9 * 8000.0, "{rate}");
    // It does not starve either.
    assert!(rate > 0.02 * 8000.0, "{rate}");
}

/// It follows the bandwidth, down by what is lost and up by probing.
#[test]
fn it_follows_the_bandwidth() {
    let mut path = path();
    path.run(5.0);
    path.capacity = 2000.0;
    path.run(10.0);
    let bandwidth = path.control.pacing_rate().unwrap().as_bps() / 8 / u64::from(MSS);
    assert!((1000..3000).contains(&bandwidth), "{bandwidth}");
    path.capacity = 8000.0;
    path.run(15.0);
    let rate = path.run(5.0);
    assert!(rate > 0.85 * 8000.0, "{rate}");
}

/// Section 5.3.4: it looks for the least round-trip time every five seconds, with half a window for
/// 200 ms.
#[test]
fn it_probes_the_round_trip_time() {
    let mut path = path();
    path.run(4.0);
    let least = (0..60)
        .map(|_| {
            path.run(0.1);
            path.control.cwnd()
        })
        .min();
    assert!((150..=230).contains(&least.unwrap()), "{least:?}");
}

#[test]
fn a_timeout_is_got_over() {
    let mut path = path();
    path.run(3.0);
    let before = path.control.cwnd();
    path.control.on_reduction(&path.connection, State::Loss);
    path.control.set_cwnd(1);
    path.run(0.2);
    path.control.set_state(&path.connection, State::Open);
    assert!(path.control.cwnd() >= before / 2, "{} after {before}", path.control.cwnd());
    path.run(1.0);
    assert!(path.run(3.0) > 0.85 * 8000.0);
}
