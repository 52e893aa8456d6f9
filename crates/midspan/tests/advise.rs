//! `midspan advise`, on figures, flow logs and captures.

mod common;

use std::fs;
use std::path::Path;

use etherparse::{PacketBuilder, TcpHeader, TcpOptionElement};
use serde_json::{Value, json};

fn advise(arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = common::midspan().arg("advise").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

fn told(arguments: &[&str]) -> Value {
    let (text, error, code) = advise(&[arguments, &["--json"]].concat());
    assert_eq!(code, Some(0), "{error}");
    serde_json::from_str(&text).unwrap()
}

/// A path on which losses cost CUBIC the more the further away it repairs them.
const LOSSY: [&str; 12] = [
    "--rtt",
    "80ms",
    "--relay",
    "4ms,40ms",
    "--rate",
    "20Mbit/s",
    "--loss",
    "1%",
    "--size",
    "8s",
    "--control",
    "cubic",
];

#[test]
fn where_losses_cost_much_it_says_to_split_near_them() {
    let told = told(&LOSSY);
    let advice = &told["advice"];
    assert_eq!(advice["verdict"], "split", "{advice:#}");
    assert_eq!(
        (&advice["best"]["place"], &advice["best"]["control"]),
        (&json!("4 ms"), &json!("cubic"))
    );
    let bound = |key: &str| advice["gain"][key].as_f64().unwrap();
    assert!(
        1.5 < bound("lower") && bound("lower") <= bound("mean") && bound("mean") <= bound("upper")
    );
    // Two places, with three buffers each.
    assert_eq!(advice["compared"].as_array().unwrap().len(), 6);
    let (text, ..) = advise(&LOSSY);
    assert!(text.starts_with("Split 4 ms from the UE, cubic towards it, a buffer of "), "{text}");
    // What the sentence says is what JSON has.
    let said = text.lines().next().unwrap().split("expect flows to be ").nth(1).unwrap();
    let said: f64 = said.split(' ').next().unwrap().parse().unwrap();
    assert!((said / bound("mean") - 1.0).abs() < 0.01, "{text}");
    assert!(text.contains("\n     * 4 ms    cubic"), "{text}");
}

#[test]
fn the_same_figures_give_the_same_advice() {
    assert_eq!(told(&LOSSY), told(&LOSSY));
    let other = told(&[&LOSSY[..], &["--seed", "2"]].concat());
    assert_ne!(other["advice"]["gain"], told(&LOSSY)["advice"]["gain"]);
}

#[test]
fn where_nothing_is_to_be_gained_it_says_not_to_split() {
    let (text, error, code) =
        advise(&["--rtt", "20ms", "--rate", "10Mbit/s", "--size", "20s", "--relay", "10ms"]);
    assert_eq!((error.as_str(), code), ("", Some(0)));
    assert!(text.starts_with("Do not split: it makes no difference."), "{text}");
}

#[test]
fn where_cubic_takes_late_packets_for_lost_ones_it_says_so() {
    let path = ["--rtt", "50ms", "--relay", "5ms", "--rate", "1Gbit/s", "--size", "4s"];
    let late = ["--late", "0.5%", "--late-by", "10ms", "--control", "cubic"];
    let upload = ["--direction", "upload", "--reordering-hold", "0ms", "--host-buffers", "max"];
    let told = told(&[&path[..], &late, &upload].concat());
    let advice = &told["advice"];
    assert_eq!(advice["verdict"], "harms", "{advice:#}");
    assert!(advice["gain"]["upper"].as_f64().unwrap() < 1.0);
}

#[test]
fn the_scenario_that_it_writes_is_one_that_the_lab_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("advise.toml");
    let path = file.to_str().unwrap();
    let (text, ..) = advise(&[&LOSSY[..], &["--write", path]].concat());
    assert!(text.ends_with(&format!("Scenario: {path}\n")), "{text}");
    let out = folder.path().join("out");
    let output = common::midspan()
        .args([
            "lab",
            "run",
            path,
            "--backend",
            "sim",
            "--only",
            "candidate=4 ms, cubic, 1 MiB",
            "--out",
        ])
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results = fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(results.join("summary.json")).unwrap()).unwrap();
    // All seeds there, those to expect by here.
    let cell =
        summary["cells"].as_array().unwrap().iter().find(|cell| cell["counts"]["measured"] == 24);
    let gain = cell.unwrap()["variants"][1]["gain"]["mean"].as_f64().unwrap();
    let expected = told(&LOSSY)["advice"]["gain"]["mean"].as_f64().unwrap();
    assert!((gain / expected).ln().abs() < 0.3, "{gain} {expected}");
}

#[test]
fn a_flow_log_gives_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.jsonl");
    let leg = |rtt: u64| {
        json!({
            "min_rtt_us": rtt, "segments_sent": 2000, "segments_retransmitted": 20, "delivery_rate": 2_500_000,
        })
    };
    let line = json!({
        "schema": 1, "kind": "split", "bytes_to_client": 2_800_000, "bytes_to_server": 300,
        "client_leg": leg(8_000), "server_leg": leg(72_000),
    });
    fs::write(&path, format!("{line}\n{line}\n")).unwrap();
    let told = told(&["--flow-log", path.to_str().unwrap(), "--size", "8s", "--control", "cubic"]);
    let figures = &told["figures"];
    assert_eq!((&figures["rtt"], &figures["radio_rtt"]), (&json!("80 ms"), &json!("8 ms")));
    assert_eq!((&figures["rate"], &figures["loss"]), (&json!("20 Mbit/s"), &json!("1 %")));
    assert_eq!(told["measured"], json!(["rtt", "rate", "radio_rtt", "loss", "direction"]));
    assert_eq!(told["advice"]["best"]["place"], "8 ms");
}

/// A capture at a box 8 ms from the UE and 72 ms from the server: 2000 segments of an upload, of which each hundredth comes again.
fn capture(path: &Path) {
    let mut file = Vec::new();
    let words = |file: &mut Vec<u8>, words: &[u32]| {
        words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    };
    words(&mut file, &[0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 65_535, 101]);
    let mut packet = |us: u64, from_ue: bool, set: &dyn Fn(&mut TcpHeader), payload: usize| {
        let (from, to) = if from_ue { (1, 2) } else { (2, 1) };
        let mut header = TcpHeader::new(u16::from(from), u16::from(to), 0, 65_000);
        set(&mut header);
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ipv4([192, 0, 2, from], [192, 0, 2, to], 64);
        builder.tcp_header(header).write(&mut bytes, &vec![0; payload]).unwrap();
        // Headers alone, as `midspan lab shell --pcap` keeps them.
        let length = bytes.len() as u32;
        bytes.truncate(60);
        let kept = bytes.len() as u32;
        words(&mut file, &[(us / 1_000_000) as u32, (us % 1_000_000) as u32 * 1000, kept, length]);
        file.extend(bytes);
    };
    packet(0, true, &|header| header.syn = true, 0);
    packet(72_000, false, &|header| (header.syn, header.ack) = (true, true), 0);
    packet(80_000, true, &|header| (header.sequence_number, header.ack) = (1, true), 0);
    for number in 0..2000_u32 {
        let us = 100_000 + u64::from(number) * 500;
        let (lost, again) = (number % 100 == 50, number >= 100 && number % 100 == 0);
        let mut data = |number: u32, us: u64| {
            let set = |header: &mut TcpHeader| {
                header.sequence_number = 1 + number * 1000;
                let stamp = TcpOptionElement::Timestamp((us / 1000) as u32, 0);
                header.set_options(&[stamp]).unwrap();
            };
            packet(us, true, &set, 1000);
        };
        if again {
            data(number - 50, us);
        }
        if !lost {
            data(number, us + 100);
        }
    }
    fs::write(path, file).unwrap();
}

#[test]
fn a_capture_gives_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("box.pcap");
    capture(&path);
    let path = path.to_str().unwrap();
    let told = told(&["--pcap", path, "--size", "1MB", "--relay", "8ms", "--buffer", "1MiB"]);
    let figures = &told["figures"];
    assert_eq!((&figures["rtt"], &figures["radio_rtt"]), (&json!("80 ms"), &json!("8 ms")));
    assert_eq!((&figures["direction"], &figures["late"]), (&json!("upload"), &json!("0 %")));
    // 19 of 1999: the last one that is lost does not come again.
    let loss: f64 = figures["loss"].as_str().unwrap().trim_end_matches(" %").parse().unwrap();
    assert!((loss - 0.95).abs() < 0.01, "{loss}");
    // What is given goes before it.
    let told = self::told(&[
        "--pcap", path, "--size", "1MB", "--relay", "8ms", "--buffer", "1MiB", "--loss", "0%",
    ]);
    assert_eq!(told["figures"]["loss"], "0 %");
    assert!(!told["measured"].as_array().unwrap().contains(&json!("loss")));
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let empty = file("empty", b"");
    let text = file("text", b"this is no capture, and no flow log");
    let whole = folder.path().join("whole.pcap");
    capture(&whole);
    let mut bytes = fs::read(&whole).unwrap();
    // A link type that nobody reads: IEEE 802.11.
    bytes[20] = 105;
    let radio = file("radio.pcap", &bytes);
    let header = file("header.pcap", &bytes[..24]);
    let figures = ["--rtt", "60ms", "--rate", "5Mbit/s"];
    let with = |more: &[&'static str]| [&figures[..], more].concat();
    for (arguments, words) in [
        (vec![], "--rtt is missing"),
        (vec!["--rtt", "60ms"], "--rate is missing"),
        (vec!["--rtt", "60", "--rate", "5Mbit/s"], "--rtt: `60` is not a time"),
        (
            with(&["--relay", "70ms"]),
            "--relay: 70 ms; must be above 0 s, below the round trip of 60 ms",
        ),
        (with(&["--late", "1%"]), "--late-by"),
        (with(&["--loss", "50%"]), "--loss: 50 %; at most 20 %"),
        (with(&["--size", "1MB,2s"]), "--size: `1MB,2s` is neither"),
        (with(&["--server-control", "cubik"]), "did you mean `cubic`?"),
        (with(&["--seeds", "1"]), "--seeds: 1; from 6 to 1000"),
        (with(&["--write", "/nowhere/at/all"]), "cannot write /nowhere/at/all"),
        (vec!["--pcap", &empty], "neither pcap nor pcapng"),
        (vec!["--pcap", &text], "neither pcap nor pcapng"),
        (vec!["--pcap", &radio], "link type 105"),
        (vec!["--pcap", &header], "link type 105"),
        (vec!["--flow-log", &text], "text:1: not a line of a flow log"),
        (vec!["--flow-log", &empty], "what was measured does not tell it"),
        (vec!["--flow-log", "/nowhere"], "cannot read /nowhere"),
    ] {
        let (told, error, code) = advise(&arguments);
        assert_eq!(
            (told.as_str(), error.lines().count(), code),
            ("", 1, Some(2)),
            "{arguments:?}: {error}"
        );
        assert!(error.starts_with("midspan: ") && error.contains(words), "{error}");
    }
}
