//! SYNs that are held, and acknowledgements that go again: the thread that takes them.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use midspan_steer::{HeldSource, HeldSyn};
use midspan_sys::conntrack::Conntrack;
use midspan_threads::Background;

use crate::reinjector::Reinjector;

/// How long the kernel may take to wake us, so that we see that it is time to end.
const WAIT: Duration = Duration::from_millis(100);

/// Takes held SYNs, and gives those on whose server clients wait to `give`; the others go on at once, and so do acknowledgements
/// that are to go again.
///
/// # Errors
/// When the system has no thread left.
pub fn take_held(
    source: HeldSource,
    reinjector: Arc<OnceLock<Reinjector>>,
    give: impl Fn(HeldSyn) + Send + 'static,
) -> io::Result<Background> {
    Background::start("held", move |stop| {
        let mut tracking = Tracking::new();
        let by = reinjector.clone();
        let hear = move |syn: HeldSyn| {
            if syn.consulted {
                tracking.forget(&syn);
            }
            if !syn.confirm {
                // If it fails the client sends it again.
                if let Some(Err(error)) = by.get().map(|it| it.inject(&syn)) {
                    tracing::debug!(%error, "a SYN could not be sent on");
                }
                return;
            }
            give(syn);
        };
        let again = move |due| {
            // If it fails the client learns what it is to by its own timers.
            if let Some(Err(error)) = reinjector.get().map(|it| it.send_again(&due)) {
                tracing::debug!(%error, "an acknowledgement could not be sent again");
            }
        };
        let take = || {
            let held = source.open(hear, again)?;
            while !stop.load(Ordering::Acquire) {
                held.poll(WAIT)?;
            }
            Ok::<_, io::Error>(())
        };
        if let Err(error) = take() {
            tracing::error!(%error, "held connections are passed");
        }
    })
}

/// What connection tracking has learned of a SYN that rules were shown. The server's leg has the same addresses and
/// ports, and sequence numbers of its own, which are out of window half of the time: it must be new.
struct Tracking(Option<Conntrack>);

impl Tracking {
    fn new() -> Tracking {
        Tracking(Conntrack::open().ok())
    }

    fn forget(&mut self, syn: &HeldSyn) {
        let Some(conntrack) = &self.0 else { return };
        match conntrack.forget(syn.client, syn.server) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(
                    %error,
                    "connection tracking does not forget what was shown to it: rules for `ct state invalid` may \
                     drop what is split"
                );
                self.0 = None;
            }
            _ => {}
        }
    }
}
