//! A connection's packets on two processors at the same time, and the account that they begin.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Barrier;
use std::time::Duration;

use libbpf_rs::ProgramInput;
use midspan_sys::netns::Netns;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::frame::{ACK, FIN, SYN, frame};
use super::packets::skip;
use super::*;
use crate::{Choice, Ending, FlowRecord};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 8, 8, 8);
const CONNECTIONS: u16 = 20_000;
const MOMENTS: u16 = 1024;

/// Both directions of a connection, as frames.
struct Ends {
    client: SocketAddr,
    server: SocketAddr,
}

impl Ends {
    fn by_client(&self, flags: u8, sequence: u32, acknowledgement: u32, payload: &[u8]) -> Vec<u8> {
        frame(self.client, self.server, flags, [sequence, acknowledgement], payload)
    }

    fn by_server(&self, flags: u8, sequence: u32, acknowledgement: u32) -> Vec<u8> {
        frame(self.server, self.client, flags, [sequence, acknowledgement], &[])
    }
}

/// The program, for any thread.
struct Shared<'a>(&'a Steering);

#[allow(unsafe_code)]
// SAFETY: `look` only has the kernel run a program that stays loaded, by its descriptor.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    fn look(&self, frame: &[u8]) {
        let program = self.0.program("steer").unwrap();
        program.test_run(ProgramInput { data_in: Some(frame), ..ProgramInput::default() }).unwrap();
    }
}

/// Two that this process may use.
fn two_processors() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).unwrap();
    let mut processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    Some([processors.next()?, processors.next()?])
}

fn stay_on(processor: usize) {
    let mut one = CpuSet::new();
    one.set(processor);
    sched_setaffinity(None, &one).unwrap();
}

/// They are not awake at the same moment: one of many delays has their packets meet.
fn later(moments: u16) {
    for _ in 0..moments {
        std::hint::spin_loop();
    }
}

/// What the kernel has told of connections that have ended.
fn run([one, other]: [usize; 2]) -> Result<Vec<FlowRecord>, Error> {
    let everybody = vec![("0.0.0.0/0".parse().unwrap(), Choice::Split)];
    // All pass, whatever a route says, and are accounted for.
    let ports = vec![(0..=u16::MAX, Choice::Pass)];
    let policy = Policy { clients: everybody, ports, ..Policy::default() };
    let mut steering = Steering::load(Options { workers: 1, mark: 1, pin: false })?;
    steering.take_over(&policy)?;
    let records = Rc::new(RefCell::new(Vec::new()));
    let sink = records.clone();
    let accounts = steering.accounts()?.open(move |record| sink.borrow_mut().push(record)).unwrap();

    let program = Shared(&steering);
    let all = || {
        (0..CONNECTIONS)
            .map(|port| Ends { client: (CLIENT, 1024 + port).into(), server: (SERVER, 80).into() })
    };
    let together = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(other);
            for ends in all() {
                let last = ends.by_client(FIN | ACK, 101, 501, b"data");
                together.wait();
                later(ends.client.port() % MOMENTS);
                program.look(&last);
                together.wait();
            }
        });
        stay_on(one);
        for ends in all() {
            program.look(&ends.by_client(SYN, 100, 0, b""));
            program.look(&ends.by_server(SYN | ACK, 500, 101));
            let first = ends.by_client(ACK, 101, 501, b"");
            together.wait();
            later(MOMENTS / 2);
            program.look(&first);
            together.wait();
            program.look(&ends.by_server(FIN | ACK, 501, 106));
            program.look(&ends.by_client(ACK, 106, 502, b""));
            accounts.poll(Duration::ZERO).unwrap();
        }
    });
    assert_eq!(accounts.open().unwrap(), 0, "accounts that have not ended");
    drop(accounts);
    Ok(Rc::into_inner(records).unwrap().into_inner())
}

/// Its end too may come while another processor begins the account.
#[test]
fn no_packet_goes_by_an_account_that_another_processor_begins() {
    let netns = match Netns::create() {
        Ok(netns) => netns,
        Err(error) => return skip(&error.to_string()),
    };
    let Some(processors) = two_processors() else { return skip("one processor") };
    let records = match netns.run(|| run(processors)).unwrap() {
        Err(Error::Load(error)) if error.kind() == ErrorKind::PermissionDenied => {
            return skip(&error.to_string());
        }
        records => records.unwrap(),
    };
    assert_eq!(records.len(), usize::from(CONNECTIONS));
    for record in records {
        assert_eq!((record.ending, record.up.bytes, record.down.bytes), (Ending::Finished, 4, 0));
    }
}
