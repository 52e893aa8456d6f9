//! Every control: loaded, used, replaced, unloaded, and held by whoever has it.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::world::{World, named};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use midspan_cc::feedback::{self, Value};
use midspan_cc::{Config, Feedback};
use midspan_ccload::{Change, Controls, Error, Kernel, Options, Removal, algorithms};
use midspan_sys::netns::Netns;
use midspan_sys::socket::{congestion_control, tcp_info};
use midspan_units::{ByteSize, Rate, Span, Time};
use socket2::SockRef;

/// Sends so many bytes one way, and checks each.
fn transfer(near: &mut TcpStream, far: &mut TcpStream, bytes: usize) {
    let pattern: Vec<u8> = (0..bytes).map(|at| ((at * 31) >> 3) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| near.write_all(&pattern).unwrap());
        let mut got = vec![0; bytes];
        far.read_exact(&mut got).unwrap();
        assert!(got == pattern, "what arrived is not what was sent");
    });
}

fn load(world: &World, algorithm: &str, unrestricted: bool) -> Change {
    world.load(algorithm, &Options { unrestricted, ..Options::default() })
}

fn control_of(stream: &TcpStream) -> String {
    let name = congestion_control(stream).unwrap();
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
}

/// All of the family pass the verifier, and carry a connection.
#[test]
fn every_control_carries_a_connection() {
    let Some(world) = World::new() else { return };
    for algorithm in algorithms() {
        let name = world.controls.name_of(algorithm);
        let held = world.controls.hold(algorithm, &Options::default()).unwrap();
        assert_eq!(held.name(), name);
        let (mut near, mut far) = world.connect(&name).unwrap();
        assert_eq!(control_of(&near), name);
        // TCP-ME begins at 200 kbit/s.
        let bytes = if algorithm.name() == "me" { 20_000 } else { 20_000_000 };
        transfer(&mut near, &mut far, bytes);
        let info = tcp_info(&near).unwrap();
        assert!(info.snd_cwnd >= 1, "{name}");
        drop(held);
        let error = world.connect(&name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{name} is still there");
    }
}

#[test]
fn a_restricted_control_is_not_for_everybody() {
    let Some(world) = World::new() else { return };
    for unrestricted in [false, true] {
        load(&world, "reno", unrestricted);
        let name = world.name("reno");
        let status = world.controls.status();
        let status = status.iter().find(|status| status.name == name).unwrap();
        assert!(status.loaded && status.registered);
        assert_eq!(status.unrestricted, unrestricted);
    }
    // Such a one may be a namespace's default. That another may not is not tried: where Linux (6.18 too)
    // refuses it, it forgets to give the program back that it has taken hold of.
    let name = world.name("reno");
    let set = || midspan_sys::sysctl::set("net.ipv4.tcp_congestion_control", &name);
    world.netns.run(set).unwrap().unwrap();
}

/// A connection that uses a control keeps it when that is unloaded; new ones do not find it.
#[test]
fn unloading_one_in_use() {
    let Some(world) = World::new() else { return };
    for algorithm in ["cubic", "bbr3"] {
        assert_eq!(load(&world, algorithm, false), Change::Loaded);
        let name = world.name(algorithm);
        let (mut near, mut far) = world.connect(&name).unwrap();
        transfer(&mut near, &mut far, 1_000_000);
        world.controls.unload(named(algorithm)).unwrap();
        assert_eq!(world.connect(&name).unwrap_err().kind(), ErrorKind::NotFound);
        transfer(&mut near, &mut far, 1_000_000);
        assert_eq!(control_of(&near), name);
        let error = world.controls.unload(named(algorithm)).unwrap_err();
        assert!(matches!(error, Error::NotLoaded { .. }), "{error}");
        // The name is free again, whoever still uses the old one.
        assert_eq!(load(&world, algorithm, false), Change::Loaded);
        transfer(&mut near, &mut far, 1_000_000);
    }
}

#[test]
fn loading_one_again_replaces_it_in_use() {
    let Some(world) = World::new() else { return };
    for algorithm in ["cubic", "natcp"] {
        assert_eq!(load(&world, algorithm, false), Change::Loaded);
        let name = world.name(algorithm);
        let (mut near, mut far) = world.connect(&name).unwrap();
        for unrestricted in [true, false] {
            transfer(&mut near, &mut far, 1_000_000);
            assert_eq!(load(&world, algorithm, unrestricted), Change::Replaced);
            let (mut newer, mut its_far) = world.connect(&name).unwrap();
            transfer(&mut newer, &mut its_far, 1_000_000);
        }
        transfer(&mut near, &mut far, 1_000_000);
    }
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let Some(world) = World::new() else { return };
    let held = world.controls.hold(named("lp"), &Options::default()).unwrap();
    let error = world.controls.load(named("lp"), &Options::default()).unwrap_err();
    assert!(matches!(error, Error::NameTaken { .. }), "{error}");
    assert!(error.to_string().contains(held.name()), "{error}");
    // By whom: before Linux 6.4 that cannot be seen.
    let holder = format!("held by process {}", std::process::id());
    let links = Kernel::running().unwrap().links;
    assert_eq!(error.to_string().contains(&holder), links, "{error}");
    // What was there works on.
    let (mut near, mut far) = world.connect(held.name()).unwrap();
    transfer(&mut near, &mut far, 100_000);
}

/// Waits until a name that nobody holds is gone: the kernel takes a moment.
fn wait_until_gone(world: &World, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while world.connect(name).is_ok() {
        assert!(Instant::now() < deadline, "{name} is still there");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a name is still there when one that nobody holds would be gone.
fn stays(world: &World, name: &str) -> bool {
    thread::sleep(Duration::from_millis(500));
    world.connect(name).is_ok()
}

/// What two hold lasts as long as the one that lets go last, whoever registered it.
#[test]
fn a_control_that_others_hold_stays() {
    let Some(world) = World::new() else { return };
    let name = world.name("westwood");
    let hold = || world.controls.hold(named("westwood"), &Options::default());
    let first = hold().unwrap();
    if !Kernel::running().unwrap().links {
        // Before Linux 6.4 a registration belongs to nobody.
        let error = hold().unwrap_err();
        assert!(matches!(error, Error::NameTaken { .. }), "{error}");
        return;
    }
    let second = hold().unwrap();
    drop(first);
    assert!(stays(&world, &name));
    let third = hold().unwrap();
    drop(second);
    assert!(stays(&world, &name));
    drop(third);
    wait_until_gone(&world, &name);
}

/// Feedback reaches one map's controls: a name is not shared with somebody who brings another.
#[test]
fn one_with_feedback_of_its_own_is_not_shared() {
    let Some(world) = World::new() else { return };
    load(&world, "natcp", false);
    let map = MapHandle::from_pinned_path(world.controls.feedback()).unwrap();
    let hold = || world.controls.hold_with(named("natcp"), &Options::default(), map.as_fd());
    let error = hold().unwrap_err();
    assert!(matches!(error, Error::NameTaken { .. }), "{error}");
    world.controls.unload(named("natcp")).unwrap();
    assert_eq!(hold().unwrap().name(), world.name("natcp"));
}

/// A control is unloaded under somebody who holds it: that says so, and takes nothing away.
#[test]
fn unloading_one_that_others_hold() {
    let Some(world) = World::new() else { return };
    if !Kernel::running().unwrap().links {
        return;
    }
    load(&world, "reno", false);
    let held = world.controls.hold(named("reno"), &Options::default()).unwrap();
    assert_eq!(world.controls.unload(named("reno")).unwrap(), Removal::InUse);
    assert!(stays(&world, held.name()));
    let name = world.name("reno");
    drop(held);
    wait_until_gone(&world, &name);
    load(&world, "reno", false);
    assert_eq!(world.controls.unload(named("reno")).unwrap(), Removal::Gone);
}

#[test]
fn without_a_bpf_file_system_it_says_so() {
    let controls = Controls::new("/proc/midspan", "none_");
    let error = controls.load(named("reno"), &Options::default()).unwrap_err();
    assert!(matches!(error, Error::NoBpffs { .. }), "{error}");
    assert!(error.to_string().contains("mount -t bpf"), "{error}");
}

#[test]
fn the_kernel_says_what_it_has() {
    let Some(_) = World::new() else { return };
    let kernel = Kernel::running().unwrap();
    assert!([2, 4].contains(&kernel.cong_control_arguments), "{kernel:?}");
    assert_eq!(kernel.lacks().is_empty(), kernel.links && kernel.cong_control_arguments == 4);
}

/// A namespace goes away with connections in it that use a control.
#[test]
fn a_namespace_vanishes() {
    let Some(world) = World::new() else { return };
    load(&world, "westwood", true);
    let name = world.name("westwood");
    let passing = Netns::create().unwrap();
    passing
        .run(|| midspan_sys::sysctl::set("net.ipv4.tcp_congestion_control", &name))
        .unwrap()
        .unwrap();
    let streams = passing
        .run(|| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            SockRef::from(&near).set_nonblocking(true).unwrap();
            let _ = (&near).write(&vec![0; 1 << 20]);
            (near, far)
        })
        .unwrap();
    assert_eq!(control_of(&streams.0), name);
    drop(streams);
    drop(passing);
    world.controls.unload(named("westwood")).unwrap();
    let (mut near, mut far) = world.connect("reno").unwrap();
    transfer(&mut near, &mut far, 100_000);
}

/// Set for a child of [`killing_the_loader`]: what it is to load, and where.
const CHILD: &str = "MIDSPAN_TEST_CCLOAD_CHILD";

/// Not a test of its own: what the killed process does.
#[test]
fn child_that_is_killed() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let mut words = what.split(' ').map(str::to_owned);
    let mut word = || words.next().unwrap();
    let controls = Controls::new(word(), word());
    let _held = match &*word() {
        "hold" => Some(controls.hold(named("illinois"), &Options::default()).unwrap()),
        _ => {
            controls.load(named("illinois"), &Options::default()).unwrap();
            None
        }
    };
    println!("ready");
    thread::sleep(Duration::from_secs(60));
}

/// What a process holds goes with it, however it ends, and what it has loaded stays.
#[test]
fn killing_the_loader() {
    let Some(world) = World::new() else { return };
    let name = world.name("illinois");
    let prefix = name.strip_suffix("illinois").unwrap();
    for how in ["hold", "load"] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "controls::child_that_is_killed", "--nocapture"])
            .env(CHILD, format!("{} {prefix} {how}", world.folder.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = child.stdout.take().unwrap();
        while !said.contains("ready") {
            let mut byte = [0];
            assert_eq!(stdout.read(&mut byte).unwrap(), 1, "{said}");
            said.push(byte[0].into());
        }
        let (mut near, mut far) = world.connect(&name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        transfer(&mut near, &mut far, 100_000);
        if how == "load" {
            world.connect(&name).unwrap();
            continue;
        }
        if !Kernel::running().unwrap().links {
            // Before Linux 6.4 a registration belongs to nobody.
            return;
        }
        wait_until_gone(&world, &name);
    }
}

/// What the agent of NetAssist does.
struct Feeder(MapHandle);

impl Feeder {
    fn new(world: &World) -> Feeder {
        Feeder(MapHandle::from_pinned_path(world.controls.feedback()).unwrap())
    }

    fn say(&self, ue: Ipv4Addr, bandwidth: Rate, timeout: Span) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let value = Value {
            feedback: Feedback {
                bandwidth,
                min_rtt: Span::from_millis(10),
                fairness: 256,
                queue: ByteSize::from_bytes(0),
                pace: 256,
            },
            updated: Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64),
            timeout,
            sequence: 1,
        };
        self.0.update(&feedback::key(ue.into()), &value.to_bytes(), MapFlags::ANY).unwrap();
    }
}

/// NATCP takes window and pacing rate from the map, and goes its own way when that says no more;
/// NACubic is capped by it.
#[test]
fn feedback_is_heard_and_forgotten() {
    let Some(world) = World::new() else { return };
    load(&world, "natcp", false);
    load(&world, "nacubic", false);
    let feeder = Feeder::new(&world);
    let bandwidth = Rate::from_bps(80_000_000);
    for algorithm in ["natcp", "nacubic"] {
        feeder.say(Ipv4Addr::LOCALHOST, bandwidth, Span::from_secs(9));
        let (mut near, mut far) = world.connect(&world.name(algorithm)).unwrap();
        transfer(&mut near, &mut far, 3_000_000);
        let info = tcp_info(&near).unwrap();
        // 2 x 80 Mbit/s x 10 ms is 200 KB; the loopback's packets are large.
        let window = u64::from(info.snd_cwnd) * u64::from(info.snd_mss);
        assert!(window <= 400_000, "{algorithm}: {window}");
        assert!(info.pacing_rate <= 10_000_000, "{algorithm}: {}", info.pacing_rate);
        feeder.say(Ipv4Addr::LOCALHOST, bandwidth, Span::from_millis(1));
        thread::sleep(Duration::from_millis(5));
        transfer(&mut near, &mut far, 20_000_000);
        let info = tcp_info(&near).unwrap();
        assert!(info.pacing_rate > 20_000_000, "{algorithm}: {}", info.pacing_rate);
    }
}

/// The map is never full: the entry used least recently goes, and its connections manage without.
#[test]
fn a_full_map_takes_more() {
    let Some(world) = World::new() else { return };
    load(&world, "natcp", false);
    let feeder = Feeder::new(&world);
    let bandwidth = Rate::from_bps(8_000_000);
    feeder.say(Ipv4Addr::LOCALHOST, bandwidth, Span::from_secs(9));
    let (mut near, mut far) = world.connect(&world.name("natcp")).unwrap();
    for number in 0..feedback::ENTRIES + 5000 {
        let ue = Ipv4Addr::from_bits(0x0a00_0000 + number);
        feeder.say(ue, bandwidth, Span::from_secs(9));
    }
    transfer(&mut near, &mut far, 1_000_000);
    // And one that is there is heard.
    feeder.say(Ipv4Addr::LOCALHOST, bandwidth, Span::from_secs(9));
    transfer(&mut near, &mut far, 200_000);
    assert!(tcp_info(&near).unwrap().pacing_rate <= 1_000_000);
}

/// Replacing or unloading a control leaves the map, and what is in it.
#[test]
fn the_map_outlives_the_control() {
    let Some(world) = World::new() else { return };
    load(&world, "natcp", false);
    Feeder::new(&world).say(Ipv4Addr::LOCALHOST, Rate::from_bps(8_000_000), Span::from_secs(9));
    load(&world, "natcp", false);
    world.controls.unload(named("natcp")).unwrap();
    load(&world, "nacubic", false);
    let (mut near, mut far) = world.connect(&world.name("nacubic")).unwrap();
    transfer(&mut near, &mut far, 200_000);
    assert!(tcp_info(&near).unwrap().pacing_rate <= 1_000_000);
}

/// HyStart can be chosen when a control is loaded.
#[test]
fn a_control_is_loaded_with_a_configuration() {
    let Some(world) = World::new() else { return };
    let config = Config { me_initial_rate: Rate::from_bps(1_000_000), ..Config::default() };
    world.controls.load(named("me"), &Options { config, unrestricted: false }).unwrap();
    let (near, _far) = world.connect(&world.name("me")).unwrap();
    assert_eq!(tcp_info(&near).unwrap().max_pacing_rate, 125_000);
    assert!(fs::exists(&world.folder).unwrap());
}
