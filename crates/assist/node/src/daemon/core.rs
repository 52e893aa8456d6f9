//! The daemon's one task that decides: everything that happens comes here, and every datagram
//! leaves from here.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hdrhistogram::Histogram;
use midspan_assist_proto::{Policy, Registry, SessionId, SourceId, ToSender};
use midspan_units::Span;
use quinn::Endpoint;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::{Instant, MissedTickBehavior};

use super::session::{self, Opened};
use super::sources::Source;
use super::status::{DaemonStatus, SessionStatus};
use super::{Close, Error, Event, probe};
use crate::clock;
use crate::config::{DaemonConfig, load_policy};
use crate::control::{Answer, Control, Question, Request};
use crate::source::{SourceEvent, Sourced, ToDaemon};
use crate::tls::{Audit, Peer, modified};

/// Events and questions that may wait.
const WAITING: usize = 4_096;
/// Datagrams that are handed over, and events that are dealt with, before the connections get a turn.
const TURN: usize = 256;
/// Files are looked at and certificates verified again this often.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Each session's certificate is verified again once in so many rounds of that.
const VERIFY_ROUNDS: u64 = 30;
/// Connections whose peer has not shown its address to be its own, beyond which all must.
const UNPROVEN: usize = 64;

pub(super) struct Core<B: Sourced> {
    config: DaemonConfig,
    registry: Registry<B>,
    sources: Vec<Source>,
    sessions: BTreeMap<SessionId, Session>,
    policy: Policy,
    verifier: Arc<dyn ClientCertVerifier>,
    endpoint: Endpoint,
    audit: Audit,
    files: Vec<Option<SystemTime>>,
    events: mpsc::Receiver<Event>,
    source_events: mpsc::Receiver<(SourceId, SourceEvent<B>)>,
    source_events_to: ToDaemon<B>,
    questions: mpsc::Receiver<Question>,
    questions_to: mpsc::Sender<Question>,
    _control: Option<Control>,
    round: u64,
    refused: BTreeMap<&'static str, u64>,
    ended: BTreeMap<&'static str, u64>,
    reloads_failed: u64,
    unsent: u64,
    late: Histogram<u64>,
    network: Option<Span>,
}

struct Session {
    connection: quinn::Connection,
    peer: Peer,
    answers: mpsc::Sender<ToSender>,
}

impl<B: Sourced> Core<B> {
    /// Reads all files, binds all sockets, starts all sources.
    pub(super) fn prepare(config: DaemonConfig) -> Result<Self, Error> {
        let policy = load_policy(&config.policy)?;
        let audit = Audit::default();
        let identity = config.identity.load()?;
        let verifier = identity.verifier()?;
        let endpoint = Endpoint::server(identity.server(&audit)?, config.listen)
            .map_err(Error::system(format!("listening at {}", config.listen)))?;
        let (events_to, events) = mpsc::channel(WAITING);
        let (source_events_to, source_events) = mpsc::channel(WAITING);
        let (questions_to, questions) = mpsc::channel(16);
        let control = config.control.as_deref().map(|path| {
            Control::listen(path, questions_to.clone()).map_err(Error::system("control socket"))
        });
        let now = clock::now();
        let mut registry = Registry::new(config.estimator, config.limits);
        let mut sources = Vec::new();
        for (id, source) in (0..).map(SourceId).zip(&config.sources) {
            let fault = |said: String| Error::Source { name: source.name.clone(), said };
            let mut known = Source::new(id, source.clone(), now);
            known.read_map(&mut registry).map_err(fault)?;
            B::start(id, source, source_events_to.clone()).map_err(fault)?;
            sources.push(known);
        }
        if let Some(target) = config.probe {
            probe::start(target, events_to.clone())
                .map_err(Error::system(format!("probing {target}")))?;
        }
        tokio::spawn(accept(endpoint.clone(), config.sessions, events_to));
        let files = files(&config);
        let late = Histogram::new(3).map_err(|error| Error::System {
            what: "a histogram".into(),
            error: std::io::Error::other(error),
        })?;
        Ok(Core {
            registry,
            sources,
            sessions: BTreeMap::new(),
            policy,
            verifier,
            endpoint,
            audit,
            files,
            events,
            source_events,
            source_events_to,
            questions,
            questions_to,
            _control: control.transpose()?,
            round: 0,
            refused: BTreeMap::new(),
            ended: BTreeMap::new(),
            reloads_failed: 0,
            unsent: 0,
            late,
            network: None,
            config,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().unwrap_or(self.config.listen)
    }

    pub(super) fn source_events(&self) -> ToDaemon<B> {
        self.source_events_to.clone()
    }

    pub(super) fn questions(&self) -> mpsc::Sender<Question> {
        self.questions_to.clone()
    }

    /// Serves until `stop`.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()>) {
        tracing::info!(listen = %self.address(), basis = %B::KIND, "serving");
        tokio::pin!(stop);
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wait = self.registry.next_due().map(|due| due.since(clock::now()));
            let due = Instant::now() + wait.map_or(HOUSEKEEPING, Duration::from);
            tokio::select! {
                () = &mut stop => break,
                Some((source, event)) = self.source_events.recv() => self.handle(source, event),
                Some(event) = self.events.recv() => self.happened(event),
                Some((request, answer)) = self.questions.recv() => {
                    let _ = answer.send(self.answer(request));
                }
                _ = housekeeping.tick() => self.keep_house(),
                // A timer would take up to a millisecond for what is due already.
                () = std::future::ready(()), if wait == Some(Span::ZERO) => {}
                () = tokio::time::sleep_until(due), if wait.is_some() => {}
            }
            // Whoever comes or asks is not to wait until all is sent.
            for _ in 0..TURN {
                match self.events.try_recv() {
                    Ok(event) => self.happened(event),
                    Err(_) => break,
                }
            }
            // What came in at the same time, before anything is decided on half of it.
            for _ in 0..WAITING {
                match self.source_events.try_recv() {
                    Ok((source, event)) => self.handle(source, event),
                    Err(_) => break,
                }
            }
            self.send_what_is_due().await;
        }
        for (_, session) in std::mem::take(&mut self.sessions) {
            session.connection.close(Close::Stopped.code(), Close::Stopped.name().as_bytes());
        }
        self.endpoint.close(Close::Stopped.code(), Close::Stopped.name().as_bytes());
        let _ = tokio::time::timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }

    /// Sends no more than a turn's worth: the rest is due still.
    async fn send_what_is_due(&mut self) {
        for _ in 0..TURN {
            let Some(due) = self.registry.poll(clock::now()) else { return };
            let Some(session) = self.sessions.get(&due.session) else { continue };
            let _ = self.late.record(due.late.as_micros());
            // The connection keeps what it cannot send at once, and drops its oldest.
            if session.connection.send_datagram(Bytes::copy_from_slice(&due.datagram)).is_err() {
                self.unsent += 1;
            }
        }
        tokio::task::yield_now().await;
    }

    fn handle(&mut self, id: SourceId, event: SourceEvent<B>) {
        if let Some(source) = self.sources.get_mut(id.0 as usize) {
            source.handle(event, &mut self.registry, clock::now());
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Opened(id, opened) => self.open(id, *opened),
            Event::Message(id, message) => {
                if let Some(answer) = self.registry.handle(id, message, clock::now()) {
                    self.say(id, [answer]);
                }
            }
            Event::Closed(id, close) => self.forget(id, close),
            Event::Failed(failed) => *self.refused.entry(failed.name()).or_default() += 1,
            Event::Network(network) => {
                self.network = network;
                self.registry.set_network(network);
            }
        }
    }

    fn open(&mut self, id: SessionId, opened: Opened) {
        let Opened { connection, peer, answers } = opened;
        let names = peer.names.iter().map(String::as_str);
        let (refused, close) = match self.policy.rights(&peer.fingerprint, names) {
            Ok(rights) if self.registry.open_of(id, &peer.fingerprint, rights.clone()) => {
                tracing::info!(session = id.0, from = %connection.remote_address(), names = ?peer.names, "open");
                self.sessions.insert(id, Session { connection, peer, answers });
                return;
            }
            Ok(_) => ("too_many_of_peer", Close::TooMany),
            Err(_) => ("certificate_revoked", Close::Revoked),
        };
        *self.refused.entry(refused).or_default() += 1;
        connection.close(close.code(), close.name().as_bytes());
    }

    /// Says something to a session, and ends it if it does not listen.
    fn say(&mut self, id: SessionId, answers: impl IntoIterator<Item = ToSender>) {
        let Some(session) = self.sessions.get(&id) else { return };
        for answer in answers {
            match session.answers.try_send(answer) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => return self.end(id, Close::Deaf),
                // It is ending, and will say so itself.
                Err(TrySendError::Closed(_)) => return,
            }
        }
    }

    fn end(&mut self, id: SessionId, close: Close) {
        if let Some(session) = self.sessions.get(&id) {
            session.connection.close(close.code(), close.name().as_bytes());
            self.forget(id, close);
        }
    }

    fn forget(&mut self, id: SessionId, close: Close) {
        self.registry.close(id);
        if self.sessions.remove(&id).is_some() {
            tracing::info!(session = id.0, why = close.name(), "ended");
            *self.ended.entry(close.name()).or_default() += 1;
        }
    }

    fn keep_house(&mut self) {
        let now = clock::now();
        self.round += 1;
        for source in &mut self.sources {
            if let Err(said) = source.read_map(&mut self.registry) {
                tracing::warn!("{said}; the old one holds");
                self.reloads_failed += 1;
            }
            source.update(&mut self.registry, now);
        }
        self.registry.tidy(now);
        let files = files(&self.config);
        let changed = files != self.files;
        if changed {
            self.files = files;
            if let Err(error) = self.reload() {
                tracing::warn!("{error}; the old one holds");
                self.reloads_failed += 1;
            }
        }
        let turn = |id: &SessionId| changed || id.0 % VERIFY_ROUNDS == self.round % VERIFY_ROUNDS;
        let bad: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(id, _)| turn(id))
            .filter(|(_, session)| !session.peer.is_still_good(&*self.verifier))
            .map(|(id, _)| *id)
            .collect();
        for id in bad {
            self.end(id, Close::Revoked);
        }
        if self.round.is_multiple_of(60) {
            self.late.clear();
        }
    }

    /// Takes over what the files say now, for those that are connected too.
    fn reload(&mut self) -> Result<(), Error> {
        let policy = load_policy(&self.config.policy)?;
        let identity = self.config.identity.load()?;
        let verifier = identity.verifier()?;
        self.endpoint.set_server_config(Some(identity.server(&self.audit)?));
        self.verifier = verifier;
        self.policy = policy;
        tracing::info!("policy and certificates read again");
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            let peer = &self.sessions[&id].peer;
            let names = peer.names.iter().map(String::as_str);
            match self.policy.rights(&peer.fingerprint, names) {
                Ok(rights) => {
                    let refused = self.registry.set_rights(id, rights);
                    self.say(id, refused);
                }
                Err(_) => self.end(id, Close::Revoked),
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: Request) -> Answer {
        let by_name = |sources: &mut Vec<Source>, name: &str| {
            sources.iter().position(|source| source.name() == name)
        };
        match request {
            Request::State => Answer::Daemon(Box::new(self.status())),
            Request::Map { source, rnti, ue } => match by_name(&mut self.sources, &source) {
                Some(index) => {
                    self.sources[index].map(rnti, ue, &mut self.registry);
                    Answer::Done { done: true }
                }
                None => Answer::refused(&format!("no source `{source}`")),
            },
            Request::Unmap { source, rnti } => match by_name(&mut self.sources, &source) {
                Some(index) => {
                    Answer::Done { done: self.sources[index].unmap(rnti, &mut self.registry) }
                }
                None => Answer::refused(&format!("no source `{source}`")),
            },
        }
    }

    fn status(&self) -> DaemonStatus {
        let now = clock::now();
        let sessions = self.sessions.iter().map(|(id, session)| SessionStatus {
            id: id.0,
            address: session.connection.remote_address().to_string(),
            names: session.peer.names.clone(),
            fingerprint: session.peer.fingerprint.clone(),
            registrations: self.registry.registrations_of(*id),
        });
        DaemonStatus {
            basis: B::KIND,
            listen: self.address().to_string(),
            ues: self.registry.ues(now).collect(),
            sessions: sessions.collect(),
            sources: self.sources.iter().map(|source| source.status(now)).collect(),
            counts: self.registry.counts(),
            audit: self.audit.counts(),
            refused: named(&self.refused),
            ended: named(&self.ended),
            reloads_failed: self.reloads_failed,
            unsent: self.unsent,
            late_us: [
                self.late.value_at_quantile(0.5),
                self.late.value_at_quantile(0.99),
                self.late.max(),
            ],
            network_us: self.network.map(Span::as_micros),
        }
    }
}

fn named(counts: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// When the files that are read again were last changed.
fn files(config: &DaemonConfig) -> Vec<Option<SystemTime>> {
    let mut files = config.identity.changed();
    files.push(modified(&config.policy));
    files
}

/// Takes connections, as many as may be.
async fn accept(endpoint: Endpoint, most: usize, to: mpsc::Sender<Event>) {
    let open = Arc::new(AtomicUsize::new(0));
    let mut next = 0;
    while let Some(incoming) = endpoint.accept().await {
        let now_open = open.load(Ordering::Relaxed);
        if now_open >= most {
            incoming.refuse();
            let _ = to.send(Event::Failed(session::Failed::TooMany)).await;
            continue;
        }
        if now_open >= UNPROVEN && !incoming.remote_address_validated() && incoming.may_retry() {
            // An address that can answer is its own: nobody fills the table in others' names.
            let _ = incoming.retry();
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let id = SessionId(next);
        next += 1;
        let (to, open) = (to.clone(), open.clone());
        tokio::spawn(async move {
            session::serve(id, incoming, to).await;
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
