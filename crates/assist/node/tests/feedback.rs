//! From a measurement to what the congestion controls read, and what happens when a part of that
//! is lost.

mod common;

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use common::{Network, bandwidth, count, is_fresh, report, start, ue, until, until_doing};
use midspan_assist::agent::{Agent, Memory, Sink};
use midspan_assist::config::{FlowsFrom, SHORTEST_TIMEOUT};
use midspan_assist_proto::Entry;
use midspan_units::{Rate, Span};

#[test]
fn a_measurement_reaches_the_senders() {
    let network = Network::new();
    let (daemon, cell) = network.daemon();
    let (agent, memory) = network.agent(&[daemon.address()], &[ue(2), ue(3)]);
    until_doing("feedback", || report(&cell, ue(2), 12_000_000), || is_fresh(&memory, ue(2)));
    let (entry, timeout) = memory.get(ue(2)).unwrap();
    assert_eq!(entry.bandwidth, Rate::from_bps(12_000_000));
    // 10 ms of network as configured, 1 ms of transmission each way, 2 ms to the edge.
    assert_eq!(entry.min_rtt, Span::from_millis(10 + 1 + 1 + 2));
    assert_eq!(timeout, SHORTEST_TIMEOUT);
    // Nobody has measured the other.
    assert_eq!(memory.get(ue(3)), None);
    until("a link's status", || agent.status().daemons[0].registered == 2);
    assert_eq!(common::state(&daemon)["sessions"][0]["names"][0], "server.example");
    until_doing(
        "the daemon's own view",
        || report(&cell, ue(2), 12_000_000),
        || common::state(&daemon)["ues"][0]["bandwidth_bps"] == 12_000_000,
    );
}

#[test]
fn a_lost_daemon_means_the_base_control_and_it_may_come_back() {
    let network = Network::new();
    let (daemon, cell) = network.daemon();
    let (agent, memory) = network.agent(&[daemon.address()], &[ue(2)]);
    let fresh = || is_fresh(&memory, ue(2));
    until_doing("feedback", || report(&cell, ue(2), 12_000_000), fresh);
    let mut config = network.daemon_config();
    config.listen = daemon.address();
    drop(daemon);
    // No more than the timeout after the last measurement, without anybody doing anything.
    until("a timeout", || !fresh());
    let (daemon, cell) = start(config);
    until_doing("feedback again", || report(&cell, ue(2), 7_000_000), fresh);
    assert_eq!(bandwidth(&memory, ue(2)), Some(7_000_000));
    assert_eq!(agent.status().daemons[0].connections, 2);
    // A source that falls silent is the same to a sender.
    until("a timeout", || !fresh());
    drop(daemon);
}

#[test]
fn a_ue_that_moves_is_told_of_by_the_daemon_that_has_it() {
    let network = Network::new();
    let (old, old_cell) = network.daemon();
    let (new, new_cell) = network.daemon();
    let (_agent, memory) = network.agent(&[old.address(), new.address()], &[ue(2)]);
    let told = |bits| move |memory: &Memory| bandwidth(memory, ue(2)) == Some(bits);
    until_doing(
        "the old cell",
        || report(&old_cell, ue(2), 5_000_000),
        || told(5_000_000)(&memory),
    );
    until_doing(
        "the new cell",
        || report(&new_cell, ue(2), 90_000_000),
        || told(90_000_000)(&memory),
    );
    until_doing(
        "the old cell again",
        || report(&old_cell, ue(2), 6_000_000),
        || told(6_000_000)(&memory),
    );
}

/// Both of the ways to know how many flows share a UE's link: the UE says so, or the host that sees
/// them all counts.
#[test]
fn flows_are_reported_by_the_ue_or_counted_by_the_host() {
    let mut network = Network::new();
    let phone = network.authority.issue_now(&["phone.example"]).unwrap();
    network.put_identity("phone", &phone);
    let ue = "127.45.0.7".parse().unwrap();
    network.put(
        "policy.toml",
        "[[peer]]\nname = \"server.example\"\nmay_ask = [\"127.45.0.0/24\"]\n\
         [[peer]]\nname = \"phone.example\"\nmay_report = [\"127.45.0.7/32\"]\n",
    );
    let (daemon, cell) = network.daemon();
    let (_agent, reported) = network.agent(&[daemon.address()], &[ue]);
    let counted = Memory::default();
    let mut counting = network.agent_config(&[daemon.address()], &[ue]);
    counting.flows = FlowsFrom::Counted;
    let _counting = Agent::start(counting, Box::new(counted.clone())).unwrap();
    let mut phone = network.agent_config(&[daemon.address()], &[]);
    (phone.report, phone.identity) = (Some(ue), network.identity("phone"));
    let _phone = Agent::start(phone, Box::new(Memory::default())).unwrap();

    let listener = TcpListener::bind((ue, 0)).unwrap();
    let mut pairs: Vec<(TcpStream, TcpStream)> = (0..3)
        .map(|_| {
            let server = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (server, listener.accept().unwrap().0)
        })
        .collect();
    let mut exchange = || {
        report(&cell, ue, 12_000_000);
        for (server, phone) in &mut pairs {
            std::io::Write::write_all(server, b"data").unwrap();
            std::io::Read::read_exact(phone, &mut [0; 4]).unwrap();
        }
    };
    let flows =
        |memory: &Memory| memory.get(ue).map_or(0, |(entry, _)| entry.fairness.as_256ths() / 256);
    until_doing("three flows", &mut exchange, || (flows(&reported), flows(&counted)) == (3, 3));
}

#[test]
fn the_period_is_as_registered() {
    let network = Network::new();
    let (daemon, cell) = network.daemon();
    let mut config = network.agent_config(&[daemon.address()], &[ue(2)]);
    config.period = Span::from_millis(500);
    let memory = Memory::default();
    let _agent = Agent::start(config, Box::new(memory.clone())).unwrap();
    until_doing("feedback", || report(&cell, ue(2), 12_000_000), || is_fresh(&memory, ue(2)));
    let before = count(&common::state(&daemon), "/counts/sent");
    let began = midspan_assist::now();
    for _ in 0..75 {
        report(&cell, ue(2), 12_000_000);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let sent = count(&common::state(&daemon), "/counts/sent") - before;
    // Not more than one each three quarters of a period, however often is measured.
    let most =
        midspan_assist::now().since(began).as_nanos() / Span::from_millis(375).as_nanos() + 1;
    assert!(sent >= 1 && sent <= most, "{sent} {most}");
}

/// A sink that may turn out to be one that nobody reads any more.
#[derive(Debug)]
struct Moving {
    now: Memory,
    next: Arc<Mutex<Option<Memory>>>,
}

impl Sink for Moving {
    fn write(&mut self, entry: &Entry, timeout: Span) -> io::Result<()> {
        self.now.write(entry, timeout)
    }

    fn remove(&mut self, ue: IpAddr) -> io::Result<()> {
        self.now.remove(ue)
    }

    fn refresh(&mut self) -> Option<String> {
        self.now = self.next.lock().unwrap().take()?;
        Some("another one".into())
    }
}

#[test]
fn what_holds_is_left_again_where_it_is_read_now() {
    let network = Network::new();
    let (daemon, cell) = network.daemon();
    let (old, new) = (Memory::default(), Memory::default());
    let next = Arc::new(Mutex::new(None));
    let sink = Moving { now: old.clone(), next: next.clone() };
    let mut config = network.agent_config(&[daemon.address()], &[ue(2)]);
    config.timeout = Some(Span::from_secs(10));
    let _agent = Agent::start(config, Box::new(sink)).unwrap();
    until_doing("feedback", || report(&cell, ue(2), 12_000_000), || is_fresh(&old, ue(2)));
    // Nobody says anything any more.
    *next.lock().unwrap() = Some(new.clone());
    until("what holds", || is_fresh(&new, ue(2)));
    assert_eq!(bandwidth(&new, ue(2)), Some(12_000_000));
}
