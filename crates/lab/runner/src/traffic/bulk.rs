//! Flows that send as fast as TCP lets them, for a time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use midspan_sys::netns::Netns;
use midspan_sys::sockdiag::{self, TcpSocket};
use socket2::SockRef;

use super::{CHUNK, Ends, accept};

/// What to send.
#[derive(Debug, Clone)]
pub struct BulkPlan {
    /// Whether the client sends (upload) or the server (download).
    pub upload: bool,
    /// From the moment that all flows have started.
    pub time: Duration,
    /// The part of `time` at its start that is not measured.
    pub warmup: Duration,
    /// How long after the one before each flow connects and starts; if zero, all connect and then start.
    pub stagger: Duration,
    /// For each of the parallel connections its sender's congestion control, if it is not the host's.
    pub controls: Vec<Option<String>>,
    /// Bytes that the client sends first: the server answers with one, and then the flow begins.
    pub greeting: usize,
}

/// One look at all flows.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When.
    pub at: Instant,
    /// Application bytes read so far, by flow.
    pub received: Vec<u64>,
    /// The sending application's sockets, by flow.
    pub senders: Vec<TcpSocket>,
}

/// The two looks that a measurement is the difference of.
#[derive(Debug, Clone)]
pub struct BulkResult {
    /// After the warm-up.
    pub start: Snapshot,
    /// At the end.
    pub end: Snapshot,
}

impl BulkPlan {
    /// Runs the flows. `warm` is called at the end of the warm-up; `meanwhile` while they are measured,
    /// with what tells the bytes received so far, and must not outlast that; and `done` at the end of the
    /// measured time while all connections still stand.
    ///
    /// # Errors
    /// When a connection cannot be made or ends before its time.
    pub fn run(
        &self,
        ends: Ends<'_>,
        warm: impl FnOnce() -> Result<()>,
        meanwhile: impl FnOnce(&dyn Fn() -> u64),
        done: impl FnOnce() -> Result<()>,
    ) -> Result<BulkResult> {
        let listener = ends.listen().context("server application cannot listen")?;
        let sender_host = if self.upload { ends.client } else { ends.server };
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (mut flows, mut threads) = (Vec::with_capacity(self.controls.len()), Vec::new());
            let mut start = |flow: &Arc<Flow>| threads.extend(flow.start(scope, &over));
            let result = self.connect(ends, &listener, &mut flows, &mut start).and_then(|()| {
                if self.stagger.is_zero() {
                    flows.iter().for_each(start);
                }
                self.observe(&flows, sender_host, warm, meanwhile, done)
            });
            over.store(true, Ordering::Relaxed);
            for flow in &flows {
                flow.cut();
            }
            let ends = threads.into_iter().map(|thread| thread.join());
            let early = ends.filter_map(|end| end.expect("traffic threads do not panic").err());
            match early.into_iter().next() {
                Some(error) => Err(error).context("a flow ended before its time"),
                None => result,
            }
        })
    }

    /// Connects the flows one after the other, and starts each at once if they are staggered.
    fn connect(
        &self,
        ends: Ends<'_>,
        listener: &TcpListener,
        flows: &mut Vec<Arc<Flow>>,
        start: &mut impl FnMut(&Arc<Flow>),
    ) -> Result<()> {
        for (number, control) in self.controls.iter().enumerate() {
            if number > 0 {
                thread::sleep(self.stagger);
            }
            let client = ends
                .open()
                .and_then(|socket| ends.connect(socket))
                .with_context(|| format!("flow {number}: connect"))?;
            let server = accept(listener).with_context(|| format!("flow {number}: accept"))?;
            let flow = Arc::new(self.flow(client, server)?);
            if let Some(name) = control {
                SockRef::from(&flow.sender)
                    .set_tcp_congestion(name.as_bytes())
                    .with_context(|| format!("flow {number}: congestion control `{name}`"))?;
            }
            if !self.stagger.is_zero() {
                start(&flow);
            }
            flows.push(flow);
        }
        Ok(())
    }

    fn flow(&self, client: TcpStream, server: TcpStream) -> Result<Flow> {
        let (sender, receiver) = if self.upload { (client, server) } else { (server, client) };
        let endpoints = (sender.local_addr()?, sender.peer_addr()?);
        let (upload, greeting, received) = (self.upload, self.greeting, AtomicU64::new(0));
        Ok(Flow { upload, greeting, sender, receiver, endpoints, received })
    }

    fn observe(
        &self,
        flows: &[Arc<Flow>],
        sender_host: &Netns,
        warm: impl FnOnce() -> Result<()>,
        meanwhile: impl FnOnce(&dyn Fn() -> u64),
        done: impl FnOnce() -> Result<()>,
    ) -> Result<BulkResult> {
        let begin = Instant::now();
        thread::sleep(self.warmup);
        warm()?;
        let start = snapshot(flows, sender_host)?;
        meanwhile(&|| flows.iter().map(|flow| flow.received.load(Ordering::Relaxed)).sum());
        thread::sleep((begin + self.time).saturating_duration_since(Instant::now()));
        let end = snapshot(flows, sender_host)?;
        done()?;
        Ok(BulkResult { start, end })
    }
}

struct Flow {
    upload: bool,
    greeting: usize,
    sender: TcpStream,
    receiver: TcpStream,
    endpoints: (SocketAddr, SocketAddr),
    received: AtomicU64,
}

type Ended<'scope> = ScopedJoinHandle<'scope, io::Result<()>>;

impl Flow {
    fn start<'scope>(
        self: &Arc<Flow>,
        scope: &'scope thread::Scope<'scope, '_>,
        over: &'scope AtomicBool,
    ) -> [Ended<'scope>; 2] {
        let ended = move |result: io::Result<()>| match result {
            Err(_) if over.load(Ordering::Relaxed) => Ok(()),
            Ok(()) if !over.load(Ordering::Relaxed) => Err(io::ErrorKind::UnexpectedEof.into()),
            result => result,
        };
        let (sender, receiver) = (self.clone(), self.clone());
        [scope.spawn(move || ended(sender.send())), scope.spawn(move || ended(receiver.receive()))]
    }

    fn send(&self) -> io::Result<()> {
        match (self.greeting, self.upload) {
            (0, _) => {}
            (greeting, true) => {
                (&self.sender).write_all(&vec![0x5a; greeting])?;
                (&self.sender).read_exact(&mut [0])?;
            }
            (greeting, false) => (&self.sender).read_exact(&mut vec![0; greeting])?,
        }
        let chunk = vec![0x5a; CHUNK];
        loop {
            (&self.sender).write_all(&chunk)?;
        }
    }

    fn receive(&self) -> io::Result<()> {
        match (self.greeting, self.upload) {
            (0, _) => {}
            (greeting, true) => {
                (&self.receiver).read_exact(&mut vec![0; greeting])?;
                (&self.receiver).write_all(&[0x5a])?;
            }
            (greeting, false) => (&self.receiver).write_all(&vec![0x5a; greeting])?,
        }
        let mut chunk = vec![0; CHUNK];
        loop {
            match (&self.receiver).read(&mut chunk)? {
                0 => return Ok(()),
                bytes => self.received.fetch_add(bytes as u64, Ordering::Relaxed),
            };
        }
    }

    /// Ends both threads at once; what is still under way is of no interest.
    fn cut(&self) {
        for stream in [&self.sender, &self.receiver] {
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn snapshot(flows: &[Arc<Flow>], sender_host: &Netns) -> Result<Snapshot> {
    let at = Instant::now();
    let received = flows.iter().map(|flow| flow.received.load(Ordering::Relaxed)).collect();
    let sockets = sender_host.run(sockdiag::tcp_sockets)??;
    let mut senders = Vec::with_capacity(flows.len());
    for flow in flows {
        let is_mine = |socket: &&TcpSocket| (socket.local, socket.remote) == flow.endpoints;
        match sockets.iter().find(is_mine) {
            Some(socket) => senders.push(socket.clone()),
            None => bail!("the sender's connection is gone"),
        }
    }
    Ok(Snapshot { at, received, senders })
}
