//! Lines of one connection in the flow log meet by its `id`, whoever has written them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::observe::{lines, of_kind};
use crate::process::{EARLY, RelayProcess};
use crate::steer::start;
use crate::world::{CLIENT, PATIENCE, SERVER, World, abort, assert_reset, ip};

/// Connections one after the other from the same port, to the same port.
const TURNS: usize = 30;

/// Each carries other bytes than all others, and leaves its port to the next one at once.
fn reuse_a_port(world: &World) {
    for (family, server) in SERVER.into_iter().enumerate() {
        let (listener, address) = world.listen(server);
        for turn in 0..TURNS {
            let from = SocketAddr::new(ip(CLIENT[family]), 23_456);
            let mut near = world.connect_from(from, address).unwrap();
            let mut far = listener.accept().unwrap().0;
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            let bytes = 1 + family * TURNS + turn;
            near.write_all(&vec![7; bytes]).unwrap();
            far.read_exact(&mut vec![0; bytes]).unwrap();
            abort(near);
            assert!(far.read(&mut [0]).is_err());
        }
    }
}

/// The lines of a kind, as soon as there are so many.
fn await_kind(path: &Path, kind: &str, count: usize) -> Vec<Value> {
    let waited = Instant::now();
    loop {
        let found = of_kind(lines(path), kind);
        if found.len() >= count {
            return found;
        }
        assert!(waited.elapsed() < PATIENCE, "{} of {count}: {kind}", found.len());
        thread::sleep(Duration::from_millis(20));
    }
}

/// By `id`, of which each line has its own.
fn by_id(lines: Vec<Value>) -> HashMap<String, Value> {
    let count = lines.len();
    let id = |line: &Value| line["id"].as_str().unwrap().to_owned();
    let by_id: HashMap<_, _> = lines.into_iter().map(|line| (id(&line), line)).collect();
    assert_eq!(by_id.len(), count, "two connections have one id");
    by_id
}

#[test]
fn what_the_relay_and_the_steering_program_say_of_a_connection_meets() {
    for settings in ["handshake = \"early\"\n", "handshake = \"confirmed\"\n"] {
        let Some(world) = World::new() else { return };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flows.jsonl");
        let settings = format!("{settings}[flow_log]\npath = {path:?}\n");
        let Some(mut relay) = start(&world, &settings) else { return };
        reuse_a_port(&world);
        relay.until(|counts| counts["active"] == 0);
        let flows = by_id(await_kind(&path, "split", 2 * TURNS));
        let passed = by_id(await_kind(&path, "path", 2 * TURNS));
        assert_eq!((flows.len(), passed.len()), (2 * TURNS, 2 * TURNS));
        let mut carried: Vec<u64> = Vec::new();
        for (id, flow) in &flows {
            let passed = passed.get(id).unwrap_or_else(|| panic!("nothing meets {flow:#}"));
            assert_eq!(passed["verdict"], "split");
            assert_eq!((&passed["client"], &passed["server"]), (&flow["client"], &flow["server"]));
            assert_eq!(passed["up"]["bytes"], flow["bytes_from_client"], "{flow:#} {passed:#}");
            carried.extend(flow["bytes_from_client"].as_u64());
        }
        carried.sort_unstable();
        assert_eq!(carried, (1..=2 * TURNS as u64).collect::<Vec<_>>());
    }
}

#[test]
fn who_asks_for_starts_has_a_line_before_anything_has_ended() {
    let Some(world) = World::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows.jsonl");
    let settings = format!("{EARLY}[flow_log]\npath = {path:?}\nstarts = true\n");
    let mut relay = RelayProcess::start(&world.relay, &settings);
    let (mut near, far) = world.pair(SERVER[0]);
    near.write_all(b"x").unwrap();
    let begun = await_kind(&path, "start", 1);
    assert_eq!((begun.len(), of_kind(lines(&path), "split").len()), (1, 0));
    assert_eq!(begun[0]["server"], far.local_addr().unwrap().to_string());
    drop((near, far));
    // Nobody listens.
    let nobody = SocketAddr::new(ip(SERVER[1]), 9);
    assert_reset(world.connect(nobody));
    relay.until(|counts| counts["accepted"] == 2 && counts["active"] == 0);
    let ended = await_kind(&path, "split", 2);
    let refused = ended.iter().find(|line| line["ended"] == "connect_failed").unwrap();
    assert_eq!(refused["server"], nobody.to_string());
    let (begun, ended) = (by_id(of_kind(lines(&path), "start")), by_id(ended));
    assert_eq!((begun.len(), ended.len()), (2, 2));
    for (id, start) in &begun {
        let end = &ended[id];
        for key in ["client", "server", "worker"] {
            assert_eq!(start[key], end[key], "{start:#} {end:#}");
        }
    }
    let order: Vec<_> = lines(&path).into_iter().filter(|line| line["kind"] != "path").collect();
    let first = |id: &str| order.iter().position(|line| line["id"] == id).unwrap();
    assert!(begun.keys().all(|id| order[first(id)]["kind"] == "start"), "{order:#?}");
}
