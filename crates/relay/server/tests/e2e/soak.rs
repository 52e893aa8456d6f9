//! A relay at mixed load for a long time: nothing grows, nothing fails, and all counters add up.
//!
//! One minute; with MIDSPAN_TEST_ALL twenty, and with MIDSPAN_TEST_SOAK so many seconds.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::load::{End, Load, Outcome, Side};
use crate::process::{Counts, RelayProcess};
use crate::steer::{exchange, start};
use crate::world::{PATIENCE, SERVER, World};

const PAUSE: Duration = Duration::from_millis(10);
/// The load stops so often, so that what is left when nothing is open can be looked at.
const PARTS: u32 = 5;
/// Of a thousand connections so many pass, for the accounts of both kinds.
const SETTINGS: &str = "[policy]\nholdout = 100\nholdout_slot = \"0 s\"\n";

#[test]
fn nothing_grows_and_everything_adds_up() {
    let length = match (std::env::var("MIDSPAN_TEST_SOAK"), std::env::var_os("MIDSPAN_TEST_ALL")) {
        (Ok(seconds), _) => Duration::from_secs(seconds.parse().unwrap()),
        (_, Some(all)) if !all.is_empty() => Duration::from_secs(20 * 60),
        _ => Duration::from_secs(60),
    };
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("flows");
    let Some(mut relay) = start(&world, &format!("{SETTINGS}[flow_log]\npath = {log:?}\n")) else {
        return;
    };
    // Open all the time, and silent but for a word in each part.
    let mut long: Vec<_> = SERVER.into_iter().cycle().take(40).map(|at| world.pair(at)).collect();
    let long_split = relay.counts()["accepted"];
    let mut outcomes = Vec::new();
    let mut rests = Vec::new();
    for _ in 0..PARTS {
        let load = Load::start(&world, PAUSE);
        thread::sleep(length / PARTS);
        outcomes.extend(load.stop());
        let counts = relay.until(|counts| counts["active"] == long_split);
        rests.push(Rest::of(&relay, &world, &counts));
        for (near, far) in &mut long {
            exchange(near, far);
        }
    }
    drop(long);
    let counts = relay.until(|counts| counts["active"] == 0);
    let clients = outcomes.iter().filter(|outcome| outcome.by == Side::Client).count() as u64;
    eprintln!("{clients} connections, {} split; at rest {rests:#?}", counts["accepted"]);

    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.end != End::Whole).collect();
    assert!(failed.is_empty(), "{}: {:#?}", failed.len(), &failed[..failed.len().min(5)]);
    // The first part fills pools and caches.
    let (first, last) = (&rests[0], &rests[rests.len() - 1]);
    assert!(last.memory < first.memory + (4 << 20), "{rests:#?}");
    assert!(last.descriptors < first.descriptors + 16, "{rests:#?}");
    assert!(last.sockets < first.sockets + 16, "{rests:#?}");

    assert_eq!(counts["accepted"] + counts["pass_holdout"], clients + 40, "{counts:?}");
    assert_eq!(counts["closed"], counts["accepted"], "{counts:?}");
    let silent = ["inconsistent", "not_steered", "buffered", "record_lost", "unaccounted"];
    assert!(silent.iter().all(|fault| counts[*fault] == 0), "{counts:?}");
    accounts_add_up(&mut relay, &outcomes);
    flows_add_up(&log, &counts);
}

/// What the relay holds when nothing but the long flows is open.
#[derive(Debug)]
struct Rest {
    memory: u64,
    descriptors: usize,
    /// Of the box's namespace, whoever has them, TIME-WAIT left out.
    sockets: u64,
}

impl Rest {
    fn of(relay: &RelayProcess, world: &World, counts: &Counts) -> Rest {
        let read = || fs::read_to_string("/proc/thread-self/net/sockstat").unwrap();
        let text = world.relay.run(read).unwrap();
        let tcp = text.lines().find(|line| line.starts_with("TCP:")).unwrap();
        let sockets = tcp.split(' ').nth(2).unwrap().parse().unwrap();
        assert!(counts["buffered"] == 0, "{counts:?}");
        Rest { memory: relay.memory(), descriptors: relay.descriptors(), sockets }
    }
}

/// The accounts of all connections have ended, so that none is left in the map; and they, which
/// count packets, know of the same bytes as the ends.
fn accounts_add_up(relay: &mut RelayProcess, outcomes: &[Outcome]) {
    let both = |counts: &Counts, of: &str| {
        counts[&format!("split_{of}")] + counts[&format!("holdout_{of}")]
    };
    let opened = |counts: &Counts| counts["accepted"] + counts["pass_holdout"];
    let counts = relay.until(|counts| both(counts, "connections") >= opened(counts));
    let sizes = || outcomes.iter().filter(|outcome| outcome.by == Side::Client);
    // A number before what the client says, and a word each way, in each part, of the long ones.
    let words = 40 * 4 * u64::from(PARTS);
    let up: u64 = sizes().map(|outcome| 4 + outcome.size.bytes().0 as u64).sum();
    let down: u64 = sizes().map(|outcome| outcome.size.bytes().1 as u64).sum();
    assert_eq!(both(&counts, "bytes_up"), up + words, "{counts:?}");
    assert_eq!(both(&counts, "bytes_down"), down + words, "{counts:?}");
}

/// Every flow has a line in the log; what came from one side has gone to the other.
fn flows_add_up(log: &Path, counts: &Counts) {
    let start = Instant::now();
    let (mut flows, mut sums) = (0, [0; 2]);
    while flows < counts["accepted"] {
        assert!(
            start.elapsed() < PATIENCE,
            "{flows} of {} flows are in the log",
            counts["accepted"]
        );
        (flows, sums) = (0, [0; 2]);
        for line in BufReader::new(fs::File::open(log).unwrap()).lines() {
            let Ok(flow) = serde_json::from_str::<Value>(&line.unwrap()) else { continue };
            if flow["kind"] != "split" {
                continue;
            }
            flows += 1;
            assert_eq!(flow["ended"], "closed", "{flow:#}");
            assert_eq!(flow["bytes_from_client"], flow["bytes_to_server"], "{flow:#}");
            assert_eq!(flow["bytes_from_server"], flow["bytes_to_client"], "{flow:#}");
            sums[0] += flow["bytes_from_client"].as_u64().unwrap();
            sums[1] += flow["bytes_from_server"].as_u64().unwrap();
        }
    }
    assert_eq!(flows, counts["accepted"]);
    assert_eq!(sums, [counts["bytes_from_client"], counts["bytes_from_server"]]);
}
