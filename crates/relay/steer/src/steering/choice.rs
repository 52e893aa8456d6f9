//! Which worker a new connection goes to.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use midspan_sys::netns::Netns;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use super::frame::{SYN, frame};
use super::packets::skip;
use super::*;

const WORKERS_HERE: usize = 3;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 8, 8, 8);

struct Bench {
    steering: Steering,
    slots: Vec<WorkerSlot>,
    /// Of each worker.
    flows: [u32; WORKERS_HERE],
    syn_records: MapHandle,
    _listeners: Vec<TcpListener>,
    next_port: u16,
}

impl Bench {
    /// In the calling thread's namespace, with live workers.
    fn new() -> Result<Bench, Error> {
        let steering = Steering::load(Options { workers: WORKERS_HERE, mark: 1, pin: false })?;
        steering.set_probe(CLIENT.into(), true)?;
        let listen = |_| TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners: Vec<_> = (0..WORKERS_HERE).map(listen).collect();
        let slots = listeners.iter().enumerate();
        let slots = slots.map(|(worker, one)| steering.slot(worker, [Some(one.as_fd()), None]));
        let syn_records = map(&steering.object, "syn_records")?;
        let slots = slots.collect::<Result<_, _>>()?;
        let (flows, next_port) = ([0; WORKERS_HERE], 1024);
        Ok(Bench { syn_records, slots, flows, steering, _listeners: listeners, next_port })
    }

    /// The worker that a SYN goes to which comes in on this processor.
    fn worker_of_next(&mut self) -> usize {
        for (slot, flows) in self.slots.iter().zip(self.flows) {
            slot.beat(true, 1000, flows).unwrap();
        }
        self.next_port += 1;
        let (client, server) = ((CLIENT, self.next_port).into(), (SERVER, 80).into());
        let frame = frame(client, server, SYN, [1, 0], &[]);
        let program = self.steering.program("steer").unwrap();
        let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
        program.test_run(input).unwrap();
        let key = intf::connection::new(client, server);
        let record = self.syn_records.lookup(key.as_bytes(), MapFlags::ANY).unwrap().unwrap();
        let record = intf::syn_record::read_from_bytes(&record).unwrap();
        (record.listener / LISTENERS_PER_SLOT) as usize
    }

    fn workers_of_next(&mut self, count: usize) -> BTreeSet<usize> {
        (0..count).map(|_| self.worker_of_next()).collect()
    }
}

#[test]
fn a_connection_goes_to_the_worker_that_stays_where_it_comes_in_or_else_to_any() {
    let netns = match Netns::create() {
        Ok(netns) => netns,
        Err(error) => return skip(&error.to_string()),
    };
    netns
        .run(|| {
            let mut bench = match Bench::new() {
                Ok(bench) => bench,
                Err(Error::Load(error)) if error.kind() == ErrorKind::PermissionDenied => {
                    return skip(&error.to_string());
                }
                Err(error) => panic!("{error}"),
            };
            // The thread is this test's own.
            let here = sched_getcpu();
            let mut one = CpuSet::new();
            one.set(here);
            sched_setaffinity(None, &one).unwrap();

            let all = BTreeSet::from_iter(0..WORKERS_HERE);
            assert_eq!(bench.workers_of_next(100), all);
            for worker in 0..WORKERS_HERE {
                bench.slots[worker].take_nearby(here, true).unwrap();
                assert_eq!(bench.workers_of_next(20), BTreeSet::from([worker]));
                bench.slots[worker].take_nearby(here + 1, true).unwrap();
                bench.slots[worker].take_nearby(here, false).unwrap();
                assert_eq!(bench.workers_of_next(100), all);
                bench.slots[worker].take_nearby(here + 1, false).unwrap();
            }
            // The one that has most gets none, unless it stays where the connection comes in.
            for busy in 0..WORKERS_HERE {
                bench.flows = [3; WORKERS_HERE];
                bench.flows[busy] = 4;
                let mut others = all.clone();
                others.remove(&busy);
                assert_eq!(bench.workers_of_next(100), others);
            }
            bench.slots[2].take_nearby(here, true).unwrap();
            assert_eq!(bench.workers_of_next(20), BTreeSet::from([2]));
            bench.slots[2].take_nearby(here, false).unwrap();
            bench.flows = [0; WORKERS_HERE];
            // Further than the map goes, which no one minds.
            bench.slots[0].take_nearby(1 << 20, true).unwrap();
            assert_eq!(bench.workers_of_next(100), all);
        })
        .unwrap();
}
