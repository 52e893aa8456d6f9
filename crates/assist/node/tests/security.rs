//! Whatever a stranger, a thief, or a peer that is wrong does: refused, counted, and no effect on
//! any sender.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use common::{
    NAME, Network, PERIOD, bandwidth, count, is_fresh, report, start, ue, until, until_doing,
};
use midspan_assist::agent::{Agent, Memory};
use midspan_assist::tls::{Audit, DevSet};
use midspan_assist_proto::{BasisKind, FeedbackDatagram, Quality, ToDaemon, ToSender};
use midspan_units::{Rate, Span};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

#[test]
fn certificates_that_are_expired_or_foreign_open_nothing() {
    let mut network = Network::new();
    let (daemon, cell) = network.daemon();
    let hour = Duration::from_secs(3_600);
    let now = SystemTime::now();
    let expired = network.authority.issue(&["server.example"], now - 2 * hour, now - hour).unwrap();
    // Signed by an authority of the same name: only the signature tells.
    let foreign = DevSet::create().unwrap().issue_now(&["server.example"]).unwrap();
    for (identity, refusal) in
        [(expired, "certificate_expired"), (foreign, "certificate_bad_signature")]
    {
        network.put_identity("server", &identity);
        let (agent, memory) = network.agent(&[daemon.address()], &[ue(2)]);
        let counted = || count(&common::state(&daemon), &format!("/refused/{refusal}")) > 0;
        until_doing(refusal, || report(&cell, ue(2), 12_000_000), counted);
        until("a fault at the agent", || agent.status().daemons[0].last_fault.is_some());
        assert_eq!(memory.get(ue(2)), None);
        assert_eq!(count(&common::state(&daemon), "/counts/registered"), 0);
    }
}

#[test]
fn a_daemon_that_is_somebody_else_is_not_believed() {
    let network = Network::new();
    let (daemon, cell) = network.daemon();
    let mut config = network.agent_config(&[daemon.address()], &[ue(2)]);
    config.daemons[0].name = Some("other.example".into());
    let memory = Memory::default();
    let agent = Agent::start(config, Box::new(memory.clone())).unwrap();
    let fault = || agent.status().daemons[0].last_fault.clone();
    until_doing("a fault", || report(&cell, ue(2), 12_000_000), || fault().is_some());
    assert!(fault().unwrap().contains("certificate"), "{:?}", fault());
    assert_eq!(memory.get(ue(2)), None);
}

#[test]
fn a_server_gets_nothing_for_anothers_ue_and_loses_what_is_taken_away() {
    let network = Network::new();
    let (daemon, cell) = network.daemon();
    let foreign = "10.46.0.2".parse().unwrap();
    let (agent, memory) = network.agent(&[daemon.address()], &[ue(2), foreign]);
    let both = || {
        report(&cell, ue(2), 12_000_000);
        report(&cell, foreign, 12_000_000);
    };
    until_doing("feedback", both, || is_fresh(&memory, ue(2)));
    until("a refusal", || agent.status().daemons[0].refused == 1);
    assert_eq!(memory.get(foreign), None);
    // Once for each time that it asked.
    assert!(count(&common::state(&daemon), "/counts/refused_not_allowed") >= 1);
    // The policy changes while they are connected.
    network.policy("server.example", "10.46.0.0/16");
    until_doing("the loss", both, || memory.get(ue(2)).is_none());
    assert!(agent.status().daemons[0].connected);
    // And what is wrong in a policy leaves the old one in force.
    network.put("policy.toml", "[[peer]]\nname = 7\n");
    until_doing("a failed reload", both, || count(&common::state(&daemon), "/reloads_failed") > 0);
    assert!(agent.status().daemons[0].connected);
}

#[test]
fn certificates_rotate_and_are_revoked_without_a_restart() {
    let mut network = Network::new();
    let empty = network.authority.revoke(&[]).unwrap();
    network.put("revoked.pem", &empty);
    let mut config = network.daemon_config();
    config.identity.revocation_lists = vec![network.path("revoked.pem")];
    let (daemon, cell) = common::start(config);
    let (agent, memory) = network.agent(&[daemon.address()], &[ue(2)]);
    let fresh = || is_fresh(&memory, ue(2));
    let tell = || report(&cell, ue(2), 12_000_000);
    until_doing("feedback", tell, fresh);
    let connections = || agent.status().daemons[0].connections;
    // The server's certificate is replaced, then the daemon's.
    let mut server = network.authority.issue_now(&["server.example"]).unwrap();
    network.put_identity("server", &server);
    until_doing("another connection", tell, || connections() == 2);
    until_doing("feedback", tell, fresh);
    let renewed = network.authority.issue_now(&[NAME]).unwrap();
    network.put_identity("daemon", &renewed);
    // The server's is revoked by fingerprint, while it is connected.
    network.put(
        "policy.toml",
        &format!(
            "revoked = [\"{}\"]\n[[peer]]\nname = \"server.example\"\nmay_ask = [\"10.45.0.0/24\"]\n",
            server.fingerprint
        ),
    );
    until_doing("the end", tell, || count(&common::state(&daemon), "/ended/revoked") == 1);
    until_doing("a refusal", tell, || {
        count(&common::state(&daemon), "/refused/certificate_revoked") > 0
    });
    until("a timeout", || !fresh());
    // A new one is let in, and revoked by the authority's list.
    server = network.authority.issue_now(&["server.example"]).unwrap();
    network.put_identity("server", &server);
    until_doing("feedback", tell, fresh);
    let list = network.authority.revoke(&[&server]).unwrap();
    network.put("revoked.pem", &list);
    until_doing("the end", tell, || count(&common::state(&daemon), "/ended/revoked") == 2);
    until("a timeout", || !fresh());
}

/// Everything between a daemon and an agent goes through here: most of it unharmed, some of it
/// dropped, doubled, delayed, cut or changed, in both directions.
struct Wire {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    harmed: Arc<AtomicU64>,
}

impl Wire {
    fn to(daemon: SocketAddr) -> Wire {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let wire = Wire {
            address: socket.local_addr().unwrap(),
            stop: Arc::default(),
            harmed: Arc::default(),
        };
        let (stop, harmed) = (wire.stop.clone(), wire.harmed.clone());
        thread::spawn(move || {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
            let (mut agent, mut kept) = (None, None);
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                let Ok((count, from)) = socket.recv_from(&mut buffer) else { continue };
                let to = if from == daemon {
                    let Some(agent) = agent else { continue };
                    agent
                } else {
                    agent = Some(from);
                    daemon
                };
                let mut datagram = buffer[..count].to_vec();
                let send = |datagram: &[u8]| drop(socket.send_to(datagram, to));
                // Long headers are the handshake's: leave the connection a chance.
                let harm = if datagram[0] & 0x80 != 0 { 99 } else { random.next_u32() % 30 };
                harmed.fetch_add(u64::from(harm < 6), Ordering::Relaxed);
                match harm {
                    0 => {}
                    1 => {
                        send(&datagram);
                        send(&datagram);
                    }
                    2 => kept = Some(datagram),
                    3 => send(&datagram[..1 + random.next_u32() as usize % count]),
                    4 => {
                        let at = random.next_u32() as usize % count;
                        datagram[at] ^= 1 << (random.next_u32() % 8);
                        send(&datagram);
                    }
                    5 => {
                        // Forged: the header of a real one, and an attacker's payload.
                        let head = 20.min(count);
                        datagram[head..].fill(random.next_u32() as u8);
                        send(&datagram);
                    }
                    _ => {
                        send(&datagram);
                        if let Some(late) = kept.take() {
                            send(&late);
                        }
                    }
                }
            }
        });
        wire
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_is_forged_replayed_cut_or_reordered_on_the_wire_changes_nothing() {
    let network = Network::new();
    let (daemon, cell) = network.daemon();
    let wire = Wire::to(daemon.address());
    let (agent, memory) = network.agent(&[wire.address], &[ue(2)]);
    let mut reported = 1_000_000;
    let mut tell = || {
        reported += 1_000;
        report(&cell, ue(2), reported);
    };
    let mut last = 0;
    // What a sender sees only ever is what was reported, and never goes back.
    let mut sound = || {
        let told = bandwidth(&memory, ue(2)).unwrap_or(0);
        assert!(told >= last && told.is_multiple_of(1_000) && told < 100_000_000, "{last} {told}");
        last = told;
        let (state, status) = (common::state(&daemon), agent.status());
        let not_authentic = count(&state, "/audit/not_authentic") + status.audit.not_authentic;
        let replayed = count(&state, "/audit/replayed") + status.audit.replayed;
        not_authentic > 20 && replayed > 5
    };
    until_doing("harm", &mut tell, &mut sound);
    assert!(wire.harmed.load(Ordering::Relaxed) > 20);
    until_doing("feedback", &mut tell, || is_fresh(&memory, ue(2)));
    let status = agent.status();
    assert_eq!(status.daemons[0].connections, 1, "{:?}", status.daemons[0].last_fault);
    assert_eq!(status.daemons[0].tally.malformed, 0);
}

/// A runtime and an endpoint of the test's own, with a certificate that is good.
fn raw(network: &Network, name: &str) -> (tokio::runtime::Runtime, quinn::ClientConfig) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let loaded = network.identity(name).load().unwrap();
    (runtime, loaded.client(&Audit::default()).unwrap())
}

#[test]
fn a_peer_that_talks_nonsense_is_hung_up_on_and_counted() {
    let network = Network::new();
    let (daemon, cell) = network.daemon();
    let (_agent, memory) = network.agent(&[daemon.address()], &[ue(2)]);
    let (runtime, config) = raw(&network, "server");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let rounds = 40;
    runtime.block_on(async {
        let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        for round in 0..rounds {
            let connection = endpoint
                .connect_with(config.clone(), daemon.address(), NAME)
                .unwrap()
                .await
                .unwrap();
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            let mut bytes = match round % 4 {
                // Not even a greeting.
                0 => ToDaemon::Withdraw { registration: 1 }.encode().to_vec(),
                // Two greetings.
                1 => [ToDaemon::HELLO.encode(); 2].concat(),
                _ => ToDaemon::HELLO.encode().to_vec(),
            };
            let mut garbage = vec![0; 24 * 8];
            random.fill_bytes(&mut garbage);
            bytes.extend(garbage);
            let _ = send.write_all(&bytes).await;
            // Datagrams to a daemon mean nothing, and do nothing.
            for length in [0, 1, 48, 500] {
                let _ = connection.send_datagram(vec![round; length].into());
            }
            while let Ok(Some(_)) = receive.read(&mut [0; 256]).await {}
            assert!(matches!(
                connection.closed().await,
                quinn::ConnectionError::ApplicationClosed(close) if close.error_code == 1u32.into()
            ));
        }
    });
    // The peer may know of the last before the daemon has counted it.
    let violations = || count(&common::state(&daemon), "/ended/violation");
    until_doing("all are counted", || (), || violations() >= u64::from(rounds));
    assert_eq!(violations(), u64::from(rounds));
    until_doing(
        "feedback all the same",
        || report(&cell, ue(2), 12_000_000),
        || is_fresh(&memory, ue(2)),
    );
}

/// A daemon with a good certificate that sends what it should not.
#[test]
fn an_agent_believes_only_what_it_asked_for() {
    let network = Network::new();
    let server = network.identity("daemon").load().unwrap().server(&Audit::default()).unwrap();
    let (address, addressed) = std::sync::mpsc::channel();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let liar = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let endpoint = quinn::Endpoint::server(server, "127.0.0.1:0".parse().unwrap()).unwrap();
            address.send(endpoint.local_addr().unwrap()).unwrap();
            let connection = endpoint.accept().await.unwrap().await.unwrap();
            let (mut send, mut receive) = connection.accept_bi().await.unwrap();
            let mut frame = [0; 24];
            receive.read_exact(&mut frame).await.unwrap();
            send.write_all(&ToSender::welcome(BasisKind::Causal).encode()).await.unwrap();
            receive.read_exact(&mut frame).await.unwrap();
            let Ok(ToDaemon::Register { registration, ue: asked, .. }) = ToDaemon::parse(&frame)
            else {
                panic!("{frame:?}")
            };
            assert_eq!(asked, ue(2));
            let truth = |sequence| FeedbackDatagram {
                registration,
                sequence,
                ue: asked,
                bandwidth: Rate::from_bps(5_000_000),
                min_rtt: Span::from_millis(10),
                fairness: None,
                age: Span::ZERO,
                basis: BasisKind::Causal,
                quality: Quality::default(),
            };
            let lie = Rate::from_bps(999_000_000);
            let mut sequence = 0;
            while !stopped.load(Ordering::Relaxed) {
                sequence += 10;
                let lies = [
                    FeedbackDatagram { ue: ue(3), bandwidth: lie, ..truth(sequence + 1) },
                    FeedbackDatagram { registration: 99, bandwidth: lie, ..truth(sequence + 2) },
                    FeedbackDatagram {
                        basis: BasisKind::Oracle,
                        bandwidth: lie,
                        ..truth(sequence + 3)
                    },
                    FeedbackDatagram {
                        age: Span::from_secs(9),
                        bandwidth: lie,
                        ..truth(sequence + 4)
                    },
                    FeedbackDatagram {
                        bandwidth: Rate::from_bps(1_000_000_001),
                        ..truth(sequence + 5)
                    },
                    FeedbackDatagram { bandwidth: lie, ..truth(sequence) },
                    FeedbackDatagram { bandwidth: lie, ..truth(sequence - 3) },
                ];
                let mut datagrams = vec![truth(sequence).encode().to_vec()];
                datagrams.extend(lies.iter().map(|lie| lie.encode().to_vec()));
                datagrams.push(truth(sequence + 6).encode()[..47].to_vec());
                datagrams.push(Vec::new());
                for datagram in datagrams {
                    let _ = connection.send_datagram(datagram.into());
                }
                tokio::time::sleep(PERIOD.into()).await;
            }
        });
    });
    let daemon = addressed.recv().unwrap();
    let (agent, memory) = network.agent(&[daemon], &[ue(2)]);
    let everything_seen = || {
        let tally = agent.status().daemons[0].tally;
        let kinds = [
            tally.accepted,
            tally.other_ue,
            tally.unregistered,
            tally.other_basis,
            tally.old,
            tally.implausible,
            tally.replayed,
            tally.overtaken,
            tally.malformed,
        ];
        for known in [2, 3] {
            assert!(bandwidth(&memory, ue(known)).is_none_or(|told| told == 5_000_000));
        }
        kinds.iter().all(|count| *count > 3)
    };
    until("every kind of lie", everything_seen);
    assert_eq!(memory.get(ue(3)), None);
    stop.store(true, Ordering::Relaxed);
    liar.join().unwrap();
}

/// One sender with three connections that asks for all that it may, and more than it may have.
#[test]
fn a_sender_that_takes_all_leaves_enough_for_others() {
    let mut network = Network::new();
    let greedy = network.authority.issue_now(&["greedy.example"]).unwrap();
    network.put_identity("greedy", &greedy);
    network.put(
        "policy.toml",
        "[[peer]]\nname = \"server.example\"\nmay_ask = [\"10.45.0.0/16\"]\n\
         [[peer]]\nname = \"greedy.example\"\nmay_ask = [\"10.45.0.0/16\"]\n",
    );
    let mut config = network.daemon_config();
    config.limits.registrations = 5_000;
    config.limits.registrations_per_peer = 2_000;
    let (daemon, cell) = start(config);
    let greedy = || {
        let mut config = network.agent_config(&[daemon.address()], &[]);
        config.identity = network.identity("greedy");
        config.ues = vec!["10.45.0.0/21".parse().unwrap()];
        config.period = Span::from_millis(10);
        Agent::start(config, Box::new(Memory::default())).unwrap()
    };
    let _greedy = [greedy(), greedy(), greedy()];
    let refused = || count(&common::state(&daemon), "/counts/refused_too_many") > 4_000;
    until("the refusals", refused);
    let (agent, memory) = network.agent(&[daemon.address()], &[ue(2)]);
    let tell = || report(&cell, ue(2), 12_000_000);
    until_doing("feedback", tell, || is_fresh(&memory, ue(2)));
    assert_eq!(agent.status().daemons[0].refused, 0);
}
