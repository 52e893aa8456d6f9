//! A relay that is killed, or that hangs, under load: what is lost, and what is not.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use midspan_sys::sysctl;
use rustix::process::Signal;

use crate::load::{End, Load, Outcome, Side, Size};
use crate::process::{NFTABLES, RelayProcess};
use crate::replace::Pins;
use crate::steer;
use crate::world::{PATIENCE, World};

/// A relay counts as dead half a second after it has said last that it is alive.
const NOTICED: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(8);
const WHILE: Duration = Duration::from_millis(1500);

#[test]
fn a_relay_killed_under_load_leaves_new_connections_working() {
    for steering in [PINNED, NFTABLES] {
        let Some(world) = World::new() else { return };
        let Some(_pins) = Pins::of(&world.relay) else { return };
        let Some(relay) = start(&world, steering) else { return };
        let load = Load::start(&world, PAUSE);
        thread::sleep(WHILE);
        relay.signal(Signal::KILL);
        relay.wait();
        let killed = Instant::now();
        thread::sleep(NOTICED + WHILE);
        let again = Instant::now();
        let mut relay = start(&world, steering).expect("steering, as before");
        let restarted = Instant::now();
        thread::sleep(WHILE);
        let split = relay.counts()["accepted"];
        let outcomes = load.stop();

        let report = Report(&outcomes);
        report.no_end_was_wrong();
        // The kernel resets what the relay had.
        assert!(report.count(|outcome| outcome.end == End::Reset) > 0, "nothing was cut: {report}");
        let cut = report.count(|outcome| outcome.end == End::Reset && outcome.opened > killed);
        let late = |outcome: &Outcome| outcome.opened > killed + NOTICED;
        report.all_are_whole("opened after half a second", late);
        assert!(report.count(|outcome| late(outcome) && outcome.opened < again) > 10, "{report}");
        // Those that were unsplit when the new relay came go on.
        assert!(
            report.count(|outcome| late(outcome) && outcome.opened > restarted) > 50,
            "{report}"
        );
        assert!(split > 10, "the new relay has split {split}");
        let counts = relay.until(|counts| counts["active"] == 0);
        add_up(&counts);
        assert_eq!(counts["closed"], counts["accepted"], "{counts:?}");
        eprintln!("{cut} reset in the first half second; {split} split again; {report}");
    }
}

/// Nothing is known of nftables: the rules stay, and so does the hang.
#[test]
fn a_relay_stopped_under_load_lets_new_connections_pass() {
    let Some(world) = World::new() else { return };
    let Some(_pins) = Pins::of(&world.relay) else { return };
    let Some(mut relay) = start(&world, PINNED) else { return };
    let load = Load::start(&world, PAUSE);
    thread::sleep(WHILE);
    let before = relay.counts();
    relay.signal(Signal::STOP);
    await_state(&relay, 'T');
    let stopped = Instant::now();
    thread::sleep(NOTICED + 2 * WHILE);
    let resumed = Instant::now();
    relay.signal(Signal::CONT);
    thread::sleep(WHILE);
    let after = relay.counts();
    let outcomes = load.stop();

    let report = Report(&outcomes);
    // Nobody is gone: those that were open, and those opened before it was noticed, have waited.
    report.all_are_whole("of all", |_| true);
    let late = |outcome: &Outcome| {
        outcome.opened > stopped + NOTICED && outcome.opened < resumed - Duration::from_secs(1)
    };
    let waited = |outcome: &Outcome| outcome.opened < stopped + NOTICED && outcome.ended > resumed;
    assert!(report.count(waited) > 0, "nobody waited: {report}");
    let at_once = |outcome: &Outcome| late(outcome) && outcome.ended < resumed;
    let small = |outcome: &Outcome| outcome.size == Size::Small;
    assert!(report.count(|outcome| at_once(outcome) && small(outcome)) > 10, "{report}");
    let hung = report.count(|outcome| late(outcome) && small(outcome) && !at_once(outcome));
    assert_eq!(hung, 0, "{report}");
    assert!(after["pass_no_relay"] > before["pass_no_relay"], "{after:?}");
    assert!(after["accepted"] > before["accepted"] + 10, "not split again: {after:?}");
    let counts = relay.until(|counts| counts["active"] == 0);
    add_up(&counts);
}

#[test]
fn a_relay_that_hangs_and_is_then_killed_resets_what_it_had() {
    let Some(world) = World::new() else { return };
    let Some(_pins) = Pins::of(&world.relay) else { return };
    let Some(relay) = start(&world, PINNED) else { return };
    let load = Load::start(&world, PAUSE);
    thread::sleep(WHILE);
    relay.signal(Signal::STOP);
    await_state(&relay, 'T');
    let stopped = Instant::now();
    thread::sleep(NOTICED + WHILE);
    relay.signal(Signal::KILL);
    relay.wait();
    thread::sleep(WHILE);
    let outcomes = load.stop();
    let report = Report(&outcomes);
    report.no_end_was_wrong();
    assert!(report.count(|outcome| outcome.end == End::Reset) > 0, "nothing was cut: {report}");
    report.all_are_whole("passed", |outcome| outcome.opened > stopped + NOTICED);
}

/// As relays are started by default.
const PINNED: &str = "pin = true\n";

/// Steered by BPF unless the settings say otherwise.
fn start(world: &World, settings: &str) -> Option<RelayProcess> {
    match settings {
        NFTABLES => {
            // A client that was reset may use a port again that the relay has in TIME-WAIT.
            world.relay.run(|| sysctl::set("net.ipv4.tcp_early_demux", "0")).unwrap().unwrap();
            Some(RelayProcess::start(&world.relay, settings))
        }
        _ => steer::start(world, settings),
    }
}

fn await_state(relay: &RelayProcess, state: char) {
    let start = Instant::now();
    let all_are = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", relay.pid())).unwrap();
        let mut stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")));
        stats.all(|stat| stat.unwrap().rsplit(") ").next().unwrap().starts_with(state))
    };
    while !all_are() {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
}

/// What went in has come out, if every flow has ended in order.
fn add_up(counts: &crate::process::Counts) {
    for (from, to) in [("client", "server"), ("server", "client")] {
        let (taken, given) =
            (counts[&format!("bytes_from_{from}")], counts[&format!("bytes_to_{to}")]);
        assert_eq!(taken, given, "{counts:?}");
    }
    assert_eq!(counts["inconsistent"], 0);
}

struct Report<'a>(&'a [Outcome]);

impl Report<'_> {
    fn count(&self, of: impl Fn(&Outcome) -> bool) -> usize {
        self.0.iter().filter(|outcome| outcome.by == Side::Client && of(outcome)).count()
    }

    /// Whole or reset, at both ends.
    fn no_end_was_wrong(&self) {
        self.check("of all", |_| true, |end| matches!(end, End::Whole | End::Reset));
    }

    fn all_are_whole(&self, which: &str, chosen: impl Fn(&Outcome) -> bool) {
        self.check(which, chosen, |end| *end == End::Whole);
    }

    fn check(&self, which: &str, chosen: impl Fn(&Outcome) -> bool, good: impl Fn(&End) -> bool) {
        let bad: Vec<_> =
            self.0.iter().filter(|outcome| chosen(outcome) && !good(&outcome.end)).collect();
        let first = &bad[..bad.len().min(10)];
        assert!(bad.is_empty(), "{} {which} are not good: {first:#?}; {self}", bad.len());
    }
}

impl std::fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whole = self.count(|outcome| outcome.end == End::Whole);
        let reset = self.count(|outcome| outcome.end == End::Reset);
        write!(f, "{whole} of {} connections were whole, {reset} reset", self.count(|_| true))
    }
}
