//! Threads that work until nobody wants them any more.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// A thread of its own. Dropping this has it end, and waits until it has.
#[derive(Debug)]
pub struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Begins `work`, which looks now and then whether it is to stop.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start(
        name: &str,
        work: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> io::Result<Background> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = Builder::new().name(name.into()).spawn(move || work(&stopped))?;
        Ok(Background { stop, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
