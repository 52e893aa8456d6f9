//! `midspan lab run --captures`: the packets of runs, live and simulated, as files that everybody reads.

#[path = "common/capture.rs"]
mod capture;
mod common;

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use etherparse::{LaxNetSlice, LaxSlicedPacket, TcpSlice, TransportSlice};

use self::capture::{Capture, Seen};

const SCENARIO: &str = r#"
    name = "captured"
    title = "A point, both variants"
    seed = 1
    repetitions = 1
    variants = ["none", "midspan"]
    [path.access]
    up = [{ rate = { rate = "$rate" } }, { loss = { share = "1 %" } }, { delay = "5 ms" }]
    down = [{ delay = "5 ms" }]
    [path.wide]
    up = [{ delay = "20 ms" }]
    down = [{ delay = "20 ms" }]
    [workload]
    kind = "bulk"
    direction = "upload"
    time = "1 s"
    [sweep]
    rate = ["5 Mbit/s"]
"#;

/// The interfaces in the order in which a SYN passes them, and whose legs they see where there is a relay.
const PLACES: [(&str, &str); 4] = [
    ("ue", "client leg"),
    ("mec-access", "client leg"),
    ("mec-wide", "server leg"),
    ("server", "server leg"),
];

fn lab_run(folder: &Path, options: &[&str]) -> Output {
    let out = folder.join("results");
    common::lab_run(folder, SCENARIO, &out).args(options).output().unwrap()
}

/// Runs it and answers the folder of the captures.
fn captured(folder: &Path, options: &[&str]) -> PathBuf {
    let captures = folder.join("captures");
    let output = lab_run(folder, &[&["--captures", captures.to_str().unwrap()], options].concat());
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("not complete"), "{said}");
    captures.join("rate=5Mbit_s")
}

fn tcp(packet: &Seen) -> Option<(SocketAddrV4, SocketAddrV4, TcpSlice<'_>)> {
    let sliced = LaxSlicedPacket::from_ip(&packet.kept).ok()?;
    let (Some(LaxNetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
        (sliced.net, sliced.transport)
    else {
        return None;
    };
    let (from, to) = (ip.header().source_addr(), ip.header().destination_addr());
    let from = SocketAddrV4::new(from, tcp.source_port());
    Some((from, SocketAddrV4::new(to, tcp.destination_port()), tcp))
}

/// The connection that sends most data at a place, by its SYN: when it was seen, and its ends.
fn syn(capture: &Capture, least_bytes: u64) -> (u64, SocketAddrV4, SocketAddrV4) {
    let syns = capture.packets.iter().filter_map(|packet| {
        let (from, to, tcp) = tcp(packet)?;
        (tcp.syn() && !tcp.ack()).then_some((packet.at, from, to))
    });
    let bytes = |ends: &(u64, SocketAddrV4, SocketAddrV4)| -> u64 {
        let of = |packet: &Seen| {
            let (from, to, _) = tcp(packet)?;
            (from == ends.1 && to == ends.2).then_some(u64::from(packet.wire_bytes))
        };
        capture.packets.iter().filter_map(of).sum()
    };
    let syn = syns.max_by_key(bytes).unwrap();
    assert!(bytes(&syn) > least_bytes, "{syn:?}: {}", bytes(&syn));
    syn
}

/// What holds of the captures of both variants, live as simulated.
fn check(captures: &Path) {
    for variant in ["none", "midspan"] {
        let mut before = None;
        for (place, leg) in PLACES {
            let leg = if variant == "none" { "end-to-end leg" } else { leg };
            let file = captures.join(format!("{variant}-1/{place}.pcapng"));
            let capture = Capture::read(&file);
            assert_eq!(capture.interface, place);
            assert_eq!(
                capture.comment,
                format!(
                    "scenario captured, rate 5 Mbit/s, variant {variant}, repetition 1, {leg} at {place}"
                )
            );
            let times = capture.packets.iter().map(|packet| packet.at);
            assert!(times.is_sorted(), "{variant}, {place}");
            // Of a second at 5 Mbit/s half and more comes through a loss of 1 %.
            let (at, from, to) = syn(&capture, 100_000);
            assert_eq!(
                (from.ip().to_string(), to.ip().to_string()),
                ("10.45.1.2".into(), "10.45.2.2".into())
            );
            // The relay is transparent: the ends of both legs are the same.
            if let Some((earlier, ends)) = before {
                assert!(at >= earlier && ends == (from, to), "{variant}, {place}: {from} {to}");
            }
            before = Some((at, (from, to)));
            let headers_alone = |packet: &Seen| packet.kept.len() <= 20 + 60;
            assert!(capture.packets.iter().all(headers_alone), "{variant}, {place}");
            if common::has("tcpdump") {
                let output = Command::new("tcpdump").args(["-nr"]).arg(&file).output().unwrap();
                assert!(output.status.success(), "{output:?}");
                let lines = String::from_utf8(output.stdout).unwrap();
                assert_eq!(lines.lines().count(), capture.packets.len());
                let syn = format!("IP {}.{} > ", from.ip(), from.port());
                assert!(
                    lines.lines().any(|line| line.contains(&syn) && line.contains("Flags [S]"))
                );
                assert!(lines.contains("mss 1460,sackOK,TS val"), "{lines}");
            }
        }
    }
}

#[test]
fn simulated_runs_are_captured_and_are_the_same_again() {
    let folders = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let captures = folders.each_ref().map(|folder| captured(folder.path(), &["--backend", "sim"]));
    check(&captures[0]);
    for variant in ["none", "midspan"] {
        for (place, _) in PLACES {
            let file = format!("{variant}-1/{place}.pcapng");
            let [one, other] =
                captures.each_ref().map(|captures| fs::read(captures.join(&file)).unwrap());
            assert!(one == other, "{file}");
        }
    }
    // Nor does it change what is measured.
    let plain = tempfile::tempdir().unwrap();
    assert!(lab_run(plain.path(), &["--backend", "sim"]).status.success());
    let records = |folder: &Path| {
        let mut results = fs::read_dir(folder.join("results")).unwrap();
        fs::read(results.next().unwrap().unwrap().path().join("records.jsonl")).unwrap()
    };
    assert!(records(plain.path()) == records(folders[0].path()));
}

#[test]
fn live_runs_are_captured() {
    if !common::can_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    check(&captured(folder.path(), &[]));
}

#[test]
fn what_cannot_be_captured_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a-file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    for (options, what) in [
        (&["--backend", "sim", "--captures", "x", "--captures-whole"][..], "headers alone"),
        (&["--captures", file], "--captures: cannot make"),
        (&["--captures-whole"], "--captures <DIR>"),
    ] {
        let output = lab_run(folder.path(), options);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(what), "{said}");
    }
}
