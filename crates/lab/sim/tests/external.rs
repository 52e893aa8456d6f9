//! Elements and congestion controls from outside, in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use midspan_cc::external::{self, Call, Window};
use midspan_cc::{Connection, Kind, State};
use midspan_path::{Decide, Fate, Maker, Seen, Traces};
use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Scenario};
use midspan_sim::{Externals, run, run_with};
use midspan_units::{Span, Time};

/// An upload of a second over `element`.
fn upload(element: &str) -> CellSpec {
    let text = format!(
        r#"
        name = "test"
        title = "Test"
        variants = ["none", "midspan"]
        [path.access]
        up = [{{ rate = {{ rate = "20 Mbit/s" }} }}, {element}]
        down = [{{ delay = "5 ms" }}]
        [path.wide]
        up = [{{ delay = "20 ms" }}]
        down = [{{ delay = "20 ms" }}]
        [workload]
        kind = "bulk"
        direction = "upload"
        time = "1 s"
        "#
    );
    Scenario::parse(&text, "test.toml").unwrap().cells()[0].spec.clone()
}

/// Holds every packet for as long as its settings say, and drops each whose number that divides.
struct Mine {
    by: Span,
    each: u64,
    came: u64,
}

impl Decide for Mine {
    fn decide(&mut self, _now: Time, _packet: &Seen) -> Fate {
        self.came += 1;
        match self.came.is_multiple_of(self.each) {
            true => Fate::Drop,
            false => Fate::Pass { after: self.by, mark: false },
        }
    }
}

fn externals(each: u64) -> Externals {
    let make: Maker =
        Box::new(move |with, _| Box::new(Mine { by: with["by"].parse().unwrap(), each, came: 0 }));
    let elements = BTreeMap::from([("mine".to_owned(), make)]);
    Externals { elements, ..Externals::default() }
}

const MINE: &str = "{ external = { name = 'mine', with = { by = '5 ms' } } }";

#[test]
fn one_that_does_what_a_delay_does_changes_nothing() {
    for variant in [Variant::None, Variant::Midspan] {
        let (mine, _) =
            run_with(&upload(MINE), variant, &Traces::new(), &externals(u64::MAX), 1).unwrap();
        let (delay, _) = run(&upload("{ delay = '5 ms' }"), variant, &Traces::new(), 1).unwrap();
        assert_eq!(
            (mine.bulk().unwrap().goodput_bps, &mine.legs),
            (delay.bulk().unwrap().goodput_bps, &delay.legs)
        );
        assert_eq!(mine.links[0].up.packets_out, delay.links[0].up.packets_out);
    }
}

#[test]
fn what_it_drops_is_counted_and_costs_goodput() {
    let goodput = |each: u64| {
        let (run, _) =
            run_with(&upload(MINE), Variant::None, &Traces::new(), &externals(each), 1).unwrap();
        let dropped = run.links[0].up.dropped.get("external").copied().unwrap_or_default();
        (run.bulk().unwrap().goodput_bps, dropped)
    };
    let ((all, none), (less, some)) = (goodput(u64::MAX), goodput(100));
    assert!(none == 0 && some > 3 && less < all, "{all} {less}, {some} dropped");
}

#[test]
fn without_one_a_run_fails_by_its_name() {
    let error = run(&upload(MINE), Variant::None, &Traces::new(), 1).unwrap_err();
    assert!(error.to_string().contains("link 1, up, element 2 (external)"), "{error}");
    assert!(error.to_string().contains("`mine`"), "{error}");
}

/// A window that nothing changes.
struct Fixed(u32);

impl external::Decide for Fixed {
    fn kind(&self) -> Kind {
        Kind::Rate
    }

    fn decide(&mut self, window: &mut Window, _: &Connection, _: State, _: Call<'_>) {
        window.cwnd = self.0;
    }
}

/// The same upload, its sender by a control from outside.
fn controlled() -> CellSpec {
    let mut spec = upload("{ delay = '5 ms' }");
    spec.hosts.ue.congestion_control = "external:fixed".to_owned();
    spec
}

#[test]
fn a_control_decides_and_its_name_is_told() {
    let seeds = Arc::new(Mutex::new(Vec::new()));
    let kept = seeds.clone();
    let make: external::Maker = Arc::new(move |seed| {
        kept.lock().unwrap().push(seed);
        Box::new(Fixed(8))
    });
    let controls = BTreeMap::from([("fixed".to_owned(), make)]);
    let externals = Externals { controls, ..Externals::default() };
    for variant in [Variant::None, Variant::Midspan, Variant::None] {
        let (run, _) = run_with(&controlled(), variant, &Traces::new(), &externals, 1).unwrap();
        let of_ue = run.legs.iter().find(|leg| leg.host == "ue").unwrap();
        assert_eq!((&*of_ue.congestion_control, of_ue.cwnd), ("external:fixed", 8));
        let others = run.legs.iter().filter(|leg| leg.congestion_control != "external:fixed");
        assert_eq!(others.count(), run.legs.len() - 1);
    }
    let seeds = seeds.lock().unwrap();
    assert_eq!((seeds.len(), seeds[0]), (3, seeds[2]), "the same run has the same seed");
}

#[test]
fn without_the_control_a_run_fails_by_its_name() {
    let error = run(&controlled(), Variant::None, &Traces::new(), 1).unwrap_err();
    assert_eq!(error.to_string(), "nobody gave a congestion control `fixed`");
}
