//! Workers share what comes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midspan_observe::admin::{Answer, Flow, Order, Request};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::admin::{Admin, start};
use crate::process::{Counts, RelayProcess};
use crate::world::{BOX, SERVER, World, ip, skip};

const PORT: u16 = 8080;
const BURST: usize = 120;
/// How long a flow may take to be where it belongs.
const PATIENCE: Duration = Duration::from_secs(20);

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

/// Sends what can be told from what was sent before, and reads it at the other end.
fn cross(from: &mut TcpStream, to: &mut TcpStream, number: u64) {
    from.write_all(&number.to_be_bytes()).unwrap();
    let mut read = [0; 8];
    to.read_exact(&mut read).unwrap();
    assert_eq!(u64::from_be_bytes(read), number);
}

#[test]
fn a_flow_goes_to_the_worker_on_whose_processor_its_packets_arrive() {
    let Some(world) = World::new() else { return };
    let Some(processors) = processors() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = world.listen(SERVER[0]);
    let (mut relay, mut admin) = forwarding(&world, folder.path(), address);
    let mut near = world.connect(at_box()).unwrap();
    let mut far = listener.accept().unwrap().0;
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    let mut number = 0;
    for worker in [1, 0, 1] {
        stay_on(&processors[worker..=worker]);
        let deadline = Instant::now() + PATIENCE;
        while flows(&mut admin)[0].worker != worker {
            assert!(Instant::now() < deadline, "it is not at worker {worker}");
            for _ in 0..100 {
                number += 1;
                cross(&mut near, &mut far, number);
                cross(&mut far, &mut near, number);
            }
        }
    }
    stay_on(&processors);
    drop((near, far));
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!((counts["accepted"], counts["closed"]), (1, 1));
    assert!(counts["moved"] >= 2, "{counts:?}");
}

/// Ends that keep changing processors, while the relay goes on, and until it is told to stop.
#[test]
fn flows_that_go_to_and_fro_lose_nothing() {
    const FLOWS: usize = 16;
    const CHANGES: u64 = 40;
    let Some(world) = World::new() else { return };
    let Some(processors) = processors() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = world.listen(SERVER[0]);
    let (mut relay, _admin) = forwarding(&world, folder.path(), address);
    let (stop, crossed) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for flow in 0..FLOWS {
            let mut near = world.connect(at_box()).unwrap();
            let mut far = listener.accept().unwrap().0;
            let (processors, stop, crossed) = (&processors, &stop, &crossed);
            scope.spawn(move || {
                for stream in [&near, &far] {
                    stream.set_nodelay(true).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                }
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    let on = (flow + number as usize / 1500) % processors.len();
                    if number % 1500 == 0 {
                        stay_on(&processors[on..=on]);
                    }
                    number += 1;
                    // One way, the other way, and both at once.
                    cross(&mut near, &mut far, number);
                    cross(&mut far, &mut near, number);
                    near.write_all(&number.to_be_bytes()).unwrap();
                    cross(&mut far, &mut near, number);
                    let mut read = [0; 8];
                    far.read_exact(&mut read).unwrap();
                    assert_eq!(u64::from_be_bytes(read), number);
                    crossed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let enough = |counts: &Counts| counts["moved"] >= CHANGES;
        relay.until(enough);
        stop.store(true, Ordering::Relaxed);
    });
    let counts = relay.until(|counts| counts["active"] == 0);
    let bytes = crossed.load(Ordering::Relaxed) * 16;
    assert_eq!((counts["accepted"], counts["closed"]), (FLOWS as u64, FLOWS as u64));
    for leg in ["bytes_from_client", "bytes_to_server", "bytes_from_server", "bytes_to_client"] {
        assert_eq!(counts[leg], bytes, "{leg}");
    }
}
