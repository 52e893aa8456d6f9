//! The experiment that divides a shared buffer by hand divides it as a live relay does.

#![allow(clippy::disallowed_methods, reason = "tests read files")]

use std::fs;
use std::path::Path;

use midspan_scenario::Scenario;

fn read(name: &str) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios/mmwave").join(name);
    Scenario::parse(&fs::read_to_string(path).unwrap(), name).unwrap()
}

#[test]
fn the_divided_scenario_is_the_live_one_as_its_relay_has_it() {
    let (live, divided) = (read("live.toml"), read("divided.toml"));
    let mut held = 0;
    for cell in divided.cells() {
        let of = |live: &&midspan_scenario::Cell| {
            cell.labels["at"] == format!("{} {}", live.labels["like"], live.labels["x2"])
        };
        let spec = &live.cells().iter().find(of).unwrap().spec;
        assert_eq!(cell.spec.path, spec.path);
        let (access, wide) = (spec.path.access.base_rtt(), spec.path.wide.base_rtt());
        assert_eq!(cell.spec.relay, spec.relay.divided(access, wide), "{:?}", cell.labels);
        held += 1;
    }
    assert_eq!(held, 16);
}
