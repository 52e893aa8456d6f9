//! Bulk flows and transfers in virtual time.

use midspan_path::Traces;
use midspan_scenario::record::{BulkRecord, Measurement, Variant, WorkloadRecord};
use midspan_scenario::{CellSpec, Scenario};
use midspan_sim::run;

/// A path's links, with the same control and large buffers everywhere.
fn over(path: &str, control: &str, workload: &str) -> CellSpec {
    let text = format!(
        r#"
        name = "test"
        title = "Test"
        seed = 1
        variants = ["none"]
        {path}
        [hosts]
        ue = {{ congestion_control = "{control}", buffers = "max" }}
        mec = {{ congestion_control = "{control}", buffers = "max" }}
        server = {{ congestion_control = "{control}", buffers = "max" }}
        [workload]
        {workload}
        "#
    );
    Scenario::parse(&text, "test.toml").unwrap().cells()[0].spec.clone()
}

/// 100 Mbit/s and a queue of a bandwidth-delay product, `access` after it, 50 ms; an upload unless
/// `workload` says otherwise.
fn cell(access: &str, control: &str, workload: &str) -> CellSpec {
    let path = format!(
        r#"
        [path.access]
        up = [{{ rate = {{ rate = "100 Mbit/s", queue = {{ bytes = "625 KB" }} }} }}, {access} {{ delay = "0.5 ms" }}]
        down = [{{ delay = "0.5 ms" }}]
        [path.wide]
        up = [{{ delay = "24.5 ms" }}]
        down = [{{ delay = "24.5 ms" }}]
        "#
    );
    over(&path, control, workload)
}

const BULK: &str = "kind = 'bulk'\ndirection = 'upload'\ntime = '8 s'\nwarmup = '3 s'";

fn measure(spec: &CellSpec, variant: Variant, seed: u64) -> Measurement {
    run(spec, variant, &Traces::new(), seed).unwrap().0
}

#[test]
fn a_clean_link_is_filled() {
    for control in ["cubic", "reno"] {
        for variant in [Variant::None, Variant::Midspan] {
            let run = measure(&cell("", control, BULK), variant, 1);
            // 1448 bytes of payload in each packet of 1500.
            let share = run.bulk().unwrap().goodput_bps / (100e6 * 1448.0 / 1500.0);
            assert!(share > 0.98, "{control}, {variant}: {share}");
            assert_eq!(run.links[0].up.dropped.get("loss"), None);
        }
    }
}

/// Looks change nothing, and show what the run comes to: slow start doubles the window, the queue fills, and what was
/// retransmitted at the end is what the leg has.
#[test]
fn a_series_shows_legs_and_queues_over_time() {
    for variant in [Variant::None, Variant::Midspan] {
        let asked = format!("{BULK}\nseries = '10 ms'");
        let with = measure(&cell("", "cubic", &asked), variant, 1);
        let without = measure(&cell("", "cubic", BULK), variant, 1);
        let series = with.bulk().unwrap().series.clone().unwrap();
        let WorkloadRecord::Bulk(bulk) = with.workload else { panic!() };
        let workload = WorkloadRecord::Bulk(BulkRecord { series: None, ..bulk });
        assert_eq!(Measurement { workload, ..with }, without);
        let ends = if variant == Variant::None { 2 } else { 4 };
        assert_eq!((series.legs.len(), series.links.len()), (ends, 4));
        let ue = series.legs.iter().find(|leg| leg.host == "ue").unwrap();
        // Of 8 s from when the flow has opened.
        assert!((795..=815).contains(&ue.at_s.len()), "{}", ue.at_s.len());
        assert!(ue.at_s.is_sorted() && ue.retransmits.is_sorted());
        let lists = [ue.cwnd.len(), ue.rtt_us.len(), ue.delivery_rate_bps.len()];
        assert_eq!(lists, [ue.at_s.len(); 3]);
        let least = *ue.cwnd.iter().find(|cwnd| **cwnd > 10).unwrap();
        assert!(*ue.cwnd.iter().max().unwrap() > 100);
        // Through the relay some round trips are over before the first look.
        assert!(variant == Variant::Midspan || (ue.cwnd[0] == 10 && least <= 20), "{:?}", ue.cwnd);
        let end = without.legs.iter().find(|leg| leg.host == "ue").unwrap();
        assert!(ue.retransmits.last().unwrap().abs_diff(end.retransmits) <= 1);
        let up = &series.links[0];
        assert_eq!((&*up.link, &*up.way), ("access", "up"));
        let most = *up.waiting_bytes.iter().max().unwrap();
        assert!((100_000..=650_000).contains(&most), "{most}");
    }
}

/// A greeting goes there and its answer back before the flow begins: in its first second that flow is behind by
/// the round-trip of 50 ms. A download begins when the greeting has come, half of one later; through the relay a
/// little earlier, which has it when its own connection opens.
#[test]
fn a_greeting_takes_a_round_trip() {
    for (direction, round_trips) in [("upload", 1.0), ("download", 0.5)] {
        for variant in [Variant::None, Variant::Midspan] {
            let received = |time: f64, greeting: &str| {
                let bulk = format!(
                    "kind = 'bulk'\ndirection = '{direction}'\ntime = '{time} ms'\n{greeting}"
                );
                let mut spec = cell("", "reno", &bulk);
                if direction == "download" {
                    let access = &mut spec.path.access;
                    std::mem::swap(&mut access.up, &mut access.down);
                }
                measure(&spec, variant, 1).bulk().unwrap().goodput_bps * time
            };
            let late = received(250.0 + 50.0 * round_trips, "greeting = '37 B'");
            let ratio = late / received(250.0, "");
            assert!((0.9..=1.2).contains(&ratio), "{direction}, {variant}: {ratio}");
        }
    }
}

#[test]
fn splitting_repairs_losses_over_the_short_way() {
    let spec = cell("{ loss = { share = '1 %' } },", "reno", BULK);
    let direct = measure(&spec, Variant::None, 1);
    let split = measure(&spec, Variant::Midspan, 1);
    assert!(
        split.bulk().unwrap().acknowledged_bps > 10.0 * direct.bulk().unwrap().acknowledged_bps
    );
    assert_eq!(direct.legs.len(), 2);
    assert_eq!(split.legs.len(), 4);
    // What the relay took in it passed on, but for what it holds.
    let held = split.bulk().unwrap().acknowledged_bps - split.bulk().unwrap().goodput_bps;
    assert!(held.abs() < 0.1 * split.bulk().unwrap().goodput_bps, "{held}");
}

/// Mathis, Semke, Mahdavi, Ott, "The macroscopic behavior of the TCP congestion avoidance
/// algorithm", 1997: 1.22 segments over the root of the loss rate, of which delayed
/// acknowledgements and recovery itself take a part.
#[test]
fn reno_follows_the_root_of_the_loss_rate() {
    let bulk = BULK.replace("8 s", "300 s");
    for (loss, share) in [("0.1 %", 0.001f64), ("1 %", 0.01)] {
        let spec = cell(&format!("{{ loss = {{ share = '{loss}' }} }},"), "reno", &bulk);
        let expected = 1.22 * 1448.0 * 8.0 / (0.05 * share.sqrt());
        let ratio = measure(&spec, Variant::None, 1).bulk().unwrap().goodput_bps / expected;
        assert!((0.75..1.1).contains(&ratio), "{loss}: {ratio}");
    }
}

#[test]
fn the_seed_decides_everything() {
    let spec = cell("{ loss = { share = '0.5 %' } },", "cubic", BULK);
    let first = measure(&spec, Variant::Midspan, 7);
    assert_eq!(measure(&spec, Variant::Midspan, 7), first);
    assert_ne!(measure(&spec, Variant::Midspan, 8), first);
}

/// How long uploads take through a relay that begins towards the server with this window.
fn uploads(size: &str, count: u32, window: Option<u32>) -> Vec<f64> {
    let workload =
        format!("kind = 'transfer'\ndirection = 'upload'\nsize = '{size}'\ncount = {count}");
    let mut spec = cell("", "cubic", &workload);
    spec.relay.server_leg.initial_window = window;
    let measured = measure(&spec, Variant::Midspan, 1);
    measured.transfers().iter().map(|transfer| transfer.received_s).collect()
}

/// Of 40 packets 30 wait for the first ten's acknowledgement, and ten for theirs, unless all may go at once.
#[test]
fn a_relay_begins_towards_servers_with_the_window_that_is_set() {
    let took = |window| uploads("57 KB", 1, window)[0];
    let saved = took(None) - took(Some(40));
    assert!((saved - 2.0 * 0.049).abs() < 0.01, "{saved}");
}

/// Twice as much to begin with spares a round trip, and that again another one.
#[test]
fn a_relay_remembers_what_the_way_to_a_server_has_taken() {
    let took = |window| uploads("1 MB", 4, window);
    let saved: Vec<f64> = took(Some(10)).iter().zip(took(None)).map(|(k, r)| k - r).collect();
    let round_trips = saved.iter().map(|saved| saved / 0.049).collect::<Vec<_>>();
    assert!(round_trips[0].abs() < 0.01, "{round_trips:?}");
    assert!((round_trips[1] - 1.0).abs() < 0.2, "{round_trips:?}");
    assert!(round_trips[2] > 1.5, "{round_trips:?}");
    assert!(round_trips[3] >= round_trips[2], "{round_trips:?}");
}

#[test]
fn a_transfer_takes_the_round_trips_that_it_needs() {
    let transfer = |size: &str, direction: &str| {
        let workload =
            format!("kind = 'transfer'\ndirection = '{direction}'\nsize = '{size}'\ncount = 2");
        let run = measure(&cell("", "cubic", &workload), Variant::None, 1);
        assert_eq!(run.transfers().len(), 2);
        run.transfers()[1]
    };
    let rtts = |seconds: f64| (seconds / 0.05 * 2.0).round() / 2.0;
    let small = transfer("1 KB", "upload");
    assert_eq!((rtts(small.connected_s), rtts(small.received_s)), (1.0, 1.5));
    assert_eq!((rtts(small.acknowledged_s), rtts(small.closed_s)), (2.0, 2.0));
    // Ten packets in the first round trip, twenty in the second.
    let medium = transfer("30 KB", "upload");
    assert_eq!(rtts(medium.received_s), 2.5);
    let large = transfer("10 MB", "download");
    assert!(large.received_s > 10e6 * 8.0 / 1e9 && large.closed_s >= large.received_s);
}

#[test]
fn through_the_relay_small_uploads_end_at_its_round_trip() {
    let workload = "kind = 'transfer'\ndirection = 'upload'\nsize = '1 KB'\ncount = 1";
    let run = measure(&cell("", "cubic", workload), Variant::Midspan, 1);
    let transfer = run.transfers()[0];
    assert!(transfer.connected_s < 0.002 && transfer.acknowledged_s < 0.004, "{transfer:?}");
    assert!(transfer.received_s > 0.025, "{transfer:?}");
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let refusal = |control, variant| {
        run(&cell("", control, BULK), variant, &Traces::new(), 1).unwrap_err().to_string()
    };
    assert_eq!(refusal("cubic", Variant::Haproxy), "haproxy is not simulated; run it live");
    assert!(refusal("cubik", Variant::None).contains("no congestion control is called `cubik`"));
}

/// A base station's marks reach the simulated TCP-ME, whose rate comes to more than the radio's: then there is
/// a queue, and with it the alarm.
#[test]
fn tcp_me_hears_a_base_station() {
    let goodput = |up: &str| {
        let text = format!(
            r#"
            name = "test"
            title = "Test"
            seed = 1
            variants = ["none"]
            [path.access]
            up = [{up} {{ delay = "10 ms" }}]
            down = [
                {{ loss = {{ share = "5 %" }} }},
                {{ radio = {{ rate = "250 kbit/s", modulation = "qpsk 1/2", channel = {{
                   frequency = "2.5 GHz", bandwidth = "5 MHz", distance = "1 km", power = "70 dBm" }} }} }},
                {{ delay = "10 ms" }},
            ]
            [path.wide]
            [hosts.server]
            congestion_control = "ms_me"
            [workload]
            kind = "bulk"
            direction = "download"
            time = "60 s"
            warmup = "10 s"
            "#
        );
        let spec = Scenario::parse(&text, "test.toml").unwrap().cells()[0].spec.clone();
        let run = measure(&spec, Variant::None, 3);
        (run.bulk().unwrap().goodput_bps, run.links[0].up.marked)
    };
    let (unmarked, none) = goodput("");
    let (marked, some) = goodput("{ wla = { threshold = '1 B' } },");
    assert_eq!(none, 0);
    assert!(some > 0 && marked != unmarked, "{some} marks: {marked} and {unmarked} bit/s");
}

/// Where nothing overtakes anything, nothing is sent again but what queues have dropped: bursts behind stalls overflow them, and
/// what is missing is told of block by block.
#[test]
fn what_comes_in_order_is_repeated_where_it_was_dropped() {
    let path = r#"
        [path.access]
        up = [{ delay = "0.5 ms" }]
        down = [
            { rlc = { rate = "200 Mbit/s", failure = "10 %", retransmit = "frame", buffer = "1250 KB" } },
            { delay = "0.5 ms" },
        ]
        [path.wide]
        up = [{ delay = "24.5 ms" }]
        down = [{ rate = { rate = "200 Mbit/s", queue = { bytes = "1250 KB" } } }, { delay = "24.5 ms" }]
        "#;
    let transfer = "kind = 'transfer'\ndirection = 'download'\nsize = '30 MB'\ncount = 1";
    let mut dropped_in_all = 0;
    for control in ["cubic", "bbr", "ms_bbr3"] {
        let spec = over(path, control, transfer);
        for (variant, seed) in [(Variant::None, 1), (Variant::Midspan, 1), (Variant::Midspan, 2)] {
            let run = measure(&spec, variant, seed);
            let ways = run.links.iter().flat_map(|link| [&link.up, &link.down]);
            let dropped: u64 = ways.flat_map(|way| way.dropped.values()).sum();
            let again: u64 = run.legs.iter().map(|leg| u64::from(leg.retransmits)).sum();
            // A probe at the tail of a flight may go for what only waits.
            let probes = again.saturating_sub(dropped);
            assert!(probes <= 2, "{control}, {variant}, {seed}: {again}, {dropped} dropped");
            dropped_in_all += dropped;
        }
    }
    assert!(dropped_in_all > 1000, "{dropped_in_all}");
}

/// The second of two flows with controls of their own comes later, into the queue of the first.
#[test]
fn flows_may_have_controls_of_their_own_and_start_one_after_the_other() {
    let workload =
        format!("{BULK}\nflows = 2\nstagger = '4 s'\ncontrols = ['reno', 'ms_westwood']");
    let run = measure(&cell("", "cubic", &workload), Variant::None, 1);
    assert!((run.measured_s - 5.0).abs() < 1e-9, "{}", run.measured_s);
    let mut senders = run.legs.iter().filter(|leg| leg.host == "ue");
    let (first, second) = (senders.next().unwrap(), senders.next().unwrap());
    assert_eq!(first.congestion_control, "reno");
    assert_eq!(second.congestion_control, "westwood");
    // In four seconds it can send 50 MB.
    assert!(first.bytes_acked > second.bytes_acked + 10_000_000, "{run:?}");
    assert!(second.min_rtt_us > first.min_rtt_us, "{run:?}");
}

/// What the relay holds goes at the rate of the slower leg; of what its peer has not acknowledged, a round trip's worth
/// has been sent.
#[test]
fn a_relay_holds_data_for_as_long_as_its_buffers_take_to_empty() {
    let bulk = "kind = 'bulk'\ndirection = 'download'\ntime = '120 s'\nwarmup = '80 s'";
    let slow = "{ rate = { rate = '10 Mbit/s', queue = { bytes = '30 KB' } } },";
    let mut spec = cell(slow, "reno", bulk);
    let access = &mut spec.path.access;
    std::mem::swap(&mut access.up, &mut access.down);
    let run = measure(&spec, Variant::Midspan, 1);
    let mec = |leg| run.legs.iter().find(|one| one.host == "mec" && one.leg == leg).unwrap();
    let (client, server) = (mec("client"), mec("server"));
    let waiting =
        (server.bytes_received - client.bytes_acked) as f64 * 8.0 / run.bulk().unwrap().goodput_bps;
    let held = run.bulk().unwrap().held.unwrap().mean_us / 1e6 + f64::from(client.rtt_us) / 1e6;
    assert!(waiting > 0.5 && (held / waiting - 1.0).abs() < 0.1, "{held} of {waiting}");
    assert_eq!(measure(&spec, Variant::None, 1).bulk().unwrap().held, None);
}

/// A relay of which a scenario says nothing is the one that is deployed.
#[test]
fn the_relays_client_leg_has_the_relays_own_control() {
    let download = BULK.replace("upload", "download");
    let mut spec = cell("", "cubic", &download);
    let of_client_leg = |spec: &CellSpec| {
        let legs = measure(spec, Variant::Midspan, 1).legs;
        let leg =
            legs.into_iter().find(|leg| (&*leg.host, &*leg.leg) == ("mec", "client")).unwrap();
        leg.congestion_control
    };
    let own = of_client_leg(&spec);
    assert!(own.ends_with("radio"), "{own}");
    spec.relay.client_leg.congestion_control = Some("cubic".to_owned());
    assert_eq!(of_client_leg(&spec), "cubic");
}
