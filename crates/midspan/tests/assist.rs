//! `midspan assist` on the command line.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::assist::{Files, Running, Station, assist, certs, wait_for};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// One line on standard error, and the exit status.
#[track_caller]
fn refused(output: &Output, status: i32) -> String {
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(status), 1), "{said}");
    said
}

fn run(command: &str, config: &Path) -> Output {
    assist(&[command, "--check", "--config", config.to_str().unwrap()])
}

#[test]
fn certificates_are_made_once() {
    let files = Files::new();
    for name in ["authority.pem", "daemon.pem", "daemon.key", "server.pem", "server.key"] {
        assert!(files.path("certs").join(name).exists(), "{name}");
    }
    let before = fs::read(files.path("certs/daemon.key")).unwrap();
    let said = refused(&certs(&files.path("certs")), 2);
    assert!(said.contains("certificates"), "{said}");
    assert_eq!(fs::read(files.path("certs/daemon.key")).unwrap(), before);
    let output = assist(&["certs", "--host", "nameless"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("NAME=NAMES"));
}

#[test]
fn settings_are_checked_and_printed_in_full() {
    let files = Files::new();
    let daemon = files.daemon("listen = \"127.0.0.1:0\"", &files.identity("daemon"));
    let output = run("serve", &daemon);
    assert!(output.status.success(), "{output:?}");
    // With the defaults of what was not said, and fit to be read again.
    let printed = text(&output.stdout);
    assert!(printed.contains("basis = \"causal\"") && printed.contains("stale = \"600 ms\""));
    fs::write(&daemon, &printed).unwrap();
    assert_eq!(text(&run("serve", &daemon).stdout), printed);
    let agent = files.agent("period = \"100 ms\"", "192.0.2.1:49460");
    let output = run("agent", &agent);
    assert!(text(&output.stdout).contains("period = \"100 ms\""), "{output:?}");
}

#[test]
fn what_is_wrong_in_a_file_is_told_in_one_line() {
    let files = Files::new();
    let said = refused(&run("serve", &files.path("nothing.toml")), 2);
    assert!(said.contains("nothing.toml: cannot be read"), "{said}");
    let identity = files.identity("daemon");
    let said = refused(&run("serve", &files.daemon("sesions = 7", &identity)), 2);
    assert!(
        said.contains("daemon.toml:3: unknown key `sesions`; did you mean `sessions`?"),
        "{said}"
    );
    let said = refused(&run("serve", &files.daemon("sessions = 0", &identity)), 2);
    assert!(said.contains("`sessions` must be at least 1"), "{said}");
    // Files that the settings name, too.
    let said = refused(&run("serve", &files.daemon("", &files.identity("nobody"))), 2);
    assert!(said.contains("nobody.pem"), "{said}");
    fs::write(files.path("policy.toml"), "[[peer]]\nmay_ask = [\"10.45.0.0/33\"]\n").unwrap();
    let said = refused(&run("serve", &files.daemon("", &identity)), 2);
    assert!(said.contains("policy.toml"), "{said}");
    let said = refused(&run("agent", &files.agent("period = \"5 ms\"", "192.0.2.1:1")), 2);
    assert!(said.contains("`period` must be between 10 ms and 500 ms"), "{said}");
    let oracle = files.daemon("basis = \"oracle\"", &identity);
    fs::write(files.path("policy.toml"), "").unwrap();
    let output = assist(&["serve", "--config", oracle.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no base station knows what comes"), "{output:?}");
}

#[test]
fn a_running_daemon_is_looked_at_and_told_whose_an_rnti_is() {
    let files = Files::new();
    let socket = files.path("daemon.sock");
    let socket = socket.to_str().unwrap();
    refused(&assist(&["top", "--once", socket]), 1);
    let config = files.daemon("listen = \"127.0.0.1:0\"", &files.identity("daemon"));
    let _daemon = Running::start("serve", &config, None);
    let station = Station::start(&files.path("feed"), "70");
    station.tell(7_000_000);
    let source =
        |key: &str| files.state("daemon.sock").map(|state| state["sources"][0][key].clone());
    wait_for("a reading of an RNTI", || source("unmapped").and_then(|n| n.as_u64()) > Some(0));
    assert_eq!(files.state("daemon.sock").unwrap()["ues"].as_array().unwrap().len(), 0);

    let said = refused(&assist(&["map", socket, "other", "70", "10.45.1.2"]), 1);
    assert!(said.contains("no source `other`"), "{said}");
    let output = assist(&["map", socket, "cell", "seventy", "10.45.1.2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(assist(&["map", socket, "cell", "0x46", "10.45.1.2"]).status.success());
    let capacity = || {
        let state = files.state("daemon.sock")?;
        state["ues"][0]["bandwidth_bps"].as_u64()
    };
    wait_for("the UE's capacity", || capacity() == Some(7_000_000));
    let shown = text(&assist(&["top", "--once", socket]).stdout);
    assert!(shown.contains("10.45.1.2") && shown.contains("7.00 Mbit/s"), "{shown}");
    assert!(shown.contains("believed"), "{shown}");

    assert!(assist(&["map", socket, "cell", "70"]).status.success());
    wait_for("nothing is known of it", || capacity().is_none());
}

#[test]
fn an_agent_that_may_not_write_the_map_says_so() {
    if is_root() {
        return eprintln!("skipped: root may");
    }
    let files = Files::new();
    let config = files.agent("pins = \"/sys/fs/bpf/midspan-nobody\"", "127.0.0.1:1");
    let output = assist(&["agent", "--config", config.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the map for feedback"));
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}
