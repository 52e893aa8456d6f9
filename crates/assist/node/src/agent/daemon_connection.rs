//! The connection to one daemon: kept up, and what it says taken in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use midspan_assist_proto::{Frames, Inbox, Tally, ToDaemon, ToSender};
use midspan_units::Span;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Shared;
use crate::clock;
use crate::config::{AgentConfig, DaemonAddress};
use crate::tls::Audit;

/// How long a connection may take to come about.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After how long a registration that was refused is tried again: a policy may have changed.
const RETRY: Duration = Duration::from_secs(10);
/// How often it is seen whether certificates have changed.
const LOOK: Duration = Duration::from_secs(1);

/// What an agent wants to be told, and tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) ues: BTreeSet<IpAddr>,
    /// This UE has so many flows.
    pub(super) flows: Option<(IpAddr, u16)>,
}

/// How a connection to a daemon stands.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The daemon's address.
    pub daemon: String,
    /// Whether there is a connection.
    pub connected: bool,
    /// Connections so far.
    pub connections: u64,
    /// Why the last one ended, or did not come about.
    pub last_fault: Option<String>,
    /// UEs that it is asked about.
    pub registered: usize,
    /// UEs that it may not or will not tell about.
    pub refused: usize,
    /// Round trip to it without queues, in microseconds.
    pub rtt_us: u64,
    /// What became of its datagrams.
    pub tally: Tally,
}

/// The connection to one daemon.
pub(super) struct DaemonConnection {
    pub(super) index: usize,
    pub(super) config: Arc<AgentConfig>,
    pub(super) daemon: DaemonAddress,
    pub(super) shared: Shared,
    pub(super) wanted: watch::Receiver<Arc<Wanted>>,
    pub(super) audit: Audit,
}

impl DaemonConnection {
    /// Connects, again and again, as long as anybody wants anything.
    pub(super) async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = clock::now();
            let ended = match self.connect().await {
                Ok((endpoint, connection, send, receive)) => {
                    let ended = self.converse(&connection, send, receive).await;
                    connection.close(0u32.into(), b"left");
                    // The close must get out before its socket goes.
                    let _ = timeout(Duration::from_millis(100), endpoint.wait_idle()).await;
                    ended
                }
                Err(why) => why,
            };
            if self.wanted.has_changed().is_err() {
                return;
            }
            self.note(|status| {
                if status.last_fault.as_ref() != Some(&ended) {
                    tracing::warn!(daemon = status.daemon, "{ended}");
                }
                status.connected = false;
                status.last_fault = Some(ended);
                status.registered = 0;
            });
            if clock::now().since(began) > Span::from(LONGEST_PAUSE) {
                pause = FIRST_PAUSE;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Between this host and the edge. A UE's own way there is the one that minRTT is about.
    fn distance(&self, connection: &Connection) -> Span {
        match (self.config.distance, self.config.regulate) {
            (Some(distance), _) => distance,
            (None, Some(_)) => Span::ZERO,
            (None, None) => connection.min_rtt().into(),
        }
    }

    fn note(&self, change: impl FnOnce(&mut LinkStatus)) {
        change(&mut self.shared.lock().links[self.index]);
    }

    async fn connect(&self) -> Result<(Endpoint, Connection, SendStream, RecvStream), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let identity = self.config.identity.load().map_err(|error| text(&error))?;
        let config = identity.client(&self.audit).map_err(|error| text(&error))?;
        let any = match self.daemon.address.ip() {
            IpAddr::V4(_) => "0.0.0.0:0",
            IpAddr::V6(_) => "[::]:0",
        };
        let any = any.parse().map_err(|error: std::net::AddrParseError| text(&error))?;
        let endpoint = Endpoint::client(any).map_err(|error| text(&error))?;
        let name = self.daemon.certified_name();
        let connecting = endpoint
            .connect_with(config, self.daemon.address, &name)
            .map_err(|error| text(&error))?;
        let connection = timeout(PATIENCE, connecting)
            .await
            .map_err(|_| "no answer".to_owned())?
            .map_err(|error| text(&error))?;
        let (mut send, receive) = connection.open_bi().await.map_err(|error| text(&error))?;
        send.write_all(&ToDaemon::HELLO.encode()).await.map_err(|error| text(&error))?;
        Ok((endpoint, connection, send, receive))
    }

    /// Registers what is wanted and takes in what is told. Answers why it ended.
    async fn converse(
        &mut self,
        connection: &Connection,
        mut send: SendStream,
        mut receive: RecvStream,
    ) -> String {
        let oldest = self.config.timeout();
        let mut inbox = Inbox::new(self.config.basis, oldest, self.config.greatest);
        let mut registrations = Registrations::default();
        let (mut frames, mut buffer) = (Frames::default(), vec![0; 16 * 1024]);
        let files = self.config.identity.changed();
        let mut look = tokio::time::interval(LOOK);
        let mut retry = tokio::time::interval(RETRY);
        let mut welcome = false;
        self.wanted.mark_changed();
        loop {
            tokio::select! {
                datagram = connection.read_datagram() => match datagram {
                    Ok(datagram) => {
                        if let Ok(update) = inbox.accept(&datagram, clock::now()) {
                            let distance = self.distance(connection);
                            self.shared.lock().update(update, distance);
                        }
                    }
                    Err(error) => return error.to_string(),
                },
                read = receive.read(&mut buffer) => {
                    let count = match read {
                        Ok(Some(count)) => count,
                        Ok(None) => return "the daemon ended the conversation".into(),
                        Err(_) => return connection.closed().await.to_string(),
                    };
                    let mut answers = Vec::new();
                    frames.feed(&buffer[..count], |frame| answers.push(ToSender::parse(frame)));
                    for answer in answers {
                        match answer {
                            Ok(ToSender::Welcome { basis, .. }) if basis != self.config.basis => {
                                return format!(
                                    "its feedback is {basis}, and {} was wanted",
                                    self.config.basis
                                );
                            }
                            Ok(ToSender::Welcome { .. }) => {
                                welcome = true;
                                tracing::info!(daemon = %self.daemon.address, "connected");
                                self.note(|status| {
                                    status.connected = true;
                                    status.connections += 1;
                                    status.last_fault = None;
                                });
                            }
                            Ok(ToSender::Registered { .. }) => {}
                            Ok(ToSender::Refused { registration, .. }) => {
                                if let Some(ue) = inbox.withdraw(registration) {
                                    registrations.refused.insert(ue, registration);
                                    self.shared.lock().forget(ue);
                                }
                            }
                            Err(error) => return format!("what it says makes no sense: {error}"),
                        }
                    }
                }
                changed = self.wanted.changed(), if welcome => {
                    if changed.is_err() {
                        return "stopped".into();
                    }
                    let wanted = self.wanted.borrow_and_update().clone();
                    let messages = registrations.messages(&wanted, self.config.period, &mut inbox);
                    if send.write_all(&messages).await.is_err() {
                        return connection.closed().await.to_string();
                    }
                }
                _ = retry.tick() => {
                    registrations.refused.clear();
                    self.wanted.mark_changed();
                }
                _ = look.tick() => {
                    if self.config.identity.changed() != files {
                        return "the certificate changed".into();
                    }
                    let tally = inbox.tally();
                    let rtt_us = Span::from(connection.min_rtt()).as_micros();
                    let (registered, refused) = (registrations.registered.len(), registrations.refused.len());
                    self.note(|status| {
                        status.rtt_us = rtt_us;
                        status.registered = registered;
                        status.refused = refused;
                        status.tally = tally;
                    });
                }
            }
        }
    }
}

/// What a daemon has been asked and told.
#[derive(Debug, Default)]
struct Registrations {
    registered: BTreeMap<IpAddr, u32>,
    refused: BTreeMap<IpAddr, u32>,
    flows: Option<(IpAddr, u16)>,
    next: u32,
}

impl Registrations {
    /// What to say so that what is asked is what is wanted.
    fn messages(&mut self, wanted: &Wanted, period: Span, inbox: &mut Inbox) -> Vec<u8> {
        let mut messages = Vec::new();
        let mut say = |message: ToDaemon| messages.extend(message.encode());
        self.registered.retain(|ue, registration| {
            let keep = wanted.ues.contains(ue) && inbox.is_registered(*registration);
            if !keep && inbox.withdraw(*registration).is_some() {
                say(ToDaemon::Withdraw { registration: *registration });
            }
            keep
        });
        for ue in &wanted.ues {
            if !self.registered.contains_key(ue) && !self.refused.contains_key(ue) {
                let registration = self.next;
                self.next = self.next.wrapping_add(1);
                inbox.register(registration, *ue);
                self.registered.insert(*ue, registration);
                say(ToDaemon::Register { registration, ue: *ue, period });
            }
        }
        if self.flows != wanted.flows {
            self.flows = wanted.flows;
            if let Some((ue, flows)) = wanted.flows {
                say(ToDaemon::Flows { ue, flows });
            }
        }
        messages
    }
}
