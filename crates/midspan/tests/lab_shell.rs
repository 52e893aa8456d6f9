//! `midspan lab shell` and `midspan lab enter`, as their users call them.

#[path = "common/capture.rs"]
mod capture;
mod common;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capture::{Capture, Seen};
use common::assist::wait_for;

/// One at a time: links want the machine for themselves.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `midspan lab shell`, with a folder of its own for what it writes about itself.
fn shell(arguments: &[&str]) -> Command {
    let mut command = common::midspan();
    command.args(["lab", "shell"]).args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    shell(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Pings the server, and prints each round trip in milliseconds.
const PING: &str = r#"
import os, socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
s.settimeout(0.3)
for n in range(int(sys.argv[1])):
    sent = time.monotonic()
    s.sendto(struct.pack("!BBHHH", 8, 0, 0, 0, n) + b"midspan", (os.environ["MIDSPAN_SERVER"], 0))
    try:
        s.recv(1500)
        print((time.monotonic() - sent) * 1e3)
    except TimeoutError:
        pass
"#;

fn pings(arguments: &[&str], count: &str) -> Vec<f64> {
    let mut command = shell(arguments);
    let output = command.args(["--", "python3", "-c", PING, count]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let mut times: Vec<f64> = stdout(&output).lines().map(|line| line.parse().unwrap()).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// By how much a wait of 15 ms is longer here, in the median, in milliseconds.
fn lateness() -> f64 {
    let wait = Duration::from_millis(15);
    let mut late = [0.0; 21].map(|_: f64| {
        let begun = Instant::now();
        std::thread::sleep(wait);
        (begun.elapsed() - wait).as_secs_f64() * 1e3
    });
    late.sort_by(f64::total_cmp);
    late[late.len() / 2]
}

#[test]
fn round_trips_are_as_told_and_a_shell_starts_at_once() {
    if !common::can_run() || !common::has("python3") {
        return;
    }
    let _machine = alone();
    // Others may use the machine: then another time is a fairer one. How late it wakes whoever
    // waits is no fault of the path's, on which a packet and its answer wait four times.
    let on_time = (0..5).any(|_| {
        let times = pings(&["--rtt", "60ms", "--rate", "50Mbit/s"], "21");
        let (round_trip, late) = (times[times.len() / 2], lateness());
        eprintln!(
            "median round trip: {round_trip:.3} ms of 60; the machine wakes {late:.3} ms late"
        );
        (59.9..60.5 + 4.0 * late).contains(&round_trip)
    });
    assert!(on_time);
    let begun = Instant::now();
    let output = run(&["--rtt", "60ms", "--rate", "50Mbit/s", "--", "true"]);
    let took = begun.elapsed();
    assert!(output.status.success());
    eprintln!("a shell around nothing takes {} ms", took.as_millis());
    assert!(took < Duration::from_secs(2), "{took:?}: {}", stderr(&output));
}

#[test]
fn losses_are_on_the_radio() {
    if !common::can_run() || !common::has("python3") {
        return;
    }
    let _machine = alone();
    let arguments = ["--rtt", "2ms", "--loss", "30%", "--seed", "3"];
    let answered = pings(&arguments, "40").len();
    // About half of them: 70 % come there, and 70 % of these back.
    assert!((10..30).contains(&answered), "{answered}");
    assert_eq!(pings(&["--rtt", "2ms", "--loss", "100%"], "2").len(), 0);
}

#[test]
fn a_download_is_quicker_with_the_relay() {
    if !common::can_run() || !common::has("python3") || !common::has("curl") {
        return;
    }
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("blob"), vec![7; 1_500_000]).unwrap();
    let server = format!("python3 -m http.server 8080 -d {}", folder.path().display());
    let fetch =
        "curl -s -o /dev/null -w '%{time_total} %{size_download}' http://$MIDSPAN_SERVER:8080/blob";
    let with = |relay: &str| -> f64 {
        let path = ["--rtt", "60ms", "--rate", "50Mbit/s", "--loss", "1%", "--relay", relay];
        let output =
            shell(&path).args(["--server", &server, "--", "sh", "-c", fetch]).output().unwrap();
        let (said, banner) = (stdout(&output), stderr(&output));
        assert!(output.status.success() && said.ends_with(" 1500000"), "{said}{banner}");
        assert!(banner.contains("listens on tcp/8080"), "{banner}");
        assert_eq!(banner.contains("no relay"), relay == "none", "{banner}");
        assert_eq!(banner.contains("relay 1 ms from the UE"), relay == "1ms", "{banner}");
        said.split(' ').next().unwrap().parse().unwrap()
    };
    let (without, relayed) = (with("none"), with("1ms"));
    eprintln!("1.5 MB over 50 Mbit/s, 60 ms and 1 % loss: {without} s, with the relay {relayed} s");
    assert!(relayed < without, "{relayed} {without}");
}

/// The program, as nobody; none where that cannot be.
fn as_nobody() -> Option<Command> {
    let nobody = |program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env_remove("XDG_RUNTIME_DIR");
        command.current_dir("/");
        command
    };
    if !midspan_sys::userns::is_root() || !common::has("setpriv") {
        common::skip("needs root and setpriv, to become an ordinary user");
        return None;
    }
    let mut may = nobody(Path::new("unshare"));
    if !may.args(["-Urn", "true"]).output().is_ok_and(|output| output.status.success()) {
        common::skip("an ordinary user may not make user namespaces here");
        return None;
    }
    let mut reach = nobody(common::program());
    if !reach.arg("--version").output().is_ok_and(|output| output.status.success()) {
        common::skip("an ordinary user may not read this build");
        return None;
    }
    Some(nobody(common::program()))
}

#[test]
fn an_ordinary_user_has_a_shell_with_a_relay_and_stays_who_he_is() {
    if !common::can_run() {
        return;
    }
    let Some(mut command) = as_nobody() else { return };
    let _machine = alone();
    let path = ["lab", "shell", "--rtt", "20ms", "--relay", "1ms"];
    let output = command.args(path).args(["--", "sh", "-c", "id -u; ps ax | wc -l; exit 7"]);
    let output = output.output().unwrap();
    let (said, banner) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(7), "{banner}");
    assert!(said.starts_with("65534\n"), "{said}");
    assert!(banner.contains("steered by nftables"), "{banner}");
    assert!(banner.contains("ms_radio cannot be had here"), "{banner}");
    let mut command = as_nobody().unwrap();
    let output = command.args(path).args(["--root", "-q", "--", "id", "-u"]).output().unwrap();
    assert_eq!(stdout(&output), "0\n", "{}", stderr(&output));
    if !Path::new("/usr/bin/python3").exists() || !common::has("curl") {
        return;
    }
    // On a port that only root has elsewhere.
    let mut command = as_nobody().unwrap();
    let server = ["--server", "python3 -m http.server 80 -d /usr/share", "-q"];
    let fetch = "curl -s -o /dev/null -w '%{http_code}' http://$MIDSPAN_SERVER/";
    let output = command.args(path).args(server).args(["--", "sh", "-c", fetch]).output().unwrap();
    assert_eq!(stdout(&output), "200", "{}", stderr(&output));
}

#[test]
fn a_shell_ends_as_its_program_does() {
    if !common::can_run() {
        return;
    }
    let _machine = alone();
    let path = ["-q", "--rtt", "4ms", "--"];
    for (program, status) in [
        (&["sh", "-c", "exit 3"][..], 3),
        (&["sh", "-c", "kill -KILL $$"], 128 + 9),
        (&["/nonesuch"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let output = run(&[&path[..], program].concat());
        assert_eq!(output.status.code(), Some(status), "{program:?}: {}", stderr(&output));
    }
    // What tells the lab to end tells the program.
    let trap = "trap 'exit 9' TERM; touch \"$0\"; for i in $(seq 600); do sleep 0.05; done";
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let program = ["sh", "-c", trap, ready.to_str().unwrap()];
    let mut child = shell(&[&path[..], &program].concat()).spawn().unwrap();
    wait_for("the program runs", || ready.exists());
    assert!(common::signal(child.id(), "-TERM"));
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_server_that_ends_at_once_is_told() {
    if !common::can_run() {
        return;
    }
    let _machine = alone();
    let output = run(&["--rtt", "4ms", "--server", "echo no such file; exit 4", "--", "true"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("ended with 4, and said: no such file"), "{said}");
}

#[test]
fn bad_options_are_refused_with_one_line_and_status_2() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/demo.toml");
    let cells = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/lte/4.toml");
    for (arguments, words) in [
        (&[][..], "give a scenario file, or options"),
        (&["--rtt", "60"], "--rtt: `60` is not a time such as"),
        (&["--rtt", "60ms", "--rate", "50"], "--rate: `50` is not a rate such as"),
        (&["--rate", "0Mbit/s"], "the rate must be above zero"),
        (&["--rtt", "60ms", "--loss", "2"], "--loss: `2` is not a share"),
        (&["--rtt", "60ms", "--relay", "far"], "--relay: `far` is not a time"),
        (&["--rtt", "60ms", "--relay", "61ms"], "at most the round trip, 60 ms"),
        (&["--rtt", "60ms", "--log", "/nonesuch/log"], "cannot write /nonesuch/log"),
        (&["--rtt", "60ms", "--pcap", "/nonesuch/pcap"], "cannot write /nonesuch/pcap"),
        (&["/nonesuch.toml"], "cannot read /nonesuch.toml"),
        (&[demo, "--set", "direction=sideways"], "the axis has download, upload"),
        (&[demo, "--set", "hosts.ue.mood=good"], "unknown key `mood`"),
        (&[demo, "--variant", "haproxy"], "give none or midspan"),
        (&[cells], "a shell has one UE"),
    ] {
        let output = run(&[arguments, &["--", "true"]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn a_scenario_gives_the_path() {
    if !common::can_run() {
        return;
    }
    let _machine = alone();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/demo.toml");
    let print = ["--", "sh", "-c", "echo $MIDSPAN_SHELL"];
    let arguments = [demo, "--set", "direction=upload", "--variant", "midspan"];
    let output = run(&[&arguments[..], &print].concat());
    assert_eq!(stdout(&output), "ue demo, direction upload, rtt 50 ms\n", "{}", stderr(&output));
    assert!(stderr(&output).contains("relay 1 ms from the UE"), "{}", stderr(&output));
}

#[test]
fn packets_and_queues_are_written_down() {
    if !common::can_run() || !common::has("python3") {
        return;
    }
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let captures = format!("{}/captures/", folder.path().display());
    let log = folder.path().join("log.csv");
    let path = ["--rtt", "20ms", "--rate", "1Mbit/s", "--pcap", &captures];
    let kept = pings(&[&path[..], &["--log", log.to_str().unwrap()]].concat(), "12");
    assert_eq!(kept.len(), 12);
    for name in ["ue", "mec-access", "mec-wide", "server"] {
        let capture = Capture::read(Path::new(&format!("{captures}{name}.pcapng")));
        assert_eq!(capture.interface, name);
        assert!(capture.comment.contains("rtt 20 ms"), "{}", capture.comment);
        // Headers alone of echo requests and replies: 20 bytes and 8; the rest is 7.
        let is_echo = |packet: &&Seen| (packet.kept.len(), packet.wire_bytes) == (28, 35);
        assert_eq!(capture.packets.iter().filter(is_echo).count(), 24, "{name}: {capture:?}");
        assert!(capture.packets.is_sorted_by_key(|packet| packet.at), "{name}: {capture:?}");
    }
    let log = fs::read_to_string(log).unwrap();
    let mut lines = log.lines();
    let head = lines.next().unwrap();
    assert_eq!(
        head,
        "time_s,link,direction,queue_bytes,packets_in,packets_out,bytes_out,drops,delay_ms"
    );
    let out = |link: &str, direction: &str| -> u64 {
        let rows = log.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
        let of_link = rows.filter(|row| row[1] == link && row[2] == direction);
        of_link.map(|row| row[5].parse::<u64>().unwrap()).sum()
    };
    assert!(out("access", "up") >= 12 && out("wide", "down") >= 12, "{log}");
    assert!(lines.count() >= 8, "{log}");
}

#[test]
fn a_second_terminal_enters_and_a_killed_shell_leaves_nothing() {
    if !common::can_run() || !common::has("python3") {
        return;
    }
    let _machine = alone();
    let runtime = tempfile::tempdir().unwrap();
    let mark = format!("{}", 100_000 + std::process::id());
    // One process that goes on by itself, one in a session of its own, and a server.
    let program = format!("sleep {mark} & setsid sleep {mark} & sleep {mark}");
    let start = || {
        let mut command = shell(&["-q", "--rtt", "8ms", "--relay", "1ms"]);
        command.env("XDG_RUNTIME_DIR", runtime.path()).process_group(0);
        let serve = "import socket, time; s = socket.create_server((\"\", 80)); time.sleep";
        let server = format!("python3 -c '{serve}({mark})'");
        command.args(["--server", &server, "--", "sh", "-c", &program]);
        command.stderr(Stdio::null());
        command
    };
    let enter = |arguments: &[&str]| {
        let mut command = common::midspan();
        command.env("XDG_RUNTIME_DIR", runtime.path()).args(["lab", "enter"]).args(arguments);
        command.output().unwrap()
    };
    let none = enter(&["server"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).contains("no shell that runs"), "{}", stderr(&none));
    let mut one = start().spawn().unwrap();
    let found = || enter(&["server", "--", "true"]).status.success();
    wait_for("a shell is found", found);
    let output =
        enter(&["server", "--", "sh", "-c", "echo $MIDSPAN_SHELL; cat /proc/net/dev; exit 5"]);
    assert_eq!(output.status.code(), Some(5));
    let said = stdout(&output);
    assert!(said.starts_with("server rtt 8 ms\n") && said.contains("wide:"), "{said}");
    assert!(stdout(&enter(&["ue", "--", "cat", "/proc/net/dev"])).contains("access:"));
    let mec = stdout(&enter(&["mec", "--", "cat", "/proc/net/dev"]));
    assert!(mec.contains("access:") && mec.contains("wide:"), "{mec}");

    let mut other = start().spawn().unwrap();
    let both = || stderr(&enter(&["ue", "--", "true"])).contains("several shells run");
    wait_for("a second shell is found", both);
    let said = stderr(&enter(&["ue", "--", "true"]));
    assert!(said.contains(&format!("{} (rtt 8 ms)", other.id())), "{said}");
    let number = other.id().to_string();
    assert!(enter(&["ue", "--shell", &number, "--", "true"]).status.success());
    let said = stderr(&enter(&["ue", "--shell", "1", "--", "true"]));
    assert!(said.contains("no such shell"), "{said}");

    let namespaces = [namespace(&one), namespace(&other)];
    assert!(processes(|_, command| command.contains(&mark)) >= 8);
    for child in [&mut one, &mut other] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    wait_for("all processes are gone", || {
        processes(|process, command| {
            let net = fs::read_link(format!("/proc/{process}/ns/net")).unwrap_or_default();
            command.contains(&mark) || namespaces.contains(&net.display().to_string())
        }) == 0
    });
    assert_eq!(enter(&["ue"]).status.code(), Some(2));
    assert_eq!(fs::read_dir(runtime.path().join("midspan")).unwrap().count(), 0);
}

/// The network namespace of one of the processes that a shell has started.
fn namespace(shell: &Child) -> String {
    let parent = |process: &str| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let mut all = fs::read_dir("/proc").unwrap().flatten();
    let found = all.find_map(|entry| {
        let process = entry.file_name().into_string().ok()?;
        let net = fs::read_link(format!("/proc/{process}/ns/net")).ok()?;
        (parent(&process) == Some(shell.id()) && net != own).then(|| net.display().to_string())
    });
    found.expect("programs of a shell are in namespaces")
}

/// How many processes are so, by their number and command line.
fn processes(is_so: impl Fn(&str, &str) -> bool) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| {
        let process = entry.file_name().into_string().unwrap();
        let command = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        !command.is_empty() && is_so(&process, &command)
    })
    .count()
}

#[test]
fn a_program_that_ends_takes_what_it_left_along() {
    if !common::can_run() {
        return;
    }
    let _machine = alone();
    let mark = format!("{}", 200_000 + std::process::id());
    let program = format!("setsid sleep {mark} > /dev/null 2>&1 & sleep 0.1");
    assert!(run(&["-q", "--rtt", "4ms", "--", "sh", "-c", &program]).status.success());
    assert_eq!(processes(|_, command| command.contains(&mark)), 0);
}

#[test]
fn on_a_terminal_the_interrupt_is_the_programs() {
    if !common::can_run() || !common::has("script") {
        return;
    }
    let _machine = alone();
    // The program says that it waits, is interrupted by the terminal, and says that it was.
    let program = "trap 'echo interrupted; exit 6' INT; echo waiting; while :; do sleep 0.05; done";
    // In the place of the shell that `script` starts: what that one makes of an interrupt is its own affair.
    let line =
        format!("exec {} lab shell --rtt 4ms -- sh -c \"{program}\"", common::program().display());
    let mut child = Command::new("env")
        // Who runs the tests in the background ignores it.
        .args(["--default-signal=INT,QUIT", "script", "-qec", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::{Read, Write};
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut seen = String::new();
    let mut read_until = |words: &str| {
        let mut chunk = [0; 1024];
        while !seen.contains(words) {
            let read = screen.read(&mut chunk).unwrap();
            assert!(read > 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&chunk[..read]));
        }
    };
    read_until("\nwaiting");
    keys.write_all(b"\x03").unwrap();
    read_until("interrupted");
    read_until("links were");
    drop(keys);
    assert_eq!(child.wait().unwrap().code(), Some(6));
}
