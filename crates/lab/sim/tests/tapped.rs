//! What a tap is told of a run's packets.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use midspan_path::Traces;
use midspan_scenario::record::{Measurement, Variant};
use midspan_scenario::{CellSpec, Scenario};
use midspan_sim::{Externals, Observers, Place, run, run_observed};
use midspan_units::Time;

fn cell(cells: &str, service: &str) -> CellSpec {
    // On the MEC there is nothing to split.
    let variants = if service == "mec" { "['none']" } else { "['none', 'midspan']" };
    let text = format!(
        r#"
        name = "tapped"
        title = "Packets at every interface"
        seed = 1
        variants = {variants}
        {cells}
        [path.access]
        up = [{{ delay = "5 ms" }}]
        down = [{{ rate = {{ rate = "20 Mbit/s" }} }}, {{ delay = "5 ms" }}]
        [path.wide]
        up = [{{ delay = "20 ms" }}]
        down = [{{ loss = {{ share = "0.1 %" }} }}, {{ delay = "20 ms" }}]
        [workload]
        kind = "bulk"
        direction = "download"
        time = "3 s"
        [service]
        at = "{service}"
        "#
    );
    Scenario::parse(&text, "tapped.toml").unwrap().cells()[0].spec.clone()
}

/// A direction of a connection, as the addresses and ports of headers have it.
type Ends = [u8; 12];

/// By place and direction, the packets seen there.
type Seen = BTreeMap<(Place, Ends), u64>;

fn tapped(spec: &CellSpec, variant: Variant) -> (Measurement, Seen) {
    let seen = Rc::new(RefCell::new((Time::ZERO, Seen::new())));
    let tap = {
        let seen = seen.clone();
        move |sight: &midspan_sim::Sight<'_>| {
            let (last, seen) = &mut *seen.borrow_mut();
            assert!(sight.at >= *last);
            *last = sight.at;
            let [addresses, ports] = [12..20, 20..24].map(|range| &sight.headers[range]);
            let ends = [addresses, ports].concat().try_into().unwrap();
            *seen.entry((sight.place, ends)).or_default() += 1;
        }
    };
    let observers = Observers { tap: Some(Box::new(tap)), ..Observers::default() };
    let (traces, externals) = (Traces::new(), Externals::default());
    let (measurement, _) = run_observed(spec, variant, &traces, &externals, 1, observers).unwrap();
    (measurement, seen.take().1)
}

/// The packets that a host, by the beginning of its address, has sent past a place.
fn at(seen: &Seen, place: Place, from: &[u8]) -> u64 {
    let of = seen.iter().filter(|((at, ends), _)| *at == place && ends.starts_with(from));
    of.map(|(_, packets)| packets).sum()
}

#[test]
fn every_interface_sees_the_connection_by_the_same_ends() {
    let spec = cell("", "server");
    for variant in [Variant::None, Variant::Midspan] {
        let (measurement, seen) = tapped(&spec, variant);
        assert_eq!(measurement, run(&spec, variant, &Traces::new(), 1).unwrap().0);
        for place in Place::ROW {
            let mut ends = seen.keys().filter(|(at, _)| *at == place).map(|(_, ends)| ends);
            let [one, other] = [ends.next().unwrap(), ends.next().unwrap()];
            assert_eq!((&one[..4], &other[..4]), (&[10, 45, 1, 2][..], &[10, 45, 2, 2][..]));
            assert!(ends.next().is_none(), "{place:?}");
        }
        assert_eq!(seen.len(), 8);
        // Some are under way at the end, and what the wide area loses is seen where it came in alone.
        let [ue, mec_access, mec_wide, server] = Place::ROW;
        let (up, down) = (&[10, 45, 1, 2], &[10, 45, 2, 2]);
        let links = [(ue, mec_access, up), (mec_wide, server, up), (mec_access, ue, down)];
        for (begin, end, from) in links {
            assert!(at(&seen, begin, from) >= at(&seen, end, from), "{begin:?}: {seen:?}");
        }
        assert!(at(&seen, server, down) > at(&seen, mec_wide, down), "{seen:?}");
    }
}

#[test]
fn a_service_on_the_mec_is_seen_on_the_access_link_alone() {
    let (_, seen) = tapped(&cell("", "mec"), Variant::None);
    let places: Vec<Place> =
        Place::ROW.into_iter().filter(|place| at(&seen, *place, &[]) > 0).collect();
    assert_eq!(places, [Place::Ue, Place::MecAccess]);
    assert!(
        seen.keys().all(|(_, ends)| ends[..4] == [10, 45, 1, 1] || ends[4..8] == [10, 45, 1, 1])
    );
}

/// Two relays in a row, and users who are told apart by their addresses.
#[test]
fn of_cells_base_stations_see_packets_too() {
    let cells = "[cells]\nusers = 1\nsplit = 'both'";
    let (measurement, seen) = tapped(&cell(cells, "server"), Variant::Midspan);
    for place in Place::CELLS {
        let users = seen.keys().filter(|(at, ends)| *at == place && ends[..2] == [10, 46]);
        // Others than the first; each sends acknowledgements up.
        assert_eq!(users.count(), measurement.bulk().unwrap().flows_bps.len() - 1, "{place:?}");
    }
}
