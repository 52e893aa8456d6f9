use midspan_sys::clock::monotonic;
use midspan_units::{Span, Time};

/// Now, on the kernel's monotonic clock: the one that BPF programs read too.
pub fn now() -> Time {
    Time::ZERO + Span::from(monotonic())
}
