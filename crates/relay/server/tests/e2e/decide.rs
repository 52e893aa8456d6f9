//! Whether to split is learned while the relay runs.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midspan_observe::admin::{Answer, Decided, Decisions, Request};
use midspan_sys::netlink::{Netlink, Route, RouteTcp};
use socket2::SockRef;

use crate::admin::Admin;
use crate::process::RelayProcess;
use crate::steer::start;
use crate::world::{CLIENT, World, ip, route};

/// Servers' legs tell that they are the relay's by their segments.
const LEG: &str = "[server_leg]\nmax_segment = 1200\n";
/// How long servers take to answer what comes straight, what comes by the relay, and that of the service which it harms.
const STRAIGHT: Duration = Duration::from_millis(8);
const BY_RELAY: Duration = Duration::from_millis(5);
const HARM: Duration = Duration::from_millis(16);
/// What they answer with.
const BYTES: usize = 8_000;

/// Services with a prefix each, and groups of clients. All gain by splitting; one of them, while it is told to, loses by it.
struct Net {
    world: Arc<World>,
    services: u8,
    groups: u8,
    harms: Arc<AtomicBool>,
    exploring: Arc<Exploring>,
    port: u16,
}

/// What it has cost to find out, by the servers' clocks: how much longer connections took than the better way of their
/// service would have, and how long they would have taken by that. Both in us.
#[derive(Default)]
struct Exploring {
    longer: AtomicU64,
    best: AtomicU64,
}

impl Exploring {
    fn served(&self, took: Duration, best: Duration) {
        let us = |time: Duration| time.as_micros() as u64;
        self.longer.fetch_add(us(took) - us(best), Ordering::Relaxed);
        self.best.fetch_add(us(best), Ordering::Relaxed);
    }

    /// What it was since it was last asked, as a share of the time of all connections at best.
    fn cost(&self) -> f64 {
        let taken = |count: &AtomicU64| count.swap(0, Ordering::Relaxed) as f64;
        taken(&self.longer) / taken(&self.best)
    }
}

const HARMED: u8 = 3;
const SUBSCRIBERS: u8 = 120;

fn service(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 20, number, 1).into()
}

impl Net {
    fn new(services: u8, groups: u8) -> Option<Net> {
        let world = World::new()?;
        let servers = (0..services).map(service);
        let clients =
            (0..groups).flat_map(|group| (1..=SUBSCRIBERS).map(move |one| client(group, one)));
        let of = |netns: &midspan_sys::netns::Netns, link: &str, all: Vec<IpAddr>| {
            netns.run(|| {
                let mut netlink = Netlink::open()?;
                let link = netlink.index(link)?;
                all.into_iter().try_for_each(|one| netlink.add_address(link, one, 32))
            })
        };
        of(&world.server, "downlink", servers.collect()).unwrap().unwrap();
        of(&world.client, "uplink", clients.collect()).unwrap().unwrap();
        let ways = || -> io::Result<()> {
            let mut netlink = Netlink::open()?;
            let (access, wide) = (netlink.index("access")?, netlink.index("wide")?);
            route(&mut netlink, "10.20.0.0", 16, wide, Some("10.2.0.2"))?;
            netlink.add_route(&Route {
                destination: ip("10.100.0.0"),
                prefix: 16,
                index: access,
                gateway: Some(ip(CLIENT[0])),
                tcp: RouteTcp::default(),
            })
        };
        world.relay.run(ways).unwrap().unwrap();
        let harms = Arc::new(AtomicBool::new(false));
        let exploring = Arc::new(Exploring::default());
        let listener = world.server.run(|| TcpListener::bind("0.0.0.0:0")).unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        for _ in 0..2 * THREADS {
            let listener = listener.try_clone().unwrap();
            let (harms, exploring) = (harms.clone(), exploring.clone());
            thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    let _ = serve(stream, &harms, &exploring);
                }
            });
        }
        Some(Net { world: Arc::new(world), services, groups, harms, exploring, port })
    }
}

fn client(group: u8, subscriber: u8) -> IpAddr {
    Ipv4Addr::new(10, 100, group, subscriber).into()
}

fn serve(mut stream: TcpStream, harms: &AtomicBool, exploring: &Exploring) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.read_exact(&mut [0; 16])?;
    let by_relay = SockRef::from(&stream).tcp_mss()? <= 1200;
    let is_harmed = stream.local_addr()?.ip() == service(HARMED) && harms.load(Ordering::Relaxed);
    let by_relay_takes = if is_harmed { HARM } else { BY_RELAY };
    let takes = if by_relay { by_relay_takes } else { STRAIGHT };
    exploring.served(takes, STRAIGHT.min(by_relay_takes));
    thread::sleep(takes);
    stream.write_all(&[7; BYTES])
}

const THREADS: u64 = 8;

/// Clients that go on until this is dropped.
struct Traffic {
    stop: Arc<AtomicBool>,
    /// Of the harmed service.
    flows: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<u64>>,
}

impl Traffic {
    /// From any client to any service, as often as they are served.
    fn begin(net: &Net) -> Traffic {
        let (stop, flows) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (services, groups, port) = (net.services, net.groups, net.port);
        let threads = (1..=THREADS).map(|seed| {
            let (stop, flows) = (stop.clone(), flows.clone());
            let world = net.world.clone();
            thread::spawn(move || {
                world.client.enter().unwrap();
                let mut random = seed;
                let mut next = |below: u8| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    ((random >> 33) % u64::from(below)) as u8
                };
                let mut failed = 0;
                while !stop.load(Ordering::Relaxed) {
                    let from = client(next(groups), 1 + next(SUBSCRIBERS));
                    let to = next(services);
                    if fetch(from, (service(to), port).into()).is_err() {
                        failed += 1;
                    }
                    if to == HARMED {
                        flows.fetch_add(1, Ordering::Relaxed);
                    }
                }
                failed
            })
        });
        Traffic { threads: threads.collect(), stop, flows }
    }

    fn flows(&self) -> u64 {
        self.flows.load(Ordering::Relaxed)
    }

    /// How many transfers failed.
    fn end(&mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).map(|thread| thread.join().unwrap()).sum()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn fetch(from: IpAddr, to: SocketAddr) -> io::Result<()> {
    let mut stream = crate::world::connect(SocketAddr::new(from, 0), to)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(&[7; 16])?;
    let mut all = Vec::with_capacity(BYTES);
    match stream.read_to_end(&mut all)? {
        BYTES => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn decisions(socket: &Path) -> Decisions {
    match Admin::open(socket).ask(&Request::Decisions) {
        Answer::Decisions(decisions) => decisions,
        other => panic!("{other:?}"),
    }
}

fn of_service(decisions: &Decisions, number: u8) -> Option<&Decided> {
    let name = service(number).to_string();
    decisions.decided.iter().find(|one| one.level == "service" && one.of == name)
}

/// Waits until it is so; how many flows of the harmed service that took.
fn until(
    socket: &Path,
    traffic: &Traffic,
    what: &str,
    patience: Duration,
    is_so: impl Fn(&Decisions) -> bool,
) -> u64 {
    let (begun, before) = (Instant::now(), traffic.flows());
    loop {
        let now = decisions(socket);
        if is_so(&now) {
            return traffic.flows() - before;
        }
        let harmed = of_service(&now, HARMED);
        assert!(begun.elapsed() < patience, "{what}: {harmed:?} {:?}", now.transfers);
        thread::sleep(Duration::from_millis(200));
    }
}

/// A service that splitting makes half as fast is left alone, and no other; when the harm has ended it is split again. After
/// a restart nothing has to be learned anew.
#[test]
fn what_splitting_harms_is_left_alone_and_split_again_when_the_harm_ends() {
    let all = std::env::var_os("MIDSPAN_TEST_ALL").is_some();
    let (services, groups) = if all { (51, 8) } else { (10, 2) };
    let Some(net) = Net::new(services, groups) else { return };
    let directory = tempfile::tempdir().unwrap();
    let (socket, state) = (directory.path().join("admin"), directory.path().join("state.json"));
    let groups: Vec<String> = (0..groups).map(|group| format!("\"10.100.{group}.0/24\"")).collect();
    let settings = format!(
        "{LEG}[policy]\nholdout_slot = \"1 s\"\n[decide]\nstate = {state:?}\ngroups = [{}]\nexplore = \"25 %\"\n[admin]\nsocket = {socket:?}\n",
        groups.join(", ")
    );
    let Some(relay) = start(&net.world, &settings) else { return };
    let patience = Duration::from_secs(if all { 300 } else { 90 });
    let mut traffic = Traffic::begin(&net);
    net.harms.store(true, Ordering::Relaxed);
    let is = |decisions: &Decisions, because: &str| {
        of_service(decisions, HARMED).is_some_and(|one| one.because == because)
    };
    let found = until(&socket, &traffic, "found", patience, |now| is(now, "harm"));
    let percent = |cost: f64| format!("{:.1} %", cost * 100.0);
    println!("left alone after {found} flows, which cost {}", percent(net.exploring.cost()));
    assert!(found < 2_000);
    let others_are_split = |now: &Decisions| {
        let others = (0..services).filter(|&number| number != HARMED);
        others
            .filter_map(|number| of_service(now, number))
            .all(|one| one.because != "harm" && one.split >= 0.25)
    };
    let now = decisions(&socket);
    assert!(others_are_split(&now), "{now:?}");
    // It is done.
    let split_share = |relay: &mut RelayProcess, traffic: &Traffic| {
        let (before, flows) = (relay.counts(), traffic.flows());
        thread::sleep(Duration::from_secs(3));
        let now = relay.counts();
        let of = |verdict: &str| now[verdict] - before[verdict];
        println!(
            "{} split, {} left alone, {} of them harmed or not",
            of("accepted"),
            of("pass_holdout"),
            traffic.flows() - flows
        );
        (of("accepted"), of("pass_holdout"))
    };
    let mut relay = relay;
    let (split, _) = split_share(&mut relay, &traffic);
    assert!(split > 0);
    // A restart.
    drop(relay);
    let Some(relay) = start(&net.world, &settings) else { return };
    assert!(is(&decisions(&socket), "harm"), "{:?}", of_service(&decisions(&socket), HARMED));
    if all {
        until(&socket, &traffic, "others fine", patience, |now| {
            let fine = now.decided.iter().filter(|one| one.level == "service" && one.split >= 0.75);
            fine.count() >= usize::from(services) - 1
        });
        println!("until all others are held for fine: {}", percent(net.exploring.cost()));
        thread::sleep(Duration::from_secs(10));
        println!("from then on: {}", percent(net.exploring.cost()));
    }
    net.harms.store(false, Ordering::Relaxed);
    let ended = until(&socket, &traffic, "ended", patience, |now| !is(now, "harm"));
    println!("its end noticed after {ended} flows");
    let again = until(&socket, &traffic, "split again", patience, |now| {
        of_service(now, HARMED).is_some_and(|one| one.split >= 0.5)
    });
    println!("split again after {again} more; that cost {}", percent(net.exploring.cost()));
    assert!(others_are_split(&decisions(&socket)));
    drop(relay);
    println!("{} transfers failed while the relay was exchanged", traffic.end());
}

/// In a dry run everything is learned and nothing done.
#[test]
fn a_dry_run_only_tells() {
    let Some(net) = Net::new(2, 1) else { return };
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("admin");
    let settings = format!(
        "[policy]\nholdout = 500\nholdout_slot = \"1 s\"\n[decide]\nmode = \"dry-run\"\n[admin]\nsocket = {socket:?}\n"
    );
    let Some(mut relay) = start(&net.world, &settings) else { return };
    let mut traffic = Traffic::begin(&net);
    let patience = Duration::from_secs(60);
    until(&socket, &traffic, "counted", patience, |now| {
        now.is_dry_run && now.transfers.counted > 500
    });
    assert_eq!(traffic.end(), 0);
    let counts = relay.counts();
    let (split, left) = (counts["accepted"] as f64, counts["pass_holdout"] as f64);
    assert!((0.5..2.0).contains(&(split / left)), "{split} {left}");
}
