//! Videos in virtual time.

use midspan_path::Traces;
use midspan_scenario::Scenario;
use midspan_scenario::record::{Measurement, Variant};
use midspan_sim::run;

/// A video of 1 Mbit/s and 20 s over a link of `rate`, 50 ms there and back.
fn play(rate: &str, keys: &str) -> Measurement {
    let text = format!(
        r#"
        name = "test"
        title = "Test"
        seed = 1
        variants = ["none"]
        [path.access]
        up = [{{ delay = "5 ms" }}]
        down = [
            {{ rate = {{ rate = "{rate}", queue = {{ bytes = "50 KB" }} }} }},
            {{ delay = "5 ms" }},
        ]
        [path.wide]
        up = [{{ delay = "20 ms" }}]
        down = [{{ delay = "20 ms" }}]
        [workload]
        kind = "video"
        rate = "1 Mbit/s"
        duration = "20 s"
        {keys}
        "#
    );
    let scenario = Scenario::parse(&text, "test.toml").unwrap();
    run(&scenario.cells()[0].spec, Variant::None, &Traces::new(), 1).unwrap().0
}

/// 5 s of it are 625 KB, half a second at 10 Mbit/s.
#[test]
fn on_a_fast_link_it_begins_soon_and_never_stands_still() {
    let measurement = play("10 Mbit/s", "count = 2");
    assert_eq!((measurement.videos().len(), measurement.satisfied()), (2, Some(100.0)));
    let video = measurement.videos()[1];
    assert!((0.5..0.9).contains(&video.start_s.unwrap()), "{video:?}");
    assert_eq!((video.stalls, video.stalled_s), (0, 0.0));
    assert_eq!(measurement.transfers()[0].bytes, 2_500_000);
    assert!(measurement.transfers()[0].received_s < 3.0);
}

/// At nine tenths of its rate it takes more than 22 s to come, of which it plays 20.
#[test]
fn on_a_slow_link_it_stands_still_for_what_is_missing() {
    let measurement = play("900 kbit/s", "start = '1 s'");
    let (video, transfer) = (measurement.videos()[0], measurement.transfers()[0]);
    assert!(video.stalls >= 1 && measurement.satisfied() == Some(0.0), "{video:?}");
    let missing = transfer.received_s - 20.0 - video.start_s.unwrap();
    assert!((missing - 0.5..missing + 1.1).contains(&video.stalled_s), "{video:?}, {missing}");
}
