//! What is told of the relay to who looks at it from outside: metrics, the flow log, the admin socket.
//!
//! Workers count, and hand over what they know of a flow when it ends. All else is done by threads
//! of this module's own, which workers never wait for.

mod admin;
mod asked;
mod flow_log;
mod http;
mod leg;
mod measures;
mod metrics;
mod naming;
mod roll;

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use midspan_observe::{Direction, Entry, LegStats, Naming, Path, Split};
use midspan_split::{Cause, Leg, PerLeg};
use midspan_steer::{Course, FlowRecord};
use midspan_sys::clock::monotonic;
use tokio::sync::oneshot;

use self::admin::AdminSocket;
pub(crate) use self::asked::{Asked, Questions};
pub(crate) use self::flow_log::FlowLog;
pub(crate) use self::measures::Measures;
use crate::config::Config;
use crate::flow::{LiveFlow, Story};
use crate::privileges::Privileges;
use crate::shared::{Monitor, WorkerEnd};

/// Why nothing can be told as configured.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The key of the pseudonyms cannot be had.
    #[error("the key of the pseudonyms, {path}: {said}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        said: String,
    },
    /// Metrics cannot be served where they should be.
    #[error("cannot serve metrics at {at}: {error}")]
    Metrics {
        /// Where.
        at: std::net::SocketAddr,
        /// What the kernel says.
        error: io::Error,
    },
    /// The flow log cannot be opened.
    #[error("cannot open the flow log {path}: {error}")]
    FlowLog {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// The admin socket cannot be made.
    #[error("cannot take the admin socket {path}: {error}")]
    Admin {
        /// Its name.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// The system refused something else.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// What the workers tell what they know to.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) naming: Naming,
    pub(crate) flow_log: Option<FlowLog>,
    /// Whether what TCP knows of a flow at its end is wanted.
    measures: bool,
}

impl Observer {
    /// Opens what is written to. No thread runs yet.
    pub(crate) fn open(config: &Config, privileges: Privileges) -> Result<Observer, ObserveError> {
        let open = |log| FlowLog::open(log, privileges);
        Ok(Observer {
            naming: naming::of(&config.log)?,
            flow_log: config.flow_log.as_ref().map(open).transpose()?,
            measures: config.metrics.is_some(),
        })
    }

    /// Takes note of a flow that is over, before its sockets are closed. Without metrics and flow
    /// log this costs nothing.
    pub(crate) fn ended(
        &self,
        end: &WorkerEnd,
        worker: usize,
        flow: &LiveFlow,
        cause: Option<Cause>,
    ) {
        if !self.measures && self.flow_log.is_none() {
            return;
        }
        let ask = |leg| leg::stats(flow.fd(leg), self.flow_log.is_some());
        let legs = PerLeg { client: ask(Leg::Client), server: ask(Leg::Server) };
        self.note(end, worker, flow.story(), legs, flow.totals(), cause);
    }

    /// The same of a flow whose server leg could not even begin.
    pub(crate) fn not_started(&self, end: &WorkerEnd, worker: usize, story: &Story) {
        let cause = Some(Cause::ConnectFailed);
        self.note(end, worker, story, PerLeg::default(), PerLeg::default(), cause);
    }

    /// Takes note of a connection that the steering program has seen end.
    pub(crate) fn passed(&self, record: &FlowRecord, epoch: &Epoch) {
        let Some(flow_log) = &self.flow_log else { return };
        let since = |time: Duration| time.saturating_sub(record.start).as_micros() as u64;
        let direction = |course: &Course| Direction {
            bytes: course.bytes,
            first_payload_us: course.payload.map(|(first, _)| since(first)),
            last_payload_us: course.payload.map(|(_, last)| since(last)),
        };
        flow_log.add(Entry::Path(Path {
            start: epoch.wall_at(record.start),
            end: epoch.wall_at(record.end),
            client: self.naming.of(record.client),
            server: record.server,
            verdict: record.verdict.label().into(),
            ended: record.ending.label().into(),
            up: direction(&record.up),
            down: direction(&record.down),
        }));
    }

    fn note(
        &self,
        end: &WorkerEnd,
        worker: usize,
        story: &Story,
        legs: PerLeg<Option<LegStats>>,
        totals: PerLeg<Totals>,
        cause: Option<Cause>,
    ) {
        let lasted = story.start.elapsed();
        let connect = story.connected.map(|connected| connected - story.start);
        if self.measures {
            let measures = &end.measures;
            for leg in Leg::BOTH {
                if let Some(stats) = &legs[leg] {
                    measures.legs[leg].record(stats);
                }
            }
            if let Some(connect) = connect {
                measures.connect.record(connect.as_micros() as u64);
            }
            measures.duration.record(lasted.as_micros() as u64);
        }
        if let Some(flow_log) = &self.flow_log {
            let now = SystemTime::now();
            flow_log.add(Entry::Split(Split {
                start: now.checked_sub(lasted).unwrap_or(now),
                end: now,
                client: self.naming.of(story.client),
                server: story.server,
                ended: cause.map_or("closed", Cause::label).into(),
                worker,
                connect_us: connect.map(|connect| connect.as_micros() as u64),
                spliced: [story.spliced.client, story.spliced.server],
                bytes_from_client: totals.client.received,
                bytes_to_server: totals.server.sent,
                bytes_from_server: totals.server.received,
                bytes_to_client: totals.client.sent,
                client_leg: legs.client,
                server_leg: legs.server,
            }));
        }
    }
}

/// Bytes that have crossed a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// Where the relay is looked at from outside: places taken, nothing answered yet.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    metrics: Option<TcpListener>,
    admin: Option<AdminSocket>,
}

impl Windows {
    /// Takes the places that are configured.
    pub(crate) fn open(config: &Config) -> Result<Windows, ObserveError> {
        let mut windows = Windows::default();
        if let Some(metrics) = &config.metrics {
            let at = metrics.listen;
            let listener = TcpListener::bind(at).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            let listener = listener.map_err(|error| ObserveError::Metrics { at, error })?;
            windows.metrics = Some(listener);
        }
        if let Some(admin) = &config.admin {
            let path = admin.socket.clone();
            let socket = AdminSocket::open(&path);
            windows.admin = Some(socket.map_err(|error| ObserveError::Admin { path, error })?);
        }
        Ok(windows)
    }

    /// Begins to answer, in a thread of its own.
    pub(crate) fn serve(self, monitor: Monitor) -> Result<Served, ObserveError> {
        if self.metrics.is_none() && self.admin.is_none() {
            return Ok(Served(None));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let privileges = monitor.0.privileges;
        let (metrics, admin) = {
            // Where the listeners are to be watched.
            let _inside = runtime.enter();
            let metrics = self.metrics.map(tokio::net::TcpListener::from_std).transpose()?;
            let admin = self.admin.map(|socket| {
                tokio::net::UnixListener::from_std(socket.listener)
                    .map(|listener| (listener, socket.name))
            });
            (metrics, admin.transpose()?)
        };
        let serve = async move {
            if let Some(listener) = metrics {
                tokio::spawn(http::serve(listener, monitor.clone()));
            }
            let mut _name = None;
            if let Some((listener, name)) = admin {
                _name = Some(name);
                tokio::spawn(admin::serve(listener, monitor));
            }
            // Dropping the other end says it as well.
            let _ = stopped.await;
        };
        let thread = std::thread::Builder::new().name("relay-observe".into()).spawn(move || {
            privileges.lower();
            runtime.block_on(serve);
        })?;
        Ok(Served(Some((stop, thread))))
    }
}

/// Answers to who looks from outside. Dropping this ends it.
#[derive(Debug, Default)]
pub(crate) struct Served(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Drop for Served {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// When the relay started, by every clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch {
    pub(crate) instant: Instant,
    pub(crate) wall: SystemTime,
    /// By the clock that BPF programs read.
    monotonic: Duration,
}

impl Epoch {
    pub(crate) fn now() -> Epoch {
        Epoch { instant: Instant::now(), wall: SystemTime::now(), monotonic: monotonic() }
    }

    /// The wall clock's time of a time of that clock, which may be before the relay's start.
    fn wall_at(&self, monotonic: Duration) -> SystemTime {
        let wall = match monotonic.checked_sub(self.monotonic) {
            Some(after) => self.wall.checked_add(after),
            None => self.wall.checked_sub(self.monotonic - monotonic),
        };
        wall.unwrap_or(self.wall)
    }
}
