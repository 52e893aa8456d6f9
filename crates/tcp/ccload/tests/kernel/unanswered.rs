//! A kernel that at times does not run a control's programs, and takes for their answer what it finds: the window
//! must not follow.

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use midspan_sys::socket::tcp_info;

use crate::path::EmulatedPath;
use crate::world::World;

/// Of bpf/unanswered.bpf.c, as it is compiled. Names are the whole kernel's, so one test at a time has it.
const CONTROL: &str = "ms_unanswered";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/unanswered.bpf.o"));

/// Losses by which Reno has a window of some ten packets; and late packets, since whose first one a loss is found by
/// the reordering timer.
const LOSSY: &str =
    "{ loss = { share = '2 %' } }, { late = { share = '2 %', by = '2 ms' } }, { delay = '10 ms' }";
const CLEAN: &str = "{ delay = '10 ms' }";
const SEED: u64 = 1;

/// After so many recoveries whose threshold the control was not asked for enough was seen.
const ENOUGH: u32 = 10;
/// Far more than Reno has in flight over such a path, and far less than there is to send.
const MOST: u32 = 200;

#[test]
fn a_window_does_not_follow_an_answer_that_was_not_given() {
    // For its check of what this user may do.
    let Some(_world) = World::new() else { return };
    let mut object = ObjectBuilder::default().open_memory(OBJECT).unwrap().load().unwrap();
    let mut control = object.maps_mut().find(|map| map.name() == "control").unwrap();
    let _registered = control.attach_struct_ops().unwrap();
    let path = EmulatedPath::new(CONTROL, SEED, CLEAN, LOSSY);
    let mut most = 0;
    path.send_until(|sender| {
        most = most.max(tcp_info(sender).unwrap().unacked);
        (unanswered(&object) > ENOUGH).then_some(())
    });
    assert!(most < MOST, "{most} packets in flight");
}

/// How often the control was not run.
fn unanswered(object: &Object) -> u32 {
    let map = object.maps().find(|map| map.name() == ".bss.unanswered").unwrap();
    let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    value.first_chunk().copied().map(u32::from_ne_bytes).unwrap()
}
