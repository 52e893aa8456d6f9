//! Mobile networks in virtual time.

use midspan_path::Traces;
use midspan_scenario::record::{Measurement, Variant};
use midspan_scenario::{CellSpec, Scenario};
use midspan_sim::run;

/// Windows of 64 KiB at every end, 20 ms to the gateway and 50 ms beyond it; `cells` and `workload` as
/// in a file.
fn cell(cells: &str, workload: &str) -> CellSpec {
    let text = format!(
        r#"
        name = "test"
        title = "Test"
        seed = 1
        variants = ["none", "midspan"]
        [cells]
        {cells}
        [path.access]
        up = [{{ rate = {{ rate = "100 Mbit/s" }} }}, {{ delay = "10 ms" }}]
        down = [{{ rate = {{ rate = "100 Mbit/s" }} }}, {{ delay = "10 ms" }}]
        [path.wide]
        up = [{{ delay = "25 ms" }}]
        down = [{{ rate = {{ rate = "100 Mbit/s" }} }}, {{ delay = "25 ms" }}]
        [hosts.ue]
        buffers = {{ rmem = "4096 131072 131072", wmem = "4096 16384 4194304" }}
        [hosts.mec]
        buffers = {{ rmem = "4096 131072 131072", wmem = "4096 16384 4194304" }}
        [hosts.server]
        buffers = {{ rmem = "4096 131072 131072", wmem = "4096 16384 4194304" }}
        [workload]
        {workload}
        "#
    );
    Scenario::parse(&text, "test.toml").unwrap().cells()[0].spec.clone()
}

const BULK: &str = "kind = 'bulk'\ndirection = 'download'\ntime = '8 s'\nwarmup = '3 s'";
const PAGE: &str = "kind = 'page'\ndocument = '30 KB'\nconnections = 6\ncount = 3\n\
                    objects = [{ count = 12, least = '20 KB', most = '200 KB', servers = 2 }]";

fn measure(spec: &CellSpec, variant: Variant, seed: u64) -> Measurement {
    run(spec, variant, &Traces::new(), seed).unwrap().0
}

/// Without congestion windows limit, and the relay takes the gateway's distance out of both loops: 50,
/// 20 and about 15 ms of radio over 50.
#[test]
fn the_relay_takes_the_wide_area_out_of_the_loop() {
    let spec = cell("users = 1", BULK);
    let (none, split) = (measure(&spec, Variant::None, 3), measure(&spec, Variant::Midspan, 3));
    let gain = split.bulk().unwrap().goodput_bps / none.bulk().unwrap().goodput_bps;
    assert!((1.25..1.75).contains(&gain), "{gain}");
    assert_eq!(none.bulk().unwrap().flows_bps.len(), 7);
    // 64 KiB in a round trip of 70 ms at least, and half of that where the radio is bad.
    let most = 65_536.0 * 8.0 / 0.07;
    assert!(
        none.bulk().unwrap().flows_bps.iter().all(|bps| *bps < most),
        "{:?}",
        none.bulk().unwrap().flows_bps
    );
}

/// A tunnel's header is 36 bytes on each packet between gateway and base station, and nowhere else.
#[test]
fn packets_are_tunnelled_to_base_stations() {
    let spec = cell("users = 1", &BULK.replace("'3 s'", "'1 s'"));
    let links = measure(&spec, Variant::None, 1).links;
    let names: Vec<&str> = links.iter().map(|link| link.link.as_str()).collect();
    assert_eq!(names, ["radio", "access", "wide"]);
    let mean = |link: usize| {
        let down = &links[link].down;
        down.bytes_out as f64 / down.packets_out as f64
    };
    assert!((mean(1) - mean(2) - 36.0).abs() < 0.5, "{} {}", mean(1), mean(2));
    assert!((mean(0) - mean(2)).abs() < 0.5, "{} {}", mean(0), mean(2));
    assert!(links[0].down.delay.is_some());
}

/// Users at 120 km/h change their cell every few seconds, and with it the base station's relay: nothing
/// is lost on the way, wherever connections are split.
#[test]
fn connections_survive_handovers_wherever_they_are_split() {
    for (split, variant) in [
        ("gateway", Variant::None),
        ("gateway", Variant::Midspan),
        ("enb", Variant::Midspan),
        ("both", Variant::Midspan),
    ] {
        let cells = format!("users = 2\nsplit = '{split}'\nradio = {{ speed = '120 km/h' }}");
        let run = measure(&cell(&cells, &BULK.replace("'8 s'", "'15 s'")), variant, 5);
        assert_eq!(run.bulk().unwrap().flows_bps.len(), 14);
        let served = run.bulk().unwrap().flows_bps.iter().filter(|bps| **bps > 100e3).count();
        assert!(served >= 13, "{split}, {variant}: {:?}", run.bulk().unwrap().flows_bps);
        assert!(run.links.iter().all(|link| link.down.dropped.is_empty()), "{:?}", run.links);
        // Nobody has to wait for a retransmission timeout because of a handover alone.
        assert!(run.sender_retransmits < 140, "{split}, {variant}: {}", run.sender_retransmits);
    }
}

/// Relays split whose connections they are told to, and pass those of the others.
#[test]
fn relays_may_be_for_some_users_alone() {
    let run = |cells: &str, variant| measure(&cell(cells, BULK), variant, 3);
    let none = run("users = 1", Variant::None);
    let all = run("users = 1", Variant::Midspan);
    assert_ne!(all, none);
    assert_eq!(run("users = 1\nclients = 'users'", Variant::Midspan), all);
    assert_eq!(run("users = 1\nclients = 'others'", Variant::Midspan), none);
    let beside = |clients: &str, variant| {
        let others =
            "users = 1, workload = { kind = 'bulk', direction = 'download', time = '1 s' }";
        run(&format!("users = 1\nclients = '{clients}'\nothers = [{{ {others} }}]"), variant)
    };
    let split = |clients| beside(clients, Variant::Midspan);
    let runs = [beside("all", Variant::None), split("all"), split("users"), split("others")];
    for (first, second) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        assert_ne!(runs[first], runs[second], "{first} {second}");
    }
}

/// What goes to a base station comes to that one over a link for all as well, and waits for what goes to
/// others.
#[test]
fn base_stations_may_share_a_link() {
    let run = |links: u32| {
        let cells = format!("users = 3\nlinks = {links}\nradio = {{ speed = '120 km/h' }}");
        measure(&cell(&cells, BULK), Variant::Midspan, 5)
    };
    let (each, shared) = (run(7), run(1));
    let served = |run: &Measurement| {
        run.bulk().unwrap().flows_bps.iter().filter(|bps| **bps > 100e3).count()
    };
    assert!(served(&shared) >= 19, "{:?}", shared.bulk().unwrap().flows_bps);
    let waited = |run: &Measurement| run.links[1].down.delay.as_ref().unwrap().mean_us;
    assert!(waited(&shared) > 1.5 * waited(&each), "{} {}", waited(&shared), waited(&each));
    assert!(shared.links[1].down.bytes_out as f64 * 8.0 / shared.measured_s < 100.1e6);
}

#[test]
fn the_seed_decides_everything() {
    let spec = cell("users = 2\nsplit = 'both'\nradio = { speed = '60 km/h' }", BULK);
    let first = measure(&spec, Variant::Midspan, 7);
    assert_eq!(measure(&spec, Variant::Midspan, 7), first);
    assert_ne!(measure(&spec, Variant::Midspan, 8), first);
}

#[test]
fn pages_take_longer_beside_downloads() {
    let load = |others: &str, variant| {
        let run = measure(&cell(&format!("users = 1\npause = '1 s'\n{others}"), PAGE), variant, 2);
        assert_eq!(run.transfers().len(), 21);
        run.transfers().iter().map(|page| page.received_s).sum::<f64>() / 21.0
    };
    let others = "others = [{ users = 3, workload = { kind = 'bulk', direction = 'download', \
                  time = '1 s', flows = 2 } }]";
    let alone = load("", Variant::None);
    assert!((0.3..4.0).contains(&alone), "{alone}");
    assert!(load(others, Variant::None) > 1.2 * alone);
    assert!(load("", Variant::Midspan) < alone);
}

/// Users who wait cost next to nothing: a thousand of them add few events.
#[test]
fn who_waits_costs_nothing() {
    let events = |others: &str| {
        let spec = cell(&format!("users = 1\npause = '1000 s'\n{others}"), BULK);
        run(&spec, Variant::None, &Traces::new(), 1).unwrap().1.events
    };
    let page = "kind = 'page', document = '1 KB'";
    let crowd = format!("others = [{{ users = 150, workload = {{ {page} }} }}]");
    let (alone, beside) = (events(""), events(&crowd));
    // A page is a connection, a request and an answer: a hundred events with delayed timers.
    assert!(beside < alone + 1050 * 150, "{alone} {beside}");
}
