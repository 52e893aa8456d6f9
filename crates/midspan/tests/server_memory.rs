//! A live relay remembers what the way to a server has taken: over a path with a round trip, which is what that spares.

mod common;

use midspan_lab::results::Results;

/// Three uploads one after the other.
const UPLOADS: &str = r#"
    name = "uploads"
    title = "Uploads one after the other"
    seed = 1
    variants = ["midspan"]
    [path.access]
    up = [{ delay = "2 ms" }]
    down = [{ delay = "2 ms" }]
    [path.wide]
    up = [{ rate = { rate = "200 Mbit/s", queue = { bytes = "2 MB" } } }, { delay = "40 ms" }]
    down = [{ delay = "40 ms" }]
    [relay]
    client_leg = { congestion_control = "cubic" }
    server_leg = RELAY
    [workload]
    kind = "transfer"
    direction = "upload"
    size = "1 MB"
    count = 3
"#;

/// How long the third takes, in seconds.
fn third(server_leg: &str) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = common::lab_run(folder.path(), &UPLOADS.replace("RELAY", server_leg), &out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = std::fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    let results = Results::read(&run).unwrap();
    let measured = results.records().iter().find_map(|record| record.measurement());
    measured.map_or(f64::NAN, |measured| measured.transfers()[2].received_s)
}

#[test]
fn an_upload_to_a_server_that_has_taken_others_spares_round_trips() {
    if !common::can_run() {
        return;
    }
    // A run on a busy machine may not be trusted, and has no figures.
    let spares = |()| (third("{ initial_window = 10 }") - third("{}")) / 0.08;
    let tries: Vec<f64> = [(); 3].into_iter().map(spares).collect();
    assert!(tries.iter().any(|spared| *spared > 1.0), "{tries:?}");
    println!("round trips spared: {tries:.1?}");
}
