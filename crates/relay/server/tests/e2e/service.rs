//! The relay as a service: the privileges that it keeps, and what it tells systemd.

use std::fs;
use std::time::{Duration, Instant};

use midspan_observe::admin::{Answer, Request};

use crate::admin::start;
use crate::process::RelayProcess;
use crate::replace::late_interface;
use crate::world::{CLIENT, PATIENCE, SERVER, World, ip};

const NET_BIND_SERVICE: u64 = 1 << 10;
const NET_ADMIN: u64 = 1 << 12;
const BPF: u64 = 1 << 39;

/// Effective, permitted, inheritable and ambient capabilities, and whether more can be got, of each thread.
fn threads(pid: u32) -> Vec<(String, [u64; 4], bool)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        let set = |name| u64::from_str_radix(&field(name), 16).unwrap();
        let sets = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"].map(set);
        (field("Name:"), sets, field("NoNewPrivs:") == "1")
    };
    tasks.map(|task| of(task.unwrap())).collect()
}

#[test]
fn a_relay_keeps_the_privileges_that_it_needs_and_needs_no_others() {
    let Some(world) = World::new() else { return };
    if crate::steer::start(&world, "").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("flows");
    let observed = format!("[flow_log]\npath = {log:?}\n[metrics]\nlisten = \"10.1.0.1:9742\"\n");
    let (mut relay, mut admin) = start(&world, folder.path(), &observed);
    let kept = NET_BIND_SERVICE | NET_ADMIN | BPF;
    let all = threads(relay.pid());
    assert!(all.len() >= 5, "{all:?}");
    // The harness's own threads, which are there before the relay is, aside.
    let is_right = |(name, sets, no_more): &(String, [u64; 4], bool)| {
        let is_harness = !name.starts_with("relay") && name != "accounts";
        is_harness && sets[0] != kept || *sets == [kept, kept, 0, 0] && (*no_more || is_harness)
    };
    // One that has just begun may be about to give them up.
    let begin = Instant::now();
    while let Some(wrong) = threads(relay.pid()).into_iter().find(|thread| !is_right(thread)) {
        assert!(begin.elapsed() < PATIENCE, "{wrong:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let lowered = || threads(relay.pid()).iter().filter(|(_, sets, _)| sets[0] == kept).count();
    while lowered() < 5 {
        let all = threads(relay.pid());
        assert!(
            begin.elapsed() < PATIENCE,
            "workers, accounts, log, answers, and who supervises them: {all:?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    // A client's port that only the privileged may bind.
    let server = world.listen(SERVER[0]);
    let from = std::net::SocketAddr::new(ip(CLIENT[0]), 700);
    let near = world.connect_from(from, server.1).unwrap();
    assert_eq!(server.0.accept().unwrap().1, from);
    drop(near);
    assert_eq!(relay.until(|counts| counts["active"] == 0)["accepted"], 1);
    // An interface that comes later is steered too.
    late_interface(&world, || relay.counts()["accepted"] > 1);
    // A policy is changed, and a file opened.
    let socket = folder.path().join("relay.sock");
    relay.rewrite(&format!(
        "{observed}[policy]\npass_servers = [\"{}/32\"]\n[admin]\nsocket = {socket:?}\n",
        SERVER[0]
    ));
    fs::rename(&log, folder.path().join("flows.old")).unwrap();
    let answer = admin.ask(&Request::Reload);
    assert_eq!(answer, Answer::Done("changed policy.pass_servers".into()));
    relay.until(|_| log.exists());
    // And an end in order leaves nothing.
    relay.signal(rustix::process::Signal::TERM);
    let (status, _) = relay.wait();
    assert!(status.success());
    let rules = world.relay.apply(std::process::Command::new("ip").arg("rule")).output().unwrap();
    assert!(!String::from_utf8(rules.stdout).unwrap().contains("0x4d53"));
}

/// Nice value of each worker's thread.
fn nice_of_workers(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok());
    let of = |stat: String| {
        // From the state on, which is the third of them in proc_pid_stat(5).
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        name.strip_prefix("relay-")?.parse::<usize>().ok()?;
        Some(fields[19 - 3].parse().unwrap())
    };
    stats.filter_map(of).collect()
}

#[test]
fn workers_have_the_priority_that_they_are_given() {
    let Some(world) = World::new() else { return };
    for (settings, nice) in [("", 0), ("nice = -5\n", -5), ("nice = 7\n", 7)] {
        let settings = format!("interception = \"none\"\nworkers = 2\n{settings}");
        let relay = RelayProcess::start(&world.relay, &settings);
        until_workers_have(&relay, &[nice; 2]);
    }
}

fn until_workers_have(relay: &RelayProcess, nice: &[i32]) {
    let begin = Instant::now();
    while nice_of_workers(relay.pid()) != nice {
        assert!(begin.elapsed() < PATIENCE, "{:?}", nice_of_workers(relay.pid()));
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn systemd_is_told_of_readiness_reload_life_and_end() {
    let Some(world) = World::new() else { return };
    let relay = RelayProcess::start_watched(&world.relay, "interception = \"none\"\n");
    assert!(relay.told().starts_with("WATCHDOG=1"));
    relay.rewrite("interception = \"none\"\nconnect_timeout = \"3 s\"\n");
    relay.signal(rustix::process::Signal::HUP);
    let next = |wanted: &str| loop {
        let told = relay.told();
        if told.starts_with(wanted) {
            return told;
        }
        assert!(told.starts_with("WATCHDOG=1"), "{told}");
    };
    assert!(next("RELOADING=1").contains("MONOTONIC_USEC="));
    next("READY=1");
    relay.signal(rustix::process::Signal::TERM);
    next("STOPPING=1");
    assert!(relay.wait().0.success());
}
