//! The cellular recordings that the NATCP paper evaluates on. They are not part of the project;
//! where they are not at hand this test says so and passes.

#![allow(clippy::disallowed_methods, reason = "tests read files")]

use std::path::Path;

use midspan_path::{Direction, Ecn, ElementSpec, Packet, QueueSpec, Trace, TraceSpec, Traces};
use midspan_units::Time;

/// Name, mean rate in Mbit/s and length in seconds, as published with them.
const RECORDINGS: [(&str, f64, u64); 16] = [
    ("ATT-LTE-driving.down", 5.19, 786),
    ("ATT-LTE-driving.up", 0.84, 1012),
    ("ATT-LTE-driving-2016.down", 4.57, 120),
    ("ATT-LTE-driving-2016.up", 1.92, 120),
    ("TMobile-LTE-driving.down", 12.80, 475),
    ("TMobile-LTE-driving.up.rebuilt-50ms", 19.32, 475),
    ("TMobile-LTE-short.down", 16.75, 140),
    ("TMobile-LTE-short.up", 13.35, 140),
    ("TMobile-UMTS-driving.down", 2.03, 928),
    ("TMobile-UMTS-driving.up", 0.95, 931),
    ("Verizon-EVDO-driving.down", 0.52, 1062),
    ("Verizon-EVDO-driving.up", 0.84, 1065),
    ("Verizon-LTE-driving.down.rebuilt-50ms", 9.74, 1363),
    ("Verizon-LTE-driving.up.rebuilt-50ms", 6.24, 1365),
    ("Verizon-LTE-short.down", 5.04, 140),
    ("Verizon-LTE-short.up", 5.96, 140),
];

struct FullPacket;

impl Packet for FullPacket {
    fn wire_bytes(&self) -> u32 {
        1500
    }

    fn burst(&self) -> u64 {
        0
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn mark_ce(&mut self) {}

    fn is_pure_ack(&self) -> bool {
        false
    }
}

#[test]
fn recordings_have_their_published_means_and_links_deliver_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/traces");
    if !folder.is_dir() {
        println!("skipped: no recordings in ../shared/traces");
        return;
    }
    for (name, mbps, seconds) in RECORDINGS {
        let file = format!("{name}.gz");
        let trace = Trace::parse(&std::fs::read(folder.join(&file)).unwrap()).unwrap();
        let mean = trace.mean_rate().as_mbps();
        // Published to two decimals; what was rebuilt meets its mean to a part in a thousand.
        let tolerance = if name.contains("rebuilt") { mbps / 1000.0 } else { 0.0051 };
        assert!((mean - mbps).abs() < tolerance, "{name}: {mean:.3} Mbit/s, published {mbps}");
        let length = trace.duration().as_secs_f64();
        assert!((length - seconds as f64).abs() <= 1.0, "{name}: {length} s");
        assert_eq!(delivered(&file, &trace), trace.chances().len() as u64, "{name}");
    }
}

/// Full packets that a link driven by `trace` delivers in one round when it always has some.
fn delivered(file: &str, trace: &Trace) -> u64 {
    let spec = TraceSpec { file: file.to_owned(), queue: QueueSpec::default(), aqm: None };
    let traces = Traces::from([(file.to_owned(), trace.clone())]);
    let mut link = Direction::new(&[ElementSpec::Trace(spec)], &traces, 1).unwrap();
    // More than any millisecond has chances for.
    (0..1000).for_each(|_| link.enqueue(Time::ZERO, FullPacket));
    // A chance at time zero finds nothing, but the next round's are at the end of this one.
    let mut count = 0;
    let end = Time::ZERO + trace.duration();
    while let Some(event) = link.next_event().filter(|event| *event <= end) {
        while let Some((at, _)) = link.dequeue(event) {
            count += 1;
            link.enqueue(at, FullPacket);
        }
    }
    count
}
