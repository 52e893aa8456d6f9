//! Lines of one connection in the flow log meet by its `id`, whoever has written them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::observe::{lines, of_kind};
use crate::steer::start;
use crate::world::{CLIENT, PATIENCE, SERVER, World, abort, ip};

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
