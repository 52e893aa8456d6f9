//! How many flows there are of whom, against the limits, for all workers.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use midspan_split::{Ledger, Limits, Refusal};

/// The [`Ledger`] of all workers. Its lock is held for a look into a table, and never over a system call.
#[derive(Debug)]
pub(crate) struct Admission {
    ledger: Mutex<Ledger<IpAddr>>,
    /// The ledger's, for who does not need it to be of this very moment.
    flows: AtomicU32,
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Admission {
        Admission { ledger: Mutex::new(Ledger::new(limits)), flows: AtomicU32::new(0) }
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        self.lock().set_limits(limits);
    }

    /// Takes a new flow into account, and says whether its client may have no more now.
    pub(crate) fn admit(&self, client: IpAddr) -> Result<bool, Refusal> {
        let mut ledger = self.lock();
        ledger.admit(client)?;
        self.flows.store(ledger.flows(), Ordering::Relaxed);
        Ok(ledger.is_full(&client))
    }

    /// A flow is over. Says whether its client could have had no more until now.
    pub(crate) fn release(&self, client: IpAddr) -> bool {
        let mut ledger = self.lock();
        let was_full = ledger.is_full(&client);
        ledger.release(client);
        self.flows.store(ledger.flows(), Ordering::Relaxed);
        was_full
    }

    /// Whether a client has as many flows as it may.
    pub(crate) fn is_full(&self, client: IpAddr) -> bool {
        self.lock().is_full(&client)
    }

    /// All that have flows now.
    pub(crate) fn clients(&self) -> Vec<IpAddr> {
        self.lock().clients().copied().collect()
    }

    /// Flows open now, without the lock.
    pub(crate) fn flows(&self) -> u32 {
        self.flows.load(Ordering::Relaxed)
    }

    /// How many more flows there is room for.
    pub(crate) fn room(&self) -> u32 {
        self.lock().room()
    }

    fn lock(&self) -> MutexGuard<'_, Ledger<IpAddr>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
