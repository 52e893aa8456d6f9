//! What is decided of a worker's flows, carried out: with sockets, buffers and the steering program.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use midspan_config::Dscp;
use midspan_legs::{Beginning, Counters, FlowMetadata, LiveFlow, Means, Outbox, Pool};
use midspan_sockets as sockets;
use midspan_split::{
    Cause, ConnectAgain, Failure, FirstWindows, Host, Key, Leg, Legs, Over, Write,
};
use midspan_sys::ring::Outgoing;

use super::context::Context;
use super::watch;
use crate::settings::Settings;
use crate::slot::SlotGuard;
use crate::workers::WorkerHandle;

/// What one worker's flows are carried out with.
pub(crate) struct LiveHost {
    pub(super) context: Context,
    pub(super) index: usize,
    pub(super) epoll: OwnedFd,
    /// What watches the servers that are asked for held SYNs: flows need not be told from them at every event.
    pub(super) probed_servers: OwnedFd,
    pub(super) clients: Vec<IpNet>,
    /// The place among those that BPF steers to.
    pub(super) slot: Option<SlotGuard>,
    /// What connections to clients begin with.
    pub(super) windows: FirstWindows,
    pub(super) pool: Pool,
    pub(super) outbox: Outbox,
    /// As they were last seen to be.
    pub(super) settings: Arc<Settings>,
    /// When this round began.
    pub(super) now: Instant,
}

impl LiveHost {
    /// What others reach it by.
    pub(super) fn handle(&self) -> &WorkerHandle {
        &self.context.workers.handles[self.index]
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.context.counters[self.index]
    }

    /// Shows how much is lent.
    pub(super) fn count_buffers(&self) {
        self.counters().buffered.set(self.pool.used());
        self.counters().pipes.set(self.pool.pipes() as u64);
    }

    pub(super) fn connect_to(&self, server: SocketAddr, dscp: u8) -> io::Result<OwnedFd> {
        let socket = sockets::open(server, &self.settings.config.server_leg, false, dscp)?;
        sockets::connect(socket, server)
    }

    /// Marks what is sent to a client as its server has marked its answer, which BPF has seen.
    fn copy_marking(&self, flow: &LiveFlow) {
        let Some(slot) = &self.slot else { return };
        if self.settings.config.client_leg.dscp != Dscp::Copy {
            return;
        }
        let FlowMetadata { client, server, .. } = *flow.metadata();
        let marked = match slot.answer_dscp(client, server) {
            Ok(dscp) => sockets::mark(flow.fd(Leg::Client), client.ip(), dscp.unwrap_or(0)),
            Err(error) => Err(error),
        };
        if let Err(error) = marked {
            tracing::debug!(%error, "a server's marking is not copied");
        }
    }
}

impl Host for LiveHost {
    type Client = IpAddr;
    type Flow = LiveFlow;

    fn legs<'a>(&'a mut self, key: Key, flow: &'a mut LiveFlow) -> impl Legs + 'a {
        flow.legs(Means {
            key,
            pool: &mut self.pool,
            outbox: &mut self.outbox,
            counters: &self.context.counters[self.index],
            beginning: Beginning {
                now: self.context.epoch.time(self.now),
                windows: self.windows,
                program: self.context.first_window.as_deref(),
            },
        })
    }

    fn connected(&mut self, _: Key, flow: &mut LiveFlow) -> Result<(), Option<Failure>> {
        self.copy_marking(flow);
        self.begin_server_leg(flow);
        flow.connected(self.now)
    }

    fn connect_to_next(&mut self, key: Key, flow: &mut LiveFlow) -> bool {
        while let Some(server) = flow.next_server(self.now) {
            let connected = self.connect_to(server, flow.dscp).and_then(|fd| {
                watch::leg(&self.epoll, key, Leg::Server, &fd)?;
                Ok(fd)
            });
            if let Ok(fd) = connected {
                flow.replace_server_leg(fd, server);
                return true;
            }
        }
        false
    }

    fn connect_again(&mut self, key: Key, flow: &mut LiveFlow) -> ConnectAgain {
        let (server, fd) = (flow.metadata().server, flow.fd(Leg::Server));
        let connected = sockets::begin_connect(fd, server)
            .and_then(|()| watch::leg(&self.epoll, key, Leg::Server, fd));
        match connected {
            Ok(()) => ConnectAgain::Begun,
            Err(error) if sockets::is_former(&error) => ConnectAgain::InUse,
            Err(error) => {
                tracing::debug!(%server, %error, "the server leg could not connect");
                ConnectAgain::Failed
            }
        }
    }

    /// Has new connections to the server pass: they show whether its answers come by another way than through here.
    fn is_silent(&mut self, flow: &mut LiveFlow) {
        let Some(server) = sockets::address_of(flow.fd(Leg::Client)) else { return };
        let Some(slot) = &self.slot else { return };
        self.counters().doubts.add(1);
        if let Err(error) = slot.doubt(server.ip()) {
            tracing::debug!(%error, "a silent server's prefix could not be passed");
        }
    }

    fn mask_reads(&mut self, key: Key, flow: &mut LiveFlow, leg: Leg, masked: bool) -> bool {
        let done = watch::mask_reads(&self.epoll, key, leg, flow.fd(leg), masked);
        if let Err(error) = &done {
            tracing::error!(%leg, %error, "a leg cannot be watched");
        }
        done.is_ok()
    }

    fn free_buffers(&self) -> u64 {
        self.pool.free_buffers()
    }

    fn waits_for_buffer(&mut self) {
        self.counters().buffer_waits.add(1);
    }

    fn must_send(&self) -> bool {
        self.outbox.is_full()
    }

    fn send<'a>(&mut self, of: impl Fn(Key, Leg) -> Option<(&'a LiveFlow, bool)>) -> usize {
        let outgoing = |key, to| -> Option<Outgoing<'a>> {
            let (flow, more) = of(key, to)?;
            flow.outgoing(to, more)
        };
        self.outbox.send(outgoing)
    }

    fn sent_for(&self, index: usize) -> (Key, Leg) {
        self.outbox.sent_for(index)
    }

    fn sent(&mut self, index: usize, flow: &mut LiveFlow) -> Option<Write> {
        let (_, to) = self.outbox.sent_for(index);
        flow.sent_out(to, self.outbox.result(index), self.counters())
    }

    fn ended(&mut self, over: Over<'_, LiveHost>, cause: Option<Cause>) {
        let Over { flow: decided, host: mut flow, left, .. } = over;
        count_end(self.counters(), cause);
        // The next client of the server is told when that has answered.
        if let Some(Cause::ConnectFailed | Cause::ConnectTimedOut) = cause
            && let Some(slot) = &self.slot
        {
            slot.distrust(flow.metadata().server);
        }
        let totals = decided.totals();
        self.remember_server(&flow, totals.server.sent);
        self.context.observer.ended(self.index, &flow, totals, cause, self.now);
        flow.release(decided, &mut self.pool);
        self.counters().buffered.set(self.pool.used());
        self.counters().active.set(left as u64);
    }

    /// Says whether a client is full. Others may say so of the same client at the same time, and what is said last
    /// must be true: so who has said something sees whether it still is.
    fn say_full(&mut self, client: IpAddr) {
        let Some(slot) = &self.slot else { return };
        let mut said = None;
        loop {
            let full = self.context.admission.is_full(&client);
            if said == Some(full) {
                return;
            }
            said = Some(full);
            if let Err(error) = slot.set_full(client, full) {
                tracing::debug!(%error, "a full client's further connections are reset, not passed");
            }
        }
    }
}

fn count_end(counters: &Counters, cause: Option<Cause>) {
    let count = match cause {
        None => &counters.closed,
        Some(Cause::ConnectFailed) => &counters.connect_failed,
        Some(Cause::ConnectTimedOut) => &counters.connect_timed_out,
        Some(Cause::Reset(Leg::Client)) => &counters.reset_by_client,
        Some(Cause::Reset(Leg::Server)) => &counters.reset_by_server,
        Some(Cause::Idle) => &counters.idle,
        Some(Cause::HalfClosed) => &counters.half_closed,
        Some(Cause::Stopped) => &counters.stopped,
        Some(cause @ Cause::Inconsistent) => {
            tracing::error!("{cause}, which is a fault of the relay; both legs are reset");
            &counters.inconsistent
        }
    };
    count.add(1);
}
