//! Web pages in virtual time.

use midspan_path::Traces;
use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Scenario};
use midspan_sim::run;

/// A link that never limits, 10 ms to the relay and 40 ms beyond, and `page` loaded over it.
fn cell(page: &str, keys: &str) -> CellSpec {
    any_cell(page, keys, "0 %", "")
}

fn any_cell(page: &str, keys: &str, loss: &str, wide: &str) -> CellSpec {
    let text = format!(
        r#"
        name = "test"
        title = "Test"
        seed = 1
        variants = ["none"]
        [path.access]
        up = [{{ delay = "5 ms" }}]
        down = [
            {{ rate = {{ rate = "1 Gbit/s" }} }},
            {{ loss = {{ share = "{loss}" }} }},
            {{ delay = "5 ms" }},
        ]
        [path.wide]
        up = [{{ delay = "20 ms" }}]
        down = [{wide}{{ delay = "20 ms" }}]
        [workload]
        kind = "page"
        {page}
        {keys}
        "#
    );
    Scenario::parse(&text, "test.toml").unwrap().cells()[0].spec.clone()
}

/// Round trips of 50 ms that each page takes.
fn round_trips(page: &str, keys: &str, variant: Variant) -> Vec<f64> {
    let (measurement, _) = run(&cell(page, keys), variant, &Traces::new(), 1).unwrap();
    let pages = measurement.transfers().iter();
    pages.map(|page| (page.received_s / 0.05 * 10.0).round() / 10.0).collect()
}

const SMALL: &str = "document = '1 KB'";

#[test]
fn a_document_takes_a_connection_and_a_request() {
    assert_eq!(round_trips(SMALL, "count = 3", Variant::None), [2.0; 3]);
    assert_eq!(round_trips(SMALL, "lookup = '50 ms'", Variant::None), [3.0]);
}

/// Six objects of a small document, all found at once: one on the connection that is there; with no
/// more connections one after the other, or all in one round trip where requests are pipelined.
#[test]
fn connections_are_kept_and_requests_pipelined() {
    let page = format!("{SMALL}\nobjects = [{{ count = 6, least = '1 KB', most = '1 KB' }}]");
    let trips = |keys| round_trips(&page, keys, Variant::None)[0];
    assert_eq!(trips("connections = 1"), 8.0);
    assert_eq!(trips("connections = 1\npipelining = 6"), 3.0);
    assert_eq!(trips("connections = 1\npipelining = 3"), 4.0);
    // One more round trip opens the others.
    assert_eq!(trips("connections = 6"), 4.0);
}

/// What the access loses the relay repairs over a fifth of the way. New connections and first requests
/// still have to get to the server, so a clean path gains nothing.
#[test]
fn through_the_relay_losses_are_repaired_sooner() {
    let page = "document = '50 KB'\nobjects = [{ count = 6, least = '200 KB', most = '200 KB', servers = 3 }]";
    let loads = |variant, loss: &str| {
        let spec = any_cell(page, "count = 5", loss, "");
        let (measurement, _) = run(&spec, variant, &Traces::new(), 1).unwrap();
        measurement.transfers().iter().map(|page| page.received_s).sum::<f64>()
    };
    let gain = |loss| loads(Variant::None, loss) / loads(Variant::Midspan, loss);
    assert!((0.95..1.4).contains(&gain("0 %")), "{}", gain("0 %"));
    assert!(gain("2 %") > 1.5, "{}", gain("2 %"));
}

/// A page is what the file says, whatever the seed; each object has its time.
#[test]
fn objects_have_their_sizes_and_times() {
    let page = "document = '20 KB'\nobjects = [{ count = 3, least = '1 KB', most = '3 KB' }]";
    let (measurement, _) = run(&cell(page, "count = 2"), Variant::None, &Traces::new(), 7).unwrap();
    assert!(measurement.transfers().iter().all(|page| page.bytes == 26_000));
    let page = &measurement.pages()[1];
    assert_eq!(page.objects_s.len(), 3);
    assert!(page.objects_s.iter().all(|time| (0.05..0.051).contains(time)), "{page:?}");
    assert_eq!(page.samples.len(), 4, "one each tenth of a second: {page:?}");
}

/// Of the wide area cross traffic takes its part, and is in no number.
#[test]
fn cross_traffic_shares_the_wide_area() {
    let narrow = "{ rate = { rate = '20 Mbit/s', queue = { bytes = '200 KB' } } }, ";
    let of = |cross| {
        let spec = any_cell("document = '5 MB'", cross, "0 %", narrow);
        run(&spec, Variant::None, &Traces::new(), 1).unwrap().0
    };
    let (alone, shared) = (of(""), of("cross = { flows = 2, congestion_control = 'reno' }"));
    assert!(shared.transfers()[0].received_s > 1.5 * alone.transfers()[0].received_s);
    assert_eq!(shared.legs.len(), alone.legs.len());
}

#[test]
fn a_page_that_does_not_end_in_time_is_no_measurement() {
    let spec = cell("document = '100 MB'", "limit = '1 s'");
    let error = run(&spec, Variant::None, &Traces::new(), 1).unwrap_err();
    assert_eq!(error.to_string(), "page 0: the workload's limit has passed");
}

/// Six first flights fill a slow link for longer than the timeout that follows from a handshake. A server that remembers
/// knows that from the second page on.
#[test]
fn who_remembers_sends_less_again() {
    let retransmissions = |keys: &str| {
        let text = format!(
            r#"
            name = "test"
            title = "Test"
            variants = ["none"]
            [path.access]
            up = [{{ delay = "5 ms" }}]
            down = [{{ rate = {{ rate = "500 kbit/s", queue = {{ bytes = "1 MB" }} }} }}, {{ delay = "5 ms" }}]
            [path.wide]
            up = [{{ delay = "10 ms" }}]
            down = [{{ delay = "10 ms" }}]
            [hosts.server]
            {keys}
            [workload]
            kind = "page"
            count = 4
            connections = 6
            document = "10 KB"
            objects = [{{ count = 6, least = "20 KB", most = "20 KB" }}]
            "#
        );
        let spec = Scenario::parse(&text, "test.toml").unwrap().cells()[0].spec.clone();
        let (measurement, _) = run(&spec, Variant::None, &Traces::new(), 1).unwrap();
        measurement.legs.iter().map(|leg| leg.retransmits).sum::<u32>()
    };
    let (forgetful, remembers) = (retransmissions(""), retransmissions("metrics_save = true"));
    assert!(remembers > 0 && remembers * 5 < forgetful * 4, "{remembers} in place of {forgetful}");
}
