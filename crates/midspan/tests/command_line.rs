//! The program as its users call it.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use midspan_lab::results::Results;
use midspan_scenario::record::{Backend, Outcome, Record, Variant};

const TINY: &str = r#"
name = "tiny"
title = "A path for tests"
seed = 3
repetitions = 2
variants = ["none", "midspan"]

[path.access]
up = [{ rate = { rate = "20 Mbit/s", queue = { bytes = "100 KB" } } }, { delay = "2 ms" }]
down = [{ rate = { rate = "20 Mbit/s", queue = { bytes = "100 KB" } } }, { delay = "2 ms" }]

[path.wide]
up = [{ delay = "5 ms" }]
down = [{ delay = "5 ms" }]

[workload]
kind = "bulk"
direction = "$direction"
time = "1 s"
warmup = "0.3 s"

[sweep]
direction = ["upload", "download"]
"#;

struct Folder {
    _directory: tempfile::TempDir,
    scenario: PathBuf,
    out: PathBuf,
}

fn folder(text: &str) -> Folder {
    let directory = tempfile::tempdir().unwrap();
    let scenario = directory.path().join("scenario.toml");
    fs::write(&scenario, text).unwrap();
    let out = directory.path().join("all results");
    Folder { _directory: directory, scenario, out }
}

impl Folder {
    fn lab_run(&self) -> Command {
        let mut command = common::midspan();
        command.args(["lab", "run"]).arg(&self.scenario).arg("--out").arg(&self.out);
        command
    }

    fn sweeps(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.out).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn records(&self) -> Vec<Record> {
        Results::read(&self.sweeps()[0]).unwrap().records().to_vec()
    }
}

fn text(output: &Output) -> String {
    let parts = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(parts).unwrap()
}

#[test]
fn a_sweep_leaves_a_record_for_each_run_and_a_report() {
    if !common::can_run() {
        return;
    }
    let folder = folder(TINY);
    let output = folder.lab_run().output().unwrap();
    let said = text(&output);
    let records = folder.records();
    assert_eq!(records.len(), 8, "{said}");
    for record in &records {
        match &record.outcome {
            Outcome::Measured(measurement) => {
                let legs = if record.variant == Variant::None { 2 } else { 4 };
                assert_eq!(measurement.legs.len(), legs, "{record:?}");
                // About the link's rate at most (what had waited to be read counts too).
                assert!(
                    (1e6..30e6).contains(&measurement.bulk().unwrap().goodput_bps),
                    "{record:?}"
                );
            }
            // A noisy machine is allowed; a failure is not.
            Outcome::Untrusted { reason, .. } => assert!(!reason.is_empty()),
            Outcome::Failed { reason } => panic!("{reason}"),
        }
    }
    let command = fs::read_to_string(folder.sweeps()[0].join("command.txt")).unwrap();
    let (scenario, out) = (folder.scenario.display(), folder.out.display());
    assert_eq!(command, format!("midspan lab run {scenario} --out '{out}'\n"));
    let page = fs::read_to_string(folder.sweeps()[0].join("report.html")).unwrap();
    assert!(page.contains("A path for tests") && page.contains("<svg"));
    assert!(said.contains("report.html"), "{said}");
}

#[test]
fn a_simulated_sweep_gives_the_same_records_every_time() {
    let scenario = TINY.replace(r#""none", "midspan""#, r#""none", "midspan", "haproxy""#);
    let simulate = || {
        let folder = folder(&scenario);
        let output = folder.lab_run().args(["--backend", "sim"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        assert!(text(&output).contains("haproxy is not simulated"), "{}", text(&output));
        let sweep = fs::read_dir(&folder.out).unwrap().next().unwrap().unwrap().path();
        let results = Results::read(&sweep).unwrap();
        assert_eq!(results.records().len(), 8);
        for record in results.records() {
            assert_eq!(record.backend, Backend::Sim);
            let goodput = record
                .measurement()
                .expect("simulated runs are trusted")
                .bulk()
                .unwrap()
                .goodput_bps;
            // 20 Mbit/s, of which headers take a part; and what had waited behind a loss when the 0.7 s
            // began, at most a queue of 100 KB and a bandwidth-delay product of 35 KB.
            let waiting = f64::from(100_000 + 35_000) * 8.0 / 0.7;
            assert!((18e6..19.4e6 + waiting).contains(&goodput), "{goodput}");
        }
        fs::read_to_string(sweep.join("records.jsonl")).unwrap()
    };
    assert_eq!(simulate(), simulate());
}

#[test]
fn sweeps_of_the_same_second_have_folders_of_their_own() {
    let folder = folder(TINY);
    let begin = || {
        let mut command = folder.lab_run();
        command.args(["--backend", "sim", "--fresh"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let sweeps: Vec<_> = (0..5).map(|_| begin()).collect();
    for sweep in sweeps {
        let output = sweep.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }
    assert_eq!(folder.sweeps().len(), 5);
}

/// With an initial window of one packet, 14 KB take three round trips of the 40 ms more than with Linux's ten, from
/// a server as from the relay, which has them all by then.
#[test]
fn an_initial_window_holds_in_live_runs() {
    if !common::can_run() {
        return;
    }
    let text = r#"
name = "initial-windows"
title = "Initial windows"
seed = 1
variants = ["none", "midspan"]

[path.access]
up = [{ delay = "20 ms" }]
down = [{ delay = "20 ms" }]

[path.wide]
up = [{ delay = "1 ms" }]
down = [{ delay = "1 ms" }]

[hosts.mec]
initcwnd = "$window"

[hosts.server]
initcwnd = "$window"

[workload]
kind = "transfer"
direction = "download"
size = "14 KB"
count = 3

[sweep]
window = [1, 10]
"#;
    let folder = folder(text);
    folder.lab_run().output().unwrap();
    let fastest = |variant, window: &str| {
        let records = folder.records();
        let record = records.iter().find(|r| r.variant == variant && r.cell["window"] == window);
        let transfers = record.unwrap().measurement()?.transfers();
        transfers.iter().map(|transfer| transfer.received_s).reduce(f64::min)
    };
    for variant in [Variant::None, Variant::Midspan] {
        let (Some(one), Some(ten)) = (fastest(variant, "1"), fastest(variant, "10")) else {
            eprintln!("{variant:?} could not be measured");
            continue;
        };
        assert!((one - ten - 0.12).abs() < 0.03, "{variant:?}: {one} s with one, {ten} s with ten");
    }
}

#[test]
fn a_path_may_follow_a_trace_that_stands_beside_the_scenario() {
    if !common::can_run() {
        return;
    }
    let traced = TINY
        .replace(r#"{ rate = { rate = "20 Mbit/s", queue = { bytes = "100 KB" } } }"#, TRACED)
        .replace("repetitions = 2", "repetitions = 1");
    let folder = folder(&traced);
    let output = folder.lab_run().output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("half.trace"), "{}", text(&output));

    // A packet each second millisecond: 6 Mbit/s.
    let chances: String = (1..=500).map(|chance| format!("{}\n", 2 * chance)).collect();
    fs::write(folder.scenario.with_file_name("half.trace"), chances).unwrap();
    folder.lab_run().output().unwrap();
    let records = folder.records();
    assert_eq!(records.len(), 4);
    for record in records {
        match record.outcome {
            Outcome::Measured(measurement) => {
                assert!(
                    (1e6..9e6).contains(&measurement.bulk().unwrap().goodput_bps),
                    "{measurement:?}"
                );
            }
            Outcome::Untrusted { .. } => {}
            Outcome::Failed { reason } => panic!("{reason}"),
        }
    }
}

const TRACED: &str = r#"{ trace = { file = "half.trace", queue = { bytes = "100 KB" } } }"#;

#[test]
fn an_interrupted_sweep_goes_on_where_it_stopped_and_leaves_no_process() {
    if !common::can_run() {
        return;
    }
    let folder = folder(TINY);
    let mut command = folder.lab_run();
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut lab = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while folder.sweeps().is_empty() || folder.records().len() < 2 {
        assert!(Instant::now() < deadline, "no records after a minute");
        thread::sleep(Duration::from_millis(20));
    }
    let id = lab.id();
    lab.kill().unwrap();
    lab.wait().unwrap();
    let first = folder.records().len();
    wait_until(|| !has_children_left(id), "a relay outlived the lab");
    let output = folder.lab_run().output().unwrap();
    let said = text(&output);
    assert!(said.contains("going on"), "{said}");
    assert_eq!(folder.sweeps().len(), 1);
    assert_eq!(folder.records().len(), 8, "{first} before; {said}");
}

/// Whether a process of the group that `leader` led is still there.
fn has_children_left(leader: u32) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.path().into());
    let stat = |path: &Path| fs::read_to_string(path.join("stat")).ok();
    processes.filter_map(|path: PathBuf| stat(&path)).any(|stat| {
        // After the name in parentheses: state, parent, group.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_whitespace().nth(2) == Some(&leader.to_string())
    })
}

fn wait_until(is_so: impl Fn() -> bool, otherwise: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "{otherwise}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn bad_input_is_refused_with_one_line_and_status_2() {
    let folder = folder(&TINY.replace("repetitions", "repititions"));
    let lab = |arguments: &[&str]| {
        let mut command = common::midspan();
        command.arg("lab").args(arguments);
        command
    };
    let file = folder.scenario.to_str().unwrap();
    for (mut command, words) in [
        (folder.lab_run(), ["scenario.toml:5", "repititions"]),
        (lab(&["check", file]), ["scenario.toml:5", "repititions"]),
        (lab(&["run", "/nonexistent.toml"]), ["cannot read", "/nonexistent.toml"]),
        (lab(&["report", "/nonexistent"]), ["cannot read", "/nonexistent"]),
        (lab(&["compare", "/nonexistent"]), ["--reference", "--with"]),
        (common::midspan(), ["Usage", "relay"]),
    ] {
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    assert!(folder.sweeps().is_empty());
}

#[test]
fn the_relay_takes_settings_from_file_and_flags() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay.toml");
    fs::write(&file, "clients = [\"10.0.0.0/8\"]\nworkers = 3\n").unwrap();
    let relay = |arguments: &[&str]| {
        let mut command = common::midspan();
        command.args(["relay", "--check", "--config"]).arg(&file).args(arguments);
        command.output().unwrap()
    };
    let output = relay(&[
        "--client=192.0.2.0/24",
        "--set=client_leg.congestion_control=bbr",
        "--set=buffer=2 MiB",
        "--set=limits.flows=10",
    ]);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for line in ["192.0.2.0/24", "workers = 3", "\"bbr\"", "buffer = \"2 MiB\"", "flows = 10"] {
        assert!(said.contains(line), "{said}");
    }
    for (setting, words) in [
        ("wokers=2", "wokers"),
        ("workers=many", "workers"),
        ("limits.flows=0", "at least 1"),
        ("port.number=1", "not a table"),
        ("port", "KEY=VALUE"),
    ] {
        let output = relay(&["--set", setting]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(words), "{}", text(&output));
    }
}

#[test]
fn a_relay_that_would_be_connected_to_itself_is_refused_with_one_line_and_status_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relay.toml");
    for to in ["127.0.0.1:8080", "localhost:8080"] {
        let forward = format!("[[forward]]\nlisten = \"0.0.0.0:8080\"\nto = \"{to}\"\n");
        fs::write(&file, forward).unwrap();
        for check in [&["--check"][..], &[]] {
            let mut command = common::midspan();
            let output = command.args(["relay", "--config"]).arg(&file).args(check).output();
            let output = output.unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("127.0.0.1:8080") && said.contains("itself"), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}

#[test]
fn a_running_relay_is_asked_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let (file, socket) = (directory.path().join("relay.toml"), directory.path().join("admin"));
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = format!(
        "workers = 1\n[[forward]]\nlisten = \"127.0.0.1:{port}\"\nto = \"{}\"\n[admin]\nsocket = {socket:?}\n",
        server.local_addr().unwrap()
    );
    fs::write(&file, &settings).unwrap();
    let mut relay = common::midspan();
    relay.args(["relay", "--config"]).arg(&file).stderr(Stdio::null());
    let mut relay = midspan_sys::process::die_with_parent(&mut relay).spawn().unwrap();
    wait_until(|| UnixStream::connect(&socket).is_ok(), "nobody answers");
    let ask = |words: &[&str]| {
        let output = common::midspan().args(words).arg("--socket").arg(&socket).output().unwrap();
        (output.status.code(), text(&output))
    };
    let mut near = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut far, _) = server.accept().unwrap();
    near.write_all(b"ping").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
    for (words, said) in [
        (&["relay", "status"][..], ["running", "flows       1 of"]),
        (&["relay", "counters"], ["accepted", "bytes_from_client"]),
        (&["relay", "flows", "--by", "age"], ["sub-", "1 of 1 open flows"]),
        (&["relay", "flows", "--json"], ["{\"flows\":{\"open\":1", "\"rtt_us\""]),
        (&["top", "--once", "--interval", "0.1"], ["1 open of", "client leg  RTT"]),
        (&["relay", "log", "debug"], ["logging `debug`", ""]),
        (&["relay", "reload"], ["nothing has changed", ""]),
    ] {
        let (status, output) = ask(words);
        assert_eq!(status, Some(0), "{words:?}: {output}");
        assert!(said.iter().all(|said| output.contains(said)), "{words:?}: {output}");
    }
    // Flags of the relay's own stay on top of the file, and what is wrong with it has a line.
    fs::write(&file, settings.replace("workers = 1", "workers = 2")).unwrap();
    let (status, output) = ask(&["relay", "reload"]);
    assert_eq!(status, Some(2));
    assert!(output.contains("`workers`") && output.contains("--replace"), "{output}");
    fs::write(&file, "clients = 7\n").unwrap();
    assert!(ask(&["relay", "reload"]).1.contains("relay.toml:1"));
    for nonsense in ["shouting", "a=b=c"] {
        let (status, output) = ask(&["relay", "log", nonsense]);
        assert_eq!(status, Some(2), "{output}");
        assert!(output.contains("is no level"), "{output}");
    }
    drop((near, far));
    assert_eq!(ask(&["relay", "drain"]), (Some(0), "draining\n".into()));
    assert!(relay.wait().unwrap().success());
    let (status, output) = ask(&["relay", "status"]);
    assert_eq!(status, Some(1));
    assert!(output.contains("no relay answers") && output.contains("admin"), "{output}");
}

#[test]
fn a_selection_that_does_not_exist_is_refused() {
    let folder = folder(TINY);
    for (arguments, word) in [
        (["--only", "loss=1 %"], "direction"),
        (["--only", "direction=sideways"], "upload"),
        (["--variants", "haproxy"], "haproxy"),
    ] {
        let output = folder.lab_run().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(word), "{}", text(&output));
    }
}

#[test]
fn an_ordinary_user_can_run_the_lab_where_the_kernel_allows_it() {
    if !common::can_run() || !is_root() {
        return;
    }
    let folder = folder(&TINY.replace("repetitions = 2", "repetitions = 1"));
    // The program may stand where that user cannot look.
    let place = tempfile::Builder::new().prefix("midspan-").tempdir_in("/tmp").unwrap();
    let program = place.path().join("midspan");
    fs::copy(common::program(), &program).unwrap();
    let scenario = place.path().join("scenario.toml");
    fs::copy(&folder.scenario, &scenario).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    fs::set_permissions(place.path(), mode(0o777)).unwrap();
    let mut command = Command::new(&program);
    command.args(["lab", "run"]).arg(&scenario).arg("--out").arg(place.path().join("out"));
    let output = command.uid(NOBODY).gid(NOBODY).env("TMPDIR", "/tmp").output().unwrap();
    let said = text(&output);
    if said.contains("user namespace") {
        eprintln!("skipped: this system allows no unprivileged user namespaces");
        return;
    }
    let sweep = fs::read_dir(place.path().join("out")).unwrap().next().unwrap().unwrap();
    let results = Results::read(&sweep.path()).unwrap();
    assert_eq!(results.records().len(), 4, "{said}");
    let failed =
        results.records().iter().any(|record| matches!(record.outcome, Outcome::Failed { .. }));
    assert!(!failed, "{said}");
}

const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    midspan_sys::userns::is_root()
}

#[test]
fn doctor_says_what_is_there() {
    let output = common::midspan().arg("doctor").output().unwrap();
    let said = text(&output);
    for subject in ["privileges", "emulated links", "nftables", "congestion controls", "cubic"] {
        assert!(said.contains(subject), "{said}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_fault() {
    let mut program = common::midspan();
    let mut program =
        program.arg("doctor").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(program.stdout.take());
    let output = program.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output).as_str()), (Some(128 + 13), ""));
}

#[test]
fn every_scenario_of_the_repository_is_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files = Vec::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "toml" => files.push(path),
                _ => {}
            }
        }
    }
    assert!(files.len() > 8, "{files:?}");
    let output = common::midspan().args(["lab", "check"]).args(&files).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}
