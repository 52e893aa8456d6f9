//! Workers share what comes.

use std::io::{Read, Write};
use std::net::SocketAddr;

use midspan_observe::admin::{Answer, Flow, Order, Request};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::admin::{Admin, start};
use crate::process::RelayProcess;
use crate::world::{BOX, SERVER, World, ip, skip};

const PORT: u16 = 8080;
const BURST: usize = 120;

/// Processors that threads may be kept on, at least two, or none.
fn processors() -> Option<Vec<usize>> {
    let allowed = sched_getaffinity(None).unwrap();
    if allowed.count() < 2 {
        skip("there is one processor, and so one worker");
        return None;
    }
    Some((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect())
}

/// Keeps the calling thread on these.
fn stay_on(processors: &[usize]) {
    let mut set = CpuSet::new();
    processors.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).unwrap();
}

/// A relay that passes connections on to the server.
fn forwarding(world: &World, folder: &std::path::Path, to: SocketAddr) -> (RelayProcess, Admin) {
    let forward = format!("[[forward]]\nlisten = \"0.0.0.0:{PORT}\"\nto = \"{to}\"\n");
    start(world, folder, &format!("interception = \"none\"\n{forward}"))
}

fn at_box() -> SocketAddr {
    SocketAddr::new(ip(BOX[0]), PORT)
}

fn flows(admin: &mut Admin) -> Vec<Flow> {
    let request = Request::Flows { order: Order::default(), most: BURST };
    let Answer::Flows(flows) = admin.ask(&request) else { panic!() };
    flows.flows
}

/// All arrive on one processor before any worker sees one of them, so that they wait at one worker's listener.
#[test]
fn a_burst_of_connections_is_shared() {
    let Some(world) = World::new() else { return };
    let Some(processors) = processors() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = world.listen(SERVER[0]);
    let (mut relay, mut admin) = forwarding(&world, folder.path(), address);
    relay.signal(Signal::STOP);
    stay_on(&processors[..1]);
    let near: Vec<_> = (0..BURST).map(|_| world.connect(at_box()).unwrap()).collect();
    stay_on(&processors);
    relay.signal(Signal::CONT);
    let far: Vec<_> = (0..BURST).map(|_| listener.accept().unwrap().0).collect();

    let flows = flows(&mut admin);
    assert_eq!(flows.len(), BURST);
    let workers = processors.len();
    for worker in 0..workers {
        let own = flows.iter().filter(|flow| flow.worker == worker).count();
        assert!(own * workers * 2 > BURST, "{own} of {BURST} at {worker} of {workers}");
    }

    for mut client in &near {
        client.write_all(b"ping").unwrap();
    }
    for mut server in &far {
        let mut word = [0; 4];
        server.read_exact(&mut word).unwrap();
        server.write_all(&word).unwrap();
    }
    for mut client in &near {
        let mut word = [0; 4];
        client.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"ping");
    }
    drop((near, far));
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!(counts["accepted"], BURST as u64);
    eprintln!("{} handed over", counts["handed_over"]);
}

/// All come in on the processor of one worker, which has the next ones go to another when it has more than its share.
#[test]
fn connections_that_are_steered_are_shared() {
    let Some(world) = World::new() else { return };
    let Some(processors) = processors() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut relay, mut admin) = start(&world, folder.path(), "");
    stay_on(&processors[..1]);
    let pairs: Vec<_> = (0..BURST).map(|_| world.pair(SERVER[0])).collect();
    stay_on(&processors);

    let flows = flows(&mut admin);
    assert_eq!(flows.len(), BURST);
    let workers = processors.len();
    for worker in 0..workers {
        let own = flows.iter().filter(|flow| flow.worker == worker).count();
        assert!(own * workers * 2 > BURST, "{own} of {BURST} at {worker} of {workers}");
    }
    drop(pairs);
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!(counts["handed_over"], 0);
}
