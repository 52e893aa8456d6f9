//! The confirmed handshake: servers that are asked before their clients are answered.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_steer::{HeldSource, HeldSyn};
use midspan_sys::conntrack::Conntrack;
use midspan_sys::netlink::Netlink;
use midspan_sys::tun;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::shared::{Shared, raise};
use crate::slab::{Key, Slab};

/// How long a server may take that its client has not asked again meanwhile. One that has is passed at
/// its first retransmission, a second after its SYN (RFC 6298, 2.1).
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a client may take to come after its server has answered, which is not told so until then: Linux keeps an
/// acknowledgement back for 200 ms. One that comes later has its server connected to anew; one that does not
/// exist leaves no connection at a server.
const ARRIVAL: Duration = Duration::from_millis(150);
/// Events taken from the kernel at a time.
const EVENTS: usize = 64;
/// How long the kernel may take to wake us, so that we see that it is time to end.
const WAIT: Duration = Duration::from_millis(100);

/// Bytes of an Ethernet header, and what it has beside the address that it is for.
const ETHERNET: usize = 14;
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// Who wants to connect to whom.
type Ends = (SocketAddr, SocketAddr);

/// The servers that one worker has asked. They are watched by an epoll of their own, so that flows need not
/// be told from them at every event.
#[derive(Debug)]
pub(crate) struct Confirmations {
    epoll: OwnedFd,
    asked: Slab<(HeldSyn, OwnedFd)>,
    by_ends: HashMap<Ends, Key>,
    /// When they are given up. All have the same time, so the first in is the first due.
    due: VecDeque<(Instant, Key)>,
    /// Connected, and waiting for their client.
    confirmed: HashMap<Ends, (Instant, OwnedFd)>,
    arrivals: VecDeque<(Instant, Ends)>,
}

/// What becomes of a held SYN.
#[derive(Debug)]
pub(crate) struct Released {
    pub(crate) syn: HeldSyn,
    pub(crate) confirmed: bool,
}

impl Confirmations {
    pub(crate) fn new() -> io::Result<Confirmations> {
        Ok(Confirmations {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            asked: Slab::new(),
            by_ends: HashMap::new(),
            due: VecDeque::new(),
            confirmed: HashMap::new(),
            arrivals: VecDeque::new(),
        })
    }

    /// Readable when there is something to [hear](Confirmations::hear).
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Servers that have been asked, and connections that wait for their client.
    pub(crate) fn len(&self) -> usize {
        self.asked.len() + self.confirmed.len()
    }

    /// When there is something to [give up](Confirmations::give_up).
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let asked = self.due.front().map(|&(due, _)| due);
        let arrival = self.arrivals.front().map(|&(due, _)| due);
        asked.into_iter().chain(arrival).min()
    }

    /// Takes in a held SYN, and the connect to its server that was begun, if it was. Gives the SYN back if
    /// there is nothing to wait for.
    pub(crate) fn begin(&mut self, syn: HeldSyn, connect: io::Result<OwnedFd>) -> Option<Released> {
        let Ok(socket) = connect else { return Some(Released { syn, confirmed: false }) };
        let ends = (syn.client, syn.server);
        let key = self.asked.insert_with(|_| Ok::<_, Errno>((syn, socket))).ok()?;
        let data = EventData::new_u64(key.to_bits());
        let (_, socket) = self.asked.get_mut(key)?;
        if epoll::add(&self.epoll, socket, data, EventFlags::OUT | EventFlags::ET).is_err() {
            let (syn, _) = self.asked.remove(key)?;
            return Some(Released { syn, confirmed: false });
        }
        self.by_ends.insert(ends, key);
        self.due.push_back((Instant::now() + PATIENCE, key));
        None
    }

    /// What becomes of a SYN that its client has sent again, if the server was asked for it before. A
    /// server that has not answered yet is asked no longer: the client shall ask it itself.
    pub(crate) fn come_again(&mut self, syn: &HeldSyn) -> Option<Released> {
        let ends = (syn.client, syn.server);
        if self.confirmed.contains_key(&ends) {
            return Some(Released { syn: syn.clone(), confirmed: true });
        }
        let (syn, socket) = self.by_ends.remove(&ends).and_then(|key| self.asked.remove(key))?;
        // The answer may be there, and we were not told yet.
        Some(match rustix::net::getpeername(&socket) {
            Ok(_) => self.settle(syn, socket),
            Err(_) => Released { syn, confirmed: false },
        })
    }

    /// The connection to the server of a client that has come.
    pub(crate) fn claim(&mut self, client: SocketAddr, server: SocketAddr) -> Option<OwnedFd> {
        if self.confirmed.is_empty() {
            return None;
        }
        let (_, socket) = self.confirmed.remove(&(client, server))?;
        // Now the server may know.
        if let Err(error) = sockopt::set_tcp_quickack(&socket, true) {
            tracing::debug!(%error, "a server is told late that its client is there");
        }
        Some(socket)
    }

    /// Gives what came of those that something was heard of.
    pub(crate) fn hear(&mut self) -> Vec<Released> {
        let mut events = Vec::with_capacity(EVENTS);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spare = rustix::buffer::spare_capacity(&mut events);
        // Nothing is lost if it fails: the kernel tells again.
        let _ = epoll::wait(&self.epoll, spare, Some(&at_once));
        let mut all = Vec::new();
        for epoll::Event { data, .. } in events {
            let Some((syn, socket)) = self.asked.remove(Key::from_bits(data.u64())) else {
                continue;
            };
            self.by_ends.remove(&(syn.client, syn.server));
            all.push(self.settle(syn, socket));
        }
        all
    }

    /// Has a connection wait for its client, if the server has answered and not refused.
    fn settle(&mut self, syn: HeldSyn, socket: OwnedFd) -> Released {
        let confirmed = matches!(sockopt::socket_error(&socket), Ok(Ok(())))
            && epoll::delete(&self.epoll, &socket).is_ok();
        if confirmed {
            let (due, ends) = (Instant::now() + ARRIVAL, (syn.client, syn.server));
            self.confirmed.insert(ends, (due, socket));
            self.arrivals.push_back((due, ends));
        }
        Released { syn, confirmed }
    }

    /// Gives up servers that have not answered in time, and clients that have not come.
    pub(crate) fn give_up(&mut self) -> Vec<Released> {
        let mut all = Vec::new();
        if self.due.is_empty() && self.arrivals.is_empty() {
            return all;
        }
        let now = Instant::now();
        while let Some(&(due, key)) = self.due.front() {
            let waits = self.asked.get_mut(key).is_some();
            if waits && now < due {
                break;
            }
            self.due.pop_front();
            if let Some((syn, _)) = self.asked.remove(key) {
                self.by_ends.remove(&(syn.client, syn.server));
                all.push(Released { syn, confirmed: false });
            }
        }
        while let Some((due, ends)) = self.arrivals.front() {
            let waits = self.confirmed.get(ends).is_some_and(|(at, _)| at == due);
            if waits && now < *due {
                break;
            }
            if waits {
                // Its server is reset.
                self.confirmed.remove(ends);
            }
            self.arrivals.pop_front();
        }
        all
    }
}

/// A link by which held SYNs are sent into this host. The steering program has them go on where they first came in.
#[derive(Debug)]
pub(crate) struct Injector {
    device: OwnedFd,
    pub(crate) interface: u32,
}

impl Injector {
    /// Makes the link in the calling thread's network namespace.
    pub(crate) fn new() -> io::Result<Injector> {
        let device = tun::open_device()
            .map_err(|error| io::Error::new(error.kind(), format!("/dev/net/tun: {error}")))?;
        // A relay that drains may still have its own.
        let name = format!("midheld{}", std::process::id());
        tun::make_interface(&device, &name, tun::Unit::Frame)?;
        let mut netlink = Netlink::open()?;
        let interface = netlink.index(&name)?;
        netlink.set_no_arp(interface)?;
        netlink.set_up(interface)?;
        Ok(Injector { device, interface })
    }

    pub(crate) fn inject(&self, syn: &HeldSyn) -> io::Result<()> {
        let mut frame = Vec::with_capacity(ETHERNET + syn.packet.len());
        frame.extend(syn.ethernet);
        frame.extend(NOBODY);
        frame.extend(if syn.client.is_ipv4() { IPV4 } else { IPV6 });
        frame.extend(&syn.packet);
        Ok(rustix::io::write(&self.device, &frame).map(drop)?)
    }
}

/// The thread that takes held SYNs, and gives them to the workers. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct HeldThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HeldThread {
    pub(crate) fn start(source: HeldSource, shared: Arc<Shared>) -> io::Result<HeldThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let run = move || {
            let mut tracking = Tracking::new();
            let give = move |syn: HeldSyn| {
                if syn.consulted {
                    tracking.forget(&syn);
                }
                if !syn.confirm {
                    // If it fails the client sends it again.
                    if let Some(Err(error)) = shared.injector.get().map(|it| it.inject(&syn)) {
                        tracing::debug!(%error, "a SYN could not be sent on");
                    }
                    return;
                }
                if let Some(end) = shared.ends.get(syn.worker) {
                    end.held.lock().unwrap_or_else(|broken| broken.into_inner()).push(syn);
                    raise(&end.wake);
                }
            };
            let take = || {
                let held = source.open(give)?;
                while !stopped.load(Ordering::Acquire) {
                    held.poll(WAIT)?;
                }
                Ok::<_, io::Error>(())
            };
            if let Err(error) = take() {
                tracing::error!(%error, "held connections are passed");
            }
        };
        let thread = std::thread::Builder::new().name("held".into()).spawn(run)?;
        Ok(HeldThread { stop, thread: Some(thread) })
    }
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

impl Drop for HeldThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
