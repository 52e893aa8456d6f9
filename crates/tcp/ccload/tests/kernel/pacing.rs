//! TCP-ME's packets at a policer with a bucket of one.

use midspan_cc::Config;
use midspan_ccload::Options;
use midspan_sys::socket::tcp_info;
use midspan_units::Rate;

use crate::path::EmulatedPath;
use crate::world::World;

/// Of IP packets.
const POLICER: &str =
    "{ policer = { rate = '192 kbit/s', bucket = '1500 B' } }, { delay = '10 ms' }";
/// Of payload. It grows by 2 kbit/s with each acknowledgement, and remains below the policer's.
const FIRST: u64 = 110_000;
const MESSAGES: u64 = 12;
/// The kernel does not pace the first packets.
const UNPACED: u64 = 10;
/// On a machine that is emulated a packet may be late.
const LATE: u64 = 2;

/// A small packet has more of headers for its payload: one that follows it after the time for its payload alone comes
/// too early.
#[test]
fn a_small_packet_takes_its_headers_time() {
    let Some(world) = World::new() else { return };
    let config = Config { me_initial_rate: Rate::from_bps(FIRST), ..Config::default() };
    world.load("me", &Options { config, unrestricted: false });
    let path = EmulatedPath::new(&world.name("me"), 1, "{ delay = '10 ms' }", POLICER);
    for _ in 0..UNPACED {
        path.send(&[130]);
    }
    for _ in 0..MESSAGES {
        path.send(&[130, 1448]);
    }
    let info = tcp_info(path.sender()).unwrap();
    path.end();
    let (sent, repeated) = (u64::from(info.data_segs_out), u64::from(info.total_retrans));
    assert_eq!(sent - repeated, UNPACED + 2 * MESSAGES);
    assert!(repeated <= LATE, "{repeated} of {MESSAGES} were dropped");
}
