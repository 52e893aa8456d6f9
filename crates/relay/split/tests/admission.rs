//! Admission by several threads at once.

#![allow(clippy::disallowed_methods, reason = "several workers at once")]

use std::sync::atomic::{AtomicU32, Ordering};

use midspan_split::{Admission, Limits};

/// Workers that all want what is left: neither limit is passed, and nothing is left of any of them.
#[test]
fn limits_hold_whoever_asks_at_the_same_time() {
    const LIMITS: Limits = Limits { flows: 6, flows_per_client: 2 };
    let admission = Admission::new(LIMITS);
    let open: Vec<AtomicU32> = (0..5).map(|_| AtomicU32::new(0)).collect();
    let worker = |mut number: usize| {
        for _ in 0..20_000 {
            // Any order does, if it is not the same for all.
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let client = (number >> 33) % open.len();
            if admission.admit(client).is_ok() {
                let own = open[client].fetch_add(1, Ordering::SeqCst) + 1;
                let all: u32 = open.iter().map(|one| one.load(Ordering::SeqCst)).sum();
                assert!(own <= LIMITS.flows_per_client && all <= LIMITS.flows);
                open[client].fetch_sub(1, Ordering::SeqCst);
                admission.release(client);
            }
        }
    };
    std::thread::scope(|scope| {
        (1..=4).for_each(|number| drop(scope.spawn(move || worker(number))));
    });
    assert_eq!((admission.flows(), admission.clients()), (0, vec![]));
}
