//! What C and Rust share: generated from `table.h` and the headers under `algo/` (`build.rs`), under C's names. The only
//! unsafe code of this crate.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::from_mut;
use std::sync::{PoisonError, RwLock};

use crate::external::Call;

pub(crate) use c::{
    CC_CWND_MOST, CC_RTT_SMOOTHED, CC_SSTHRESH_INFINITE, FEEDBACK_ENTRIES, algorithm as Algorithm,
    cc as Cc, cc_config as Config, cc_event as event, cc_feedback as Feedback,
    cc_hystart as hystart, cc_kind as kind, cc_sample as Sample, cc_state as state,
    feedback_key as FeedbackKey, feedback_value as FeedbackValue, state as State,
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

/// Nothing that is valid.
pub(crate) const NO_FEEDBACK: Feedback =
    Feedback { bandwidth: 0, min_rtt_us: 0, fairness: 0, queue: 0, pace: 0 };

/// Before anything is told to an algorithm.
pub(crate) const NO_STATE: State = State { words: [0; c::STATE_WORDS as usize] };

// SAFETY: it is a constant of table.c, or of what `register` was told of, and its functions touch only what they are
// given.
unsafe impl Sync for Algorithm {}

/// Those of others that [`register`] was told of.
static OTHERS: RwLock<Vec<&Algorithm>> = RwLock::new(Vec::new());

/// All algorithms: first those of this crate.
pub(crate) fn algorithms() -> impl Iterator<Item = &'static Algorithm> {
    // Whoever finds one of ours needs no lock.
    let others =
        std::iter::once_with(|| OTHERS.read().unwrap_or_else(PoisonError::into_inner).clone());
    ours().chain(others.flatten())
}

/// Those of this crate.
pub(crate) fn ours() -> impl Iterator<Item = &'static Algorithm> {
    (0..).map_while(|index| {
        // SAFETY: null, or an element of a constant table whose type is the same.
        unsafe { c::midspan_cc_algorithm(index).as_ref() }
    })
}

/// Makes an algorithm known to [`Control::new`](crate::Control::new) that is not of this crate: one of the same name
/// that was told of before is forgotten, but by the connections that have it. Answers with its name, or none if that
/// is taken by one of this crate.
///
/// # Safety
/// `algorithm` is what `midspan_cc_algorithm` (table.h) answers with, compiled with the [`HEADERS`](crate::HEADERS) of
/// this very build, and stays where it is for as long as the process lives. Its functions touch only what they are
/// given.
pub unsafe fn register(algorithm: *const c_void) -> Option<&'static str> {
    // SAFETY: as the caller says.
    let algorithm: &'static Algorithm = unsafe { &*algorithm.cast::<Algorithm>() };
    if ours().any(|own| own.name() == algorithm.name()) {
        return None;
    }
    let mut others = OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    others.retain(|other| other.name() != algorithm.name());
    others.push(algorithm);
    Some(algorithm.name())
}

/// `CC_CONFIG_DEFAULT`.
pub(crate) fn default_config() -> Config {
    // SAFETY: it touches nothing.
    unsafe { c::midspan_cc_default_config() }
}

/// `feedback_at`.
pub(crate) fn feedback_at(value: &FeedbackValue, now_ns: u64) -> Feedback {
    // SAFETY: it reads the value, and no more.
    unsafe { c::midspan_cc_feedback_at(value, now_ns) }
}

/// As table.h says.
const NEVER_NULL: &str = "every algorithm has it";

impl Algorithm {
    pub(crate) fn name(&self) -> &'static str {
        // SAFETY: a string literal, of table.c or as `register` says.
        let name = unsafe { CStr::from_ptr(self.name) };
        name.to_str().expect("names are ASCII")
    }

    /// `enum cc_kind`.
    pub(crate) fn kind(&self) -> u32 {
        self.kind
    }

    /// Does what is asked; answers with the threshold of a reduction, or the window of an undo.
    pub(crate) fn call(&self, state: &mut State, cc: &mut Cc, call: Call<'_>) -> u32 {
        match call {
            Call::Established => self.init(state, cc),
            Call::Measure(sample) => self.measure(state, cc, &sample.into()),
            Call::Ack(sample) => self.advance(state, cc, &sample.into()),
            Call::Reduction(_) => return self.ssthresh(state, cc),
            Call::Reduced => self.event(state, cc, event::CC_REDUCED),
            Call::Undo => return self.undo(state, cc),
            Call::TransmitStart => self.event(state, cc, event::CC_TX_START),
            Call::Restart => self.event(state, cc, event::CC_CWND_RESTART),
        }
        0
    }

    fn init(&self, state: &mut State, cc: &mut Cc) {
        if let Some(init) = self.init {
            // SAFETY: the state has room for any, as host.h asserts.
            unsafe { init(from_mut(state).cast(), cc) }
        }
    }

    fn measure(&self, state: &mut State, cc: &mut Cc, sample: &Sample) {
        if let Some(measure) = self.measure {
            // SAFETY: as in `init`.
            unsafe { measure(from_mut(state).cast(), cc, sample) }
        }
    }

    /// `grow` or `control`, by the kind.
    fn advance(&self, state: &mut State, cc: &mut Cc, sample: &Sample) {
        let advance = self.advance.expect(NEVER_NULL);
        // SAFETY: as in `init`.
        unsafe { advance(from_mut(state).cast(), cc, sample) }
    }

    fn ssthresh(&self, state: &mut State, cc: &mut Cc) -> u32 {
        let ssthresh = self.ssthresh.expect(NEVER_NULL);
        // SAFETY: as in `init`.
        unsafe { ssthresh(from_mut(state).cast(), cc) }
    }

    fn undo(&self, state: &mut State, cc: &mut Cc) -> u32 {
        let undo = self.undo.expect(NEVER_NULL);
        // SAFETY: as in `init`.
        unsafe { undo(from_mut(state).cast(), cc) }
    }

    /// `event` is an `enum cc_event`.
    pub(crate) fn event(&self, state: &mut State, cc: &mut Cc, event: u32) {
        if let Some(on_event) = self.event {
            // SAFETY: as in `init`.
            unsafe { on_event(from_mut(state).cast(), cc, event) }
        }
    }

    /// None where the algorithm leaves all of it to the stack.
    pub(crate) fn send(&self, state: &mut State, cc: &mut Cc, feedback: &Feedback) -> Option<u32> {
        // SAFETY: as in `init`.
        self.send.map(|send| unsafe { send(from_mut(state).cast(), cc, feedback) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cube_root(a: u64) -> u32 {
        // SAFETY: it touches nothing.
        unsafe { c::midspan_cc_cube_root(a) }
    }

    fn mul_div(a: u64, b: u64, c: u64) -> u64 {
        // SAFETY: it touches nothing.
        unsafe { c::midspan_cc_mul_div(a, b, c) }
    }

    #[test]
    fn cube_roots() {
        for (cube, root) in
            [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (u64::MAX, 2_642_245)]
        {
            assert_eq!(cube_root(cube), root);
        }
    }

    proptest! {
        #[test]
        fn a_cube_root_is_the_greatest(a: u64) {
            let root = u128::from(cube_root(a));
            prop_assert!(root.pow(3) <= u128::from(a) && u128::from(a) < (root + 1).pow(3));
        }

        /// Exact while the product fits, and near it, never above what fits, when it does not.
        #[test]
        fn multiplied_and_divided(
            a: u64, b: u64, c in 1u64.., shift_a in 0u32..64, shift_b in 0u32..64, shift_c in 0u32..64,
        ) {
            let (a, b, c) = (a >> shift_a, b >> shift_b, (c >> shift_c).max(1));
            let got = u128::from(mul_div(a, b, c));
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
        assert_eq!(mul_div(1, 1, 0), u64::MAX);
    }
}
