//! The kernel's `struct tcp_congestion_ops` as programs are compiled with it: generated from `bpf/congestion_ops.h` (`build.rs`)
//! under C's names, for its offsets.

use std::mem::offset_of;
use std::ops::Range;

pub(crate) use c::TCP_CONG_NON_RESTRICTED;

#[allow(dead_code, missing_docs, non_camel_case_types, unreachable_pub)]
mod c {
    include!(concat!(env!("OUT_DIR"), "/intf.rs"));
}

/// Where a control's name stands in it, NUL at the end.
pub(crate) const NAME: Range<usize> = {
    let at = offset_of!(c::tcp_congestion_ops, name);
    at..at + NAME_SIZE
};
/// The size of a name in any kernel (TCP_CA_NAME_MAX).
pub(crate) const NAME_SIZE: usize = size_of_field(|ops: &c::tcp_congestion_ops| &ops.name);
/// Where its flags stand.
pub(crate) const FLAGS: Range<usize> = {
    let at = offset_of!(c::tcp_congestion_ops, flags);
    at..at + size_of::<u32>()
};

const fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}
