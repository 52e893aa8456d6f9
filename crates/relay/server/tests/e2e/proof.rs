//! The proof that what is steered arrives, by both legs: before steering begins, and again when rules of the box change.

use std::io::Read;
use std::time::{Duration, Instant};

use midspan_relay::Relay;

use crate::beside::load;
use crate::process::{CLIENTS, Counts, RelayProcess};
use crate::steer::{exchange, is_possible, start};
use crate::world::{PATIENCE, SERVER, World};

/// What is in the way: of the client's leg, of what servers answer, and of what the relay sends to servers in its clients'
/// names. None stops what the box forwards.
const OBSTACLES: [(&str, &str); 3] = [
    ("client", "chain c { type filter hook input priority 0; meta mark 0x4d53 drop; }"),
    ("answers", "chain c { type filter hook input priority 0; meta mark 0x4d54 drop; }"),
    (
        "server",
        "chain c { type filter hook output priority 0; tcp flags & (syn | ack) == syn drop; }",
    ),
];

fn table(chain: &str) -> String {
    format!("table inet obstacle {{ {chain}; }}")
}

fn begins(world: &World) -> Result<(), String> {
    let config = format!("{CLIENTS}interception = \"bpf\"\npin = false\n").parse().unwrap();
    let started = world.relay.run(|| Relay::start(config).map(drop)).unwrap();
    started.map_err(|error| error.to_string())
}

/// What `midspan doctor` asks.
fn is_well(world: &World) -> Result<(), String> {
    let proven = world.relay.run(midspan_relay::prove_steering).unwrap();
    proven.map_err(|error| error.to_string())
}

#[test]
fn a_relay_whose_legs_do_not_get_through_does_not_begin() {
    if !is_possible() {
        return;
    }
    let Some(world) = World::new() else { return };
    for (leg, chain) in OBSTACLES {
        load(&world.relay, &table(chain));
        let (where_to, mark) = match leg {
            "client" => ("INPUT", "0x4d53"),
            _ => ("OUTPUT", "0x4d54"),
        };
        for said in [begins(&world), is_well(&world)] {
            let said = said.expect_err(leg);
            assert!(said.contains(where_to) && said.contains(mark), "{leg}: {said}");
        }
        load(&world.relay, "delete table inet obstacle\n");
        begins(&world).unwrap();
        is_well(&world).unwrap();
    }
}

/// The proof's connection is translated and tracked as others are.
#[test]
fn a_proof_goes_through_nat_and_states() {
    const RULES: &str = "
table inet nat { chain after { type nat hook postrouting priority srcnat; masquerade; }; }
table inet firewall {
    chain in { type filter hook input priority filter; policy drop; iif lo accept; ct state established accept; meta l4proto 58 accept; }
    chain out { type filter hook output priority filter; ct state invalid drop; }
}";
    if !is_possible() {
        return;
    }
    let Some(world) = World::new() else { return };
    load(&world.relay, RULES);
    is_well(&world).unwrap();
    begins(&world).unwrap();
}

/// A client's connection gets through, whichever way.
fn connect(world: &World, version: usize) {
    let (mut near, mut far) = world.pair(SERVER[version]);
    exchange(&mut near, &mut far);
}

/// Connects until a connection was counted so.
fn until(world: &World, relay: &mut RelayProcess, count: &str) -> Counts {
    let (before, start) = (relay.counts()[count], Instant::now());
    loop {
        connect(world, 0);
        let counts = relay.counts();
        if counts[count] > before {
            return counts;
        }
        assert!(start.elapsed() < PATIENCE, "no `{count}`: {counts:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn rules_that_come_and_stop_a_leg_have_connections_pass_until_they_go() {
    for (leg, chain) in OBSTACLES {
        let Some(world) = World::new() else { return };
        let Some(mut relay) = start(&world, "connect_timeout = \"1 s\"\n") else { return };
        let (mut near, mut far) = world.pair(SERVER[0]);
        exchange(&mut near, &mut far);
        for _ in 0..2 {
            load(&world.relay, &table(chain));
            // Who comes before it is noticed is reset.
            let counts = relay.counts();
            let start = Instant::now();
            let (listener, address) = world.listen(SERVER[0]);
            let mut lost = 0;
            while relay.counts()["pass_unproven"] == counts["pass_unproven"] {
                assert!(start.elapsed() < PATIENCE, "{leg}: {:?}", relay.counts());
                if let Ok(mut near) = world.connect(address) {
                    near.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                    lost += usize::from(near.read(&mut [0]).is_err());
                }
            }
            eprintln!("{leg}: {lost} attempts, {:?} until connections pass", start.elapsed());
            drop(listener);
            let before = relay.counts();
            for _ in 0..5 {
                connect(&world, 0);
                connect(&world, 1);
            }
            let counts = relay.counts();
            assert_eq!(counts["pass_unproven"], before["pass_unproven"] + 10, "{leg} {counts:?}");
            load(&world.relay, "delete table inet obstacle\n");
            until(&world, &mut relay, "accepted");
            connect(&world, 1);
        }
        // One that was there all the time.
        exchange(&mut near, &mut far);
    }
}

/// What changes and stops nothing interrupts nothing.
#[test]
fn rules_that_stop_nothing_have_nothing_pass() {
    let Some(world) = World::new() else { return };
    let Some(mut relay) = start(&world, "") else { return };
    let probes = relay.counts()["probes"];
    for round in 0..10 {
        load(
            &world.relay,
            "table inet other { chain c { type filter hook input priority 0; }; }\n",
        );
        for _ in 0..5 {
            connect(&world, round % 2);
        }
        load(&world.relay, "delete table inet other\n");
    }
    let counts = relay.until(|counts| counts["probes"] >= probes + 2);
    assert_eq!((counts["accepted"], counts["pass_unproven"]), (50, 0), "{counts:?}");
}
