//! What those are told who log what a run's senders do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use midspan_path::Traces;
use midspan_scenario::record::{Measurement, Variant};
use midspan_scenario::{CellSpec, Scenario};
use midspan_sim::{End, Externals, Observers, Told, run, run_observed};
use midspan_tcp::Event;
use midspan_units::Time;

/// A page of 300 KB over 20 Mbit/s, twice, beside a flow that is none of its own.
fn page() -> CellSpec {
    let text = r#"
        name = "logged"
        title = "Pages beside cross traffic"
        seed = 1
        variants = ["none", "midspan"]
        [path.access]
        up = [{ delay = "5 ms" }]
        down = [{ rate = { rate = "20 Mbit/s" } }, { delay = "5 ms" }]
        [path.wide]
        up = [{ delay = "20 ms" }]
        down = [{ rate = { rate = "50 Mbit/s" } }, { delay = "20 ms" }]
        [workload]
        kind = "page"
        document = "300 KB"
        count = 2
        cross = { flows = 1, congestion_control = "reno" }
    "#;
    Scenario::parse(text, "logged.toml").unwrap().cells()[0].spec.clone()
}

/// What was told of an end: data bytes that it sent anew, and whether it is over.
#[derive(Default)]
struct Seen {
    last: Time,
    bytes: u64,
    over: bool,
}

type Ends = BTreeMap<(&'static str, &'static str, u32), (End, Seen)>;

fn logged(variant: Variant) -> (Measurement, Ends) {
    let ends = Rc::new(RefCell::new(Ends::new()));
    let log = {
        let ends = ends.clone();
        move |end: &End, told: Told<'_>| {
            let mut ends = ends.borrow_mut();
            let key = (end.host, end.leg, end.number);
            let (known, seen) = ends.entry(key).or_insert_with(|| (end.clone(), Seen::default()));
            assert!(known == end && !seen.over);
            match told {
                Told::Event(at, event) => {
                    assert!(at >= seen.last);
                    seen.last = at;
                    if let Event::Sent { range: (start, end), retransmission: false, .. } = event {
                        seen.bytes += end - start;
                    }
                }
                Told::Over => seen.over = true,
            }
        }
    };
    let observers = Observers { log: Some(Box::new(log)), ..Observers::default() };
    let (traces, externals) = (Traces::new(), Externals::default());
    let (measurement, _) =
        run_observed(&page(), variant, &traces, &externals, 1, observers).unwrap();
    (measurement, ends.take())
}

#[test]
fn every_end_is_told_of_until_it_is_over_and_nothing_changes() {
    for variant in [Variant::None, Variant::Midspan] {
        let (measurement, ends) = logged(variant);
        assert_eq!(measurement, run(&page(), variant, &Traces::new(), 1).unwrap().0);
        let hosts = |leg| {
            let of = ends.keys().filter(|(_, of, _)| *of == leg);
            of.map(|(host, _, number)| (*host, *number)).collect::<Vec<_>>()
        };
        match variant {
            Variant::None => assert_eq!(
                hosts("end-to-end"),
                [("server", 0), ("server", 1), ("ue", 0), ("ue", 1)]
            ),
            _ => assert_eq!(
                (hosts("client"), hosts("server")),
                (
                    vec![("mec", 0), ("mec", 1), ("ue", 0), ("ue", 1)],
                    vec![("mec", 0), ("mec", 1), ("server", 0), ("server", 1)]
                )
            ),
        }
        for ((host, leg, _), (end, seen)) in &ends {
            assert!(seen.over, "{end:?}");
            let initiates = *host == "ue" || (*host == "mec" && *leg == "server");
            assert_eq!(end.initiates, initiates, "{end:?}");
            // Down goes the page, up go requests; cross traffic has no end here.
            assert_eq!(seen.bytes >= 300_000, !initiates, "{end:?}: {}", seen.bytes);
            assert!(seen.bytes < 310_000 && end.congestion_control != "reno", "{end:?}");
        }
    }
}
