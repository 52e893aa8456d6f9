//! Names of servers, resolved again and again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use midspan_forward as forward;
use midspan_threads::Privileges;

use crate::settings::WatchedSettings;

/// How often names are asked for. The resolver does not tell for how long its answers hold.
const PERIOD: Duration = Duration::from_secs(30);

/// Has the listeners' servers follow their names. Dropping this ends it; nobody waits for an answer that is
/// still to come.
#[derive(Debug)]
pub(super) struct Names {
    is_over: Arc<AtomicBool>,
    thread: Thread,
}

impl Names {
    pub(super) fn follow(
        settings: Arc<WatchedSettings>,
        privileges: Privileges,
    ) -> io::Result<Names> {
        let is_over = Arc::new(AtomicBool::new(false));
        let own = is_over.clone();
        let run = move || {
            privileges.lower();
            let mut due = Instant::now() + PERIOD;
            while !own.load(Ordering::Acquire) {
                let now = Instant::now();
                if now < due {
                    thread::park_timeout(due - now);
                    continue;
                }
                let settings = settings.get();
                forward::follow_names(&settings.config, &settings.forwards);
                due = Instant::now() + PERIOD;
            }
        };
        let thread = thread::Builder::new().name("relay-names".into()).spawn(run)?;
        Ok(Names { is_over, thread: thread.thread().clone() })
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
