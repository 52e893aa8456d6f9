//! The sixteen cellular recordings as sources. They are not part of the project; where they are not
//! at hand this test says so and passes.

use std::path::Path;

use midspan_assist_proto::estimate::{EstimatorConfig, UeEstimator};
use midspan_assist_proto::{Causal, LinkReading, Reading};
use midspan_path::Trace;
use midspan_path::TraceWindows;
use midspan_units::{Rate, Span, Time};

/// What real links do is not implausible: hardly a window of any recording is clipped, and what a
/// sender is told has the recording's mean.
#[test]
fn real_links_are_believed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/traces");
    let Ok(files) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    };
    let window = Span::from_millis(50);
    let mut recordings = 0;
    for file in files.map(|file| file.unwrap().path()) {
        if file.extension().is_none_or(|extension| extension != "gz") {
            continue;
        }
        recordings += 1;
        let trace = Trace::parse(&std::fs::read(&file).unwrap()).unwrap();
        let mean = trace.mean_rate().as_bps();
        let windows = (trace.duration().as_nanos() / window.as_nanos()).max(1);
        let trace = TraceWindows::new(trace, window);
        let mut ue = UeEstimator::<Causal>::new(EstimatorConfig::default());
        let (mut clipped, mut told, mut now) = (0, 0u64, Time::ZERO);
        for index in 0..windows {
            now += window;
            let rate = trace.rate(index);
            let link = LinkReading { capacity: Some(rate), ..LinkReading::default() };
            clipped +=
                u64::from(ue.observe(&Reading::passed(now, window, link, link), now).is_some());
            if let Some(estimate) = ue.estimate(None) {
                assert!(estimate.bandwidth >= Rate::of(1500, window));
                told += estimate.bandwidth.as_bps();
            }
        }
        let (name, share) = (file.display(), clipped as f64 / windows as f64);
        assert!(share < 0.001, "{name}: {share} clipped");
        // The recording's own mean counts 4 bytes more for each packet, and closed windows are told
        // as one packet: slow links have many.
        let ratio = (told / windows) as f64 / mean as f64;
        let closed = Rate::of(1500, window).as_bps() as f64 / mean as f64;
        assert!(ratio > 0.98 && ratio < 1.01 + closed, "{name}: {ratio}");
    }
    assert_eq!(recordings, 16);
}
