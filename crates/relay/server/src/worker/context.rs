//! What a worker has in common with the others.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use midspan_interception::{Probes, Reinjector};
use midspan_legs::Counters;
use midspan_sockets::ListenAddress;
use midspan_split::{Admission, Descriptors, ServerPaths};
use midspan_steer::FirstWindow;
use midspan_sys::clock::Epoch;

use crate::flow_observer::FlowObserver;
use crate::settings::WatchedSettings;
use crate::workers::Workers;

/// What every worker is given.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) settings: Arc<WatchedSettings>,
    pub(crate) workers: Arc<Workers>,
    /// What each worker has counted.
    pub(crate) counters: Arc<[Counters]>,
    pub(crate) admission: Arc<Admission<IpAddr>>,
    /// Who is told of flows.
    pub(crate) observer: Arc<dyn FlowObserver>,
    pub(crate) descriptors: Descriptors,
    pub(crate) epoch: Epoch,
    /// Where the workers listen.
    pub(crate) place: ListenAddress,
    /// What sets initial windows; none if that is left to the kernel.
    pub(crate) first_window: Option<Arc<FirstWindow>>,
    /// What connections to servers may begin with.
    pub(crate) server_paths: Arc<ServerPaths<IpAddr>>,
    /// How held SYNs are sent on, as soon as any are held.
    pub(crate) reinjector: Arc<OnceLock<Reinjector>>,
    /// Where connections of proofs go.
    pub(crate) probes: Arc<Probes>,
}

impl Context {
    /// Flows that a worker has, or is about to.
    pub(super) fn flows(&self, worker: usize) -> u64 {
        let active = self.counters[worker].active.get();
        active + self.workers.handles[worker].inbox.len() as u64
    }
}
