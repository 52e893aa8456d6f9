//! Workers share what comes.

use std::io::{Read, Write};
use std::net::SocketAddr;

use midspan_observe::admin::{Answer, Order, Request};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::admin::start;
use crate::world::{BOX, SERVER, World, ip, skip};

const PORT: u16 = 8080;
const BURST: usize = 120;

/// All arrive on one processor before any worker sees one of them, so that they wait at one worker's listener.
#[test]
fn a_burst_of_connections_is_shared() {
    let Some(world) = World::new() else { return };
    let allowed = sched_getaffinity(None).unwrap();
    if allowed.count() < 2 {
        return skip("there is one processor, and so one worker");
    }
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = world.listen(SERVER[0]);
    let forward = format!("[[forward]]\nlisten = \"0.0.0.0:{PORT}\"\nto = \"{address}\"\n");
    let (mut relay, mut admin) =
        start(&world, folder.path(), &format!("interception = \"none\"\n{forward}"));
    relay.signal(Signal::STOP);
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap());
    sched_setaffinity(None, &one).unwrap();
    let to = SocketAddr::new(ip(BOX[0]), PORT);
    let near: Vec<_> = (0..BURST).map(|_| world.connect(to).unwrap()).collect();
    sched_setaffinity(None, &allowed).unwrap();
    relay.signal(Signal::CONT);
    let far: Vec<_> = (0..BURST).map(|_| listener.accept().unwrap().0).collect();

    let request = Request::Flows { order: Order::default(), most: BURST };
    let Answer::Flows(flows) = admin.ask(&request) else { panic!() };
    assert_eq!(flows.flows.len(), BURST);
    let workers = allowed.count() as usize;
    for worker in 0..workers {
        let own = flows.flows.iter().filter(|flow| flow.worker == worker).count();
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
