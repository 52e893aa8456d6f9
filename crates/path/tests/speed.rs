//! How fast packets cross a chain; printed, not judged. Run with
//! `cargo test --release -p midspan-path --test speed -- --ignored --nocapture`.

use std::time::Instant;

use midspan_path::{Direction, Ecn, LinkSpec, Packet, Traces};
use midspan_units::{Span, Time};

#[derive(Clone)]
struct Segment(u64);

impl Packet for Segment {
    fn wire_bytes(&self) -> u32 {
        1500
    }

    fn burst(&self) -> u64 {
        self.0
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn mark_ce(&mut self) {}
}

fn measure(name: &str, elements: &str) {
    const PACKETS: u64 = 5_000_000;
    let spec: LinkSpec = toml::from_str(&format!("up = [{elements}]")).unwrap();
    let mut direction = Direction::new(&spec.up, &Traces::new(), 1).unwrap();
    let started = Instant::now();
    let mut now = Time::ZERO;
    for number in 0..PACKETS {
        // As busy as a link of 1 Gbit/s gets.
        now += Span::from_nanos(12_000);
        direction.enqueue(now, Segment(number));
        while direction.dequeue(now).is_some() {}
    }
    let rate = PACKETS as f64 / started.elapsed().as_secs_f64() / 1e6;
    println!("{name}: {rate:.1} million packets per second");
}

#[test]
#[ignore = "measures speed, which tests must not depend on"]
fn packets_per_second() {
    let rate = "{ rate = { rate = '1 Gbit/s', queue = { bytes = '1 MB' } } }";
    let loss = "{ loss = { share = '0.5 %' } }";
    let late = "{ late = { share = '0.5 %', by = '10 ms' } }";
    let delay = "{ delay = '25 ms' }";
    let rlc = "{ rlc = { rate = '1 Gbit/s', failure = '10 %' } }";
    measure("delay", delay);
    measure("rate, loss, delay", &format!("{rate}, {loss}, {delay}"));
    measure("rate, late, loss, delay", &format!("{rate}, {late}, {loss}, {delay}"));
    measure("rlc, delay", &format!("{rlc}, {delay}"));
    let red = "{ rate = { rate = '1 Gbit/s', aqm = { red = { min = '5 KB', max = '15 KB' } } } }";
    measure("red, delay", &format!("{red}, {delay}"));
}
