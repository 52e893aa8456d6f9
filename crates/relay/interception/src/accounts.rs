//! What passed here of connections, split and not, so that the two can be compared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use midspan_steer::{AccountsSource, FlowRecord};
use midspan_sys::clock::monotonic;
use midspan_threads::{Background, Privileges};

use crate::proof::is_probe;

/// How long records may wait, of which the kernel does not tell while they are few; and we, to see that
/// it is time to end.
const WAIT: Duration = Duration::from_millis(100);
/// How often idle connections are looked for.
const LOOK: Duration = Duration::from_secs(10);

/// Has the records of connections that have ended, or were `idle` for so long, taken; when it ends, all that are there.
///
/// # Errors
/// When the system has no thread left.
pub fn take_accounts(
    source: AccountsSource,
    idle: Duration,
    privileges: Privileges,
    take: impl Fn(&FlowRecord) + Send + 'static,
) -> std::io::Result<Background> {
    Background::start("accounts", move |stop| {
        privileges.lower();
        if let Err(error) = keep_accounts(source, idle, take, stop) {
            tracing::error!(%error, "connections are accounted for no more");
        }
    })
}

fn keep_accounts(
    source: AccountsSource,
    idle: Duration,
    take: impl Fn(&FlowRecord) + 'static,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let accounts = source.open(move |record| {
        if !is_probe(record.client.ip(), record.server) {
            take(&record);
        }
    })?;
    let mut look = Instant::now() + LOOK.min(idle);
    loop {
        let ends = stop.load(Ordering::Acquire);
        accounts.poll(if ends { Duration::ZERO } else { WAIT })?;
        if ends {
            return Ok(());
        }
        if Instant::now() >= look {
            accounts.give_up(monotonic(), idle)?;
            look = Instant::now() + LOOK.min(idle);
        }
    }
}
