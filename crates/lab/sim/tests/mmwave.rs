//! A proxy at the master or the secondary node of a millimetre-wave cell (the paper `mmwave`).

use midspan_path::Traces;
use midspan_scenario::Scenario;
use midspan_scenario::record::{Measurement, Variant};
use midspan_sim::run;

#[derive(Clone, Copy)]
enum At {
    Master,
    Secondary,
}

/// Bulk download of a UE 1 ms from its node, X2 and server so many milliseconds away.
fn download(at: At, x2: u64, server: u64, rlc: &str, relay: &str, variant: Variant) -> Measurement {
    let (enters, access, wide) = match at {
        At::Master => ("master", x2, 0),
        At::Secondary => ("secondary", 0, x2),
    };
    let text = format!(
        r#"
        name = "test"
        title = "Test"
        variants = ["none"]
        [path.access]
        up = [{{ delay = "{up} ms" }}]
        down = [
            {{ mmwave = {{ enters = "{enters}", x2 = "{x2} ms", {rlc} }} }},
            {{ delay = "1 ms" }},
        ]
        [path.wide]
        up = [{{ delay = "{server} ms" }}, {{ delay = "{wide} ms" }}]
        down = [
            {{ rate = {{ rate = "1 Gbit/s", queue = {{ bytes = "10 MB" }} }} }},
            {{ delay = "{server} ms" }},
            {{ delay = "{wide} ms" }},
        ]
        [hosts]
        # A window of more than the path and the small RLC buffer hold, and of less than the queue at the server.
        ue = {{ congestion_control = "reno", buffers = {{ rmem = "4096 131072 24000000", wmem = "4096 16384 4194304" }} }}
        mec = {{ congestion_control = "reno", buffers = "max" }}
        server = {{ congestion_control = "reno", buffers = "max" }}
        [relay]
        {relay}
        [workload]
        kind = "bulk"
        direction = "download"
        time = "8 s"
        warmup = "3 s"
        "#,
        up = access + 1,
    );
    let scenario = Scenario::parse(&text, "test.toml").unwrap();
    run(&scenario.cells()[0].spec, variant, &Traces::new(), 1).unwrap().0
}

const SMALL: &str = "buffer = '1 MB'";

/// Equations 3 and 4 with a proxy's buffer B that is full: the window towards the server is B - R RTT_pu,
/// and R is a window in each RTT_sp. So R = B / (RTT_sp + RTT_pu), and the sum is the same wherever
/// the proxy stands.
#[test]
fn with_a_full_buffer_the_rate_is_that_of_the_papers_equations_wherever_the_proxy_stands() {
    for (x2, server) in [(5, 30), (20, 30), (20, 1)] {
        let rates = [At::Master, At::Secondary].map(|at| {
            let measured = download(at, x2, server, SMALL, "shared = '1 MB'", Variant::Midspan);
            measured.bulk().unwrap().goodput_bps
        });
        let round_trips = 2 * (x2 + server + 1);
        let expected = 1e6 * 8.0 / (round_trips as f64 / 1e3);
        for rate in rates {
            let ratio = rate / expected;
            assert!((0.9..1.02).contains(&ratio), "{x2}, {server} ms: {rates:?} for {expected}");
        }
        let ratio = rates[0] / rates[1];
        assert!((0.95..1.05).contains(&ratio), "{x2}, {server} ms: {rates:?}");
    }
}

/// With more than the path holds the cell's rate is the limit, and there is no loss: the RLC buffer is as
/// large as all that the proxy may have on its way.
#[test]
fn a_shared_buffer_of_the_rlc_buffers_size_never_overflows_it() {
    let measured =
        download(At::Master, 1, 1, "buffer = '10 MB'", "shared = '10 MB'", Variant::Midspan);
    assert!(
        (740e6..808e6).contains(&measured.bulk().unwrap().goodput_bps),
        "{}",
        measured.bulk().unwrap().goodput_bps
    );
    assert!(measured.links[0].down.dropped.is_empty(), "{:?}", measured.links[0].down);
}

/// Without a proxy a small RLC buffer overflows.
#[test]
fn without_a_proxy_a_small_rlc_buffer_overflows() {
    let rtx = |rlc| {
        let measured = download(At::Master, 5, 30, rlc, "", Variant::None);
        measured.legs.iter().map(|leg| leg.retransmits).sum::<u32>()
    };
    let (small, large) = (rtx(SMALL), rtx("buffer = '100 MB'"));
    assert!(small > 1000 && large == 0, "{small} and {large}");
}

/// During a blockage the data path goes by the master node: less comes through than without, and more than
/// what is left of the time in line of sight would carry alone; nothing is lost by the switch.
#[test]
fn a_blockage_is_bridged_by_the_master_node() {
    let blocked = "buffer = '10 MB', master = '200 Mbit/s', \
                   blockage = { clear = '1 s', blocked = '1 s' }";
    let with =
        |rlc: &str| download(At::Secondary, 5, 30, rlc, "shared = '10 MB'", Variant::Midspan);
    let (clear, blocked) = (with("buffer = '10 MB'"), with(blocked));
    assert!(
        blocked.bulk().unwrap().goodput_bps < 0.9 * clear.bulk().unwrap().goodput_bps,
        "{}",
        blocked.bulk().unwrap().goodput_bps
    );
    assert!(
        blocked.bulk().unwrap().goodput_bps > 0.2 * clear.bulk().unwrap().goodput_bps,
        "{}",
        blocked.bulk().unwrap().goodput_bps
    );
    assert!(blocked.links[0].down.dropped.is_empty());
}
