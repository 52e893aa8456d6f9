//! The headers under `algo/`, as `table.c` compiles them. The only unsafe code of this crate.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};

/// `STATE_WORDS`.
pub(crate) const STATE_WORDS: usize = 64;
/// Room for the state of any algorithm; `table.c` asserts that it is enough.
pub(crate) type State = [u64; STATE_WORDS];

/// `struct cc_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    pub(crate) hystart: u32,
    pub(crate) cubic_constant_alpha: u32,
    pub(crate) cubic_counted: u32,
    pub(crate) cubic_fast_convergence: u32,
    pub(crate) me_initial_rate: u32,
}

/// `struct cc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cc {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    pub(crate) pacing_rate: u64,
    pub(crate) now_ns: u64,
    pub(crate) mss: u32,
    pub(crate) state: u32,
    pub(crate) cwnd_most: u32,
    pub(crate) in_flight: u32,
    pub(crate) delivered: u32,
    pub(crate) delivered_ce: u32,
    pub(crate) lost: u32,
    pub(crate) snd_una: u32,
    pub(crate) snd_nxt: u32,
    pub(crate) srtt_us: u32,
    pub(crate) min_rtt_us: u32,
    pub(crate) config: Config,
}

/// `struct cc_feedback`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Feedback {
    pub(crate) bandwidth: u64,
    pub(crate) min_rtt_us: u32,
    pub(crate) fairness: u32,
    pub(crate) queue: u32,
    pub(crate) pace: u32,
}

/// Nothing that is valid.
pub(crate) const NO_FEEDBACK: Feedback =
    Feedback { bandwidth: 0, min_rtt_us: 0, fairness: 0, queue: 0, pace: 0 };

/// `struct feedback_value`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeedbackValue {
    pub(crate) updated_ns: u64,
    pub(crate) bandwidth: u64,
    pub(crate) min_rtt_us: u32,
    pub(crate) fairness: u32,
    pub(crate) timeout_ms: u32,
    pub(crate) sequence: u32,
    pub(crate) queue: u32,
    pub(crate) pace: u32,
}

/// `struct cc_sample`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) acked: u32,
    pub(crate) advanced: u32,
    pub(crate) rtt_us: u32,
    pub(crate) prior_in_flight: u32,
    pub(crate) rate_delivered: u32,
    pub(crate) rate_interval_us: u32,
    pub(crate) prior_delivered: u32,
    pub(crate) tx_in_flight: u32,
    pub(crate) tx_lost: u32,
    pub(crate) ece: bool,
    pub(crate) wla: bool,
    pub(crate) app_limited: bool,
    pub(crate) cwnd_limited: bool,
    pub(crate) feedback: Feedback,
}

type OnSample = unsafe extern "C" fn(*mut State, *mut Cc, *const Sample);
type Threshold = unsafe extern "C" fn(*mut State, *mut Cc) -> u32;

/// `struct algorithm`.
#[repr(C)]
pub(crate) struct Algorithm {
    name: *const c_char,
    kind: u32,
    init: Option<unsafe extern "C" fn(*mut State, *mut Cc)>,
    measure: Option<OnSample>,
    advance: OnSample,
    ssthresh: Threshold,
    undo: Threshold,
    event: Option<unsafe extern "C" fn(*mut State, *mut Cc, u32)>,
    send: Option<unsafe extern "C" fn(*mut State, *mut Cc, *const Feedback) -> u32>,
}

// SAFETY: it is a constant of table.c, and its functions touch only what they are given.
unsafe impl Sync for Algorithm {}

#[repr(C)]
#[cfg(test)]
#[derive(Debug, PartialEq)]
pub(crate) struct Sizes {
    algorithm: u64,
    config: u64,
    cc: u64,
    sample: u64,
    state: u64,
    feedback_value: u64,
}

mod c {
    use super::{Algorithm, Config, Feedback, FeedbackValue};

    unsafe extern "C" {
        pub(super) safe fn midspan_cc_algorithm(index: u32) -> *const Algorithm;
        pub(super) safe fn midspan_cc_default_config() -> Config;
        pub(super) safe fn midspan_cc_feedback_at(
            value: &FeedbackValue,
            now_ns: u64,
            said: &mut Feedback,
        );
        #[cfg(test)]
        pub(super) safe fn midspan_cc_sizes() -> super::Sizes;
        #[cfg(test)]
        pub(super) safe fn midspan_cc_mul_div(a: u64, b: u64, c: u64) -> u64;
        #[cfg(test)]
        pub(super) safe fn midspan_cc_cube_root(a: u64) -> u32;
    }
}

/// All algorithms.
pub(crate) fn algorithms() -> impl Iterator<Item = &'static Algorithm> {
    (0..).map_while(|index| {
        // SAFETY: null, or an element of a constant table whose type is the same.
        unsafe { c::midspan_cc_algorithm(index).as_ref() }
    })
}

/// `CC_CONFIG_DEFAULT`.
pub(crate) fn default_config() -> Config {
    c::midspan_cc_default_config()
}

/// `feedback_at`.
pub(crate) fn feedback_at(value: &FeedbackValue, now_ns: u64) -> Feedback {
    let mut said = NO_FEEDBACK;
    c::midspan_cc_feedback_at(value, now_ns, &mut said);
    said
}

impl Algorithm {
    pub(crate) fn name(&self) -> &'static str {
        // SAFETY: a string literal of table.c.
        let name = unsafe { CStr::from_ptr(self.name) };
        name.to_str().expect("names are ASCII")
    }

    /// `enum cc_kind`.
    pub(crate) fn kind(&self) -> u32 {
        self.kind
    }

    pub(crate) fn init(&self, state: &mut State, cc: &mut Cc) {
        if let Some(init) = self.init {
            // SAFETY: a state of enough room and alignment, as table.c asserts, and a `struct cc`.
            unsafe { init(state, cc) }
        }
    }

    pub(crate) fn measure(&self, state: &mut State, cc: &mut Cc, sample: &Sample) {
        if let Some(measure) = self.measure {
            // SAFETY: as in `init`, and a `struct cc_sample`.
            unsafe { measure(state, cc, sample) }
        }
    }

    /// `grow` or `control`, by the kind.
    pub(crate) fn advance(&self, state: &mut State, cc: &mut Cc, sample: &Sample) {
        // SAFETY: as in `measure`.
        unsafe { (self.advance)(state, cc, sample) }
    }

    pub(crate) fn ssthresh(&self, state: &mut State, cc: &mut Cc) -> u32 {
        // SAFETY: as in `init`.
        unsafe { (self.ssthresh)(state, cc) }
    }

    pub(crate) fn undo(&self, state: &mut State, cc: &mut Cc) -> u32 {
        // SAFETY: as in `init`.
        unsafe { (self.undo)(state, cc) }
    }

    /// `event` is an `enum cc_event`.
    pub(crate) fn event(&self, state: &mut State, cc: &mut Cc, event: u32) {
        if let Some(on_event) = self.event {
            // SAFETY: as in `init`.
            unsafe { on_event(state, cc, event) }
        }
    }

    /// None where the algorithm leaves all of it to the stack.
    pub(crate) fn send(&self, state: &mut State, cc: &mut Cc, feedback: &Feedback) -> Option<u32> {
        // SAFETY: as in `init`, and a `struct cc_feedback`.
        self.send.map(|send| unsafe { send(state, cc, feedback) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_sides_agree_on_sizes() {
        let ours = Sizes {
            algorithm: size_of::<Algorithm>() as u64,
            config: size_of::<Config>() as u64,
            cc: size_of::<Cc>() as u64,
            sample: size_of::<Sample>() as u64,
            state: size_of::<State>() as u64,
            feedback_value: size_of::<FeedbackValue>() as u64,
        };
        assert_eq!(ours, c::midspan_cc_sizes());
    }

    #[test]
    fn cube_roots() {
        for (cube, root) in
            [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (u64::MAX, 2_642_245)]
        {
            assert_eq!(c::midspan_cc_cube_root(cube), root);
        }
    }

    proptest! {
        #[test]
        fn a_cube_root_is_the_greatest(a: u64) {
            let root = u128::from(c::midspan_cc_cube_root(a));
            prop_assert!(root.pow(3) <= u128::from(a) && u128::from(a) < (root + 1).pow(3));
        }

        /// Exact while the product fits, and near it, never above what fits, when it does not.
        #[test]
        fn multiplied_and_divided(
            a: u64, b: u64, c in 1u64.., shift_a in 0u32..64, shift_b in 0u32..64, shift_c in 0u32..64,
        ) {
            let (a, b, c) = (a >> shift_a, b >> shift_b, (c >> shift_c).max(1));
            let got = u128::from(c::midspan_cc_mul_div(a, b, c));
            let exact = u128::from(a) * u128::from(b);
            if exact <= u128::from(u64::MAX) {
                prop_assert_eq!(got, exact / u128::from(c));
            } else {
                let right = (exact / u128::from(c)).min(u128::from(u64::MAX));
                let slack = (u128::from(c) >> 28) + (right >> 28) + 8;
                prop_assert!(got.abs_diff(right) <= slack, "{} for {}", got, right);
            }
        }
    }

    #[test]
    fn by_zero_is_the_most() {
        assert_eq!(c::midspan_cc_mul_div(1, 1, 0), u64::MAX);
    }
}
