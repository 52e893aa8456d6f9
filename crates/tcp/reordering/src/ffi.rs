//! What C and Rust share: generated from `host.h` and `algo/reordering.h` (`build.rs`), under C's names. The only unsafe
//! code of this crate.
#![allow(unsafe_code)]

#[cfg(test)]
pub(crate) use c::LATENESS_STEP;
pub(crate) use c::{
    HOLD_MOST, acknowledgement as Acknowledgement, holes as Holes, lateness as Lateness, telling,
};

#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod c {
    include!(concat!(env!("OUT_DIR"), "/intf.rs"));
}

/// `holes_came`.
pub(crate) fn came(
    holes: &mut Holes,
    lateness: &mut Lateness,
    network: &mut Lateness,
    (sequence, end): (u32, u32),
    highest: u32,
    stamp: u32,
    now_us: u32,
) {
    // SAFETY: it touches only what it is given.
    unsafe {
        c::midspan_reordering_came(holes, lateness, network, sequence, end, highest, stamp, now_us);
    }
}

/// `holes_tell`.
pub(crate) fn tell(
    holes: &mut Holes,
    (hold_us, is_known): (u32, bool),
    ack: &mut Acknowledgement,
    now_us: u32,
) -> u32 {
    // SAFETY: it touches only what it is given.
    unsafe { c::midspan_reordering_tell(holes, hold_us, is_known.into(), ack, now_us) }
}

/// `lateness_begin`.
pub(crate) fn begin(lateness: &mut Lateness, network: &Lateness) {
    // SAFETY: it touches only what it is given.
    unsafe { c::midspan_reordering_begin(lateness, network) }
}
