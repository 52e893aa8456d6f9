//! The admin socket: a line of JSON asked, a line answered.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use midspan_observe::admin::{Answer, Counters, Request, Status};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::roll::{Gone, Roll};
use crate::command::Command;
use crate::monitor::Monitor;
use crate::phase::Phase;
use crate::unix::{self, Name};

/// Connections at one time; others wait.
const CONNECTIONS: usize = 8;
/// How long a connection may say nothing, and an answer may take to be made and taken.
const SILENCE: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait when the system has no descriptor for a connection.
const REST: Duration = Duration::from_millis(100);
/// Bytes of a request, at most.
const REQUEST: u64 = 4096;

/// The socket, with its name in the file system, which goes with it.
#[derive(Debug)]
pub(super) struct AdminSocket {
    pub(super) listener: UnixListener,
    pub(super) name: Name,
}

impl AdminSocket {
    /// Takes the place of a socket that nobody answers at. Only this user may use it.
    pub(super) fn open(path: &Path) -> io::Result<AdminSocket> {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another program answers there"));
        }
        if let Some(folder) = path.parent()
            && !folder.as_os_str().is_empty()
            && !folder.exists()
        {
            fs::create_dir(folder)?;
        }
        // Under another name until nobody else may use it.
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        listener.set_nonblocking(true)?;
        Ok(AdminSocket { listener, name: Name::of(path)? })
    }
}

/// Answers for as long as it is polled.
pub(super) async fn serve(listener: tokio::net::UnixListener, monitor: Monitor) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let monitor = monitor.clone();
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, monitor).await {
                        tracing::debug!(%error, "an admin connection ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "an admin connection failed");
                sleep(REST).await;
            }
        }
    }
}

async fn converse(mut stream: tokio::net::UnixStream, monitor: Monitor) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let (read, mut write) = stream.split();
    if !unix::is_trusted(peer) {
        let answer =
            Answer::Error(format!("user {peer} may not ask: only root and the relay's own user"));
        return write.write_all(&line(&answer)).await;
    }
    let mut read = BufReader::new(read);
    let mut roll = Roll::default();
    loop {
        let mut request = Vec::new();
        let mut limited = (&mut read).take(REQUEST);
        let heard = limited.read_until(b'\n', &mut request);
        if timeout(SILENCE, heard).await.map_err(io::Error::from)?? == 0 {
            return Ok(());
        }
        let is_whole = request.ends_with(b"\n");
        let answer = match serde_json::from_slice(&request) {
            _ if !is_whole => {
                Answer::Error(format!("a request must be a line of at most {REQUEST} bytes"))
            }
            Ok(request) => match timeout(PATIENCE, answer(request, &monitor, &mut roll)).await {
                Ok(answer) => answer,
                Err(_) => Answer::Error("the relay does not answer".into()),
            },
            Err(error) => Answer::Error(format!("not understood: {error}")),
        };
        timeout(PATIENCE, write.write_all(&line(&answer))).await.map_err(io::Error::from)??;
        if !is_whole {
            return Ok(());
        }
    }
}

fn line(answer: &Answer) -> Vec<u8> {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    line
}

async fn answer(request: Request, monitor: &Monitor, roll: &mut Roll) -> Answer {
    match request {
        Request::Status => Answer::Status(status(monitor)),
        Request::Counters => Answer::Counters(counters(monitor)),
        Request::Flows { order, most } => match roll.call(monitor, order, most).await {
            Ok(flows) => Answer::Flows(flows),
            Err(Gone) => Answer::Error("a worker has ended".into()),
        },
        Request::Decisions => match &monitor.0.board {
            Some(board) => Answer::Decisions(board.decisions()),
            None => Answer::Error(
                "nothing is decided: there is no [decide] in the configuration".into(),
            ),
        },
        Request::Drain => command(monitor, Command::Drain).await,
        Request::Reload => command(monitor, Command::Reload).await,
        Request::Log { level } => match monitor.set_log_level(&level) {
            Ok(()) => Answer::Done(format!("logging `{level}`")),
            Err(said) => Answer::Error(said),
        },
    }
}

async fn command(
    monitor: &Monitor,
    command: fn(oneshot::Sender<Result<String, String>>) -> Command,
) -> Answer {
    let (reply, done) = oneshot::channel();
    monitor.0.commands.give(command(reply));
    match done.await {
        Ok(Ok(said)) => Answer::Done(said),
        Ok(Err(said)) => Answer::Error(said),
        Err(_) => Answer::Error("the relay is ending".into()),
    }
}

fn status(monitor: &Monitor) -> Status {
    let view = &monitor.0;
    let counts = monitor.snapshot();
    Status {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        phase: match view.workers.phase() {
            Phase::Run => "running",
            Phase::Drain => "draining",
            Phase::Retire => "replaced",
            Phase::Stop => "stopping",
        }
        .into(),
        steered_by: view.steered_by.into(),
        uptime_s: view.epoch.instant.elapsed().as_secs_f64(),
        heartbeat_age_s: view.workers.heartbeat_ages().map(|age| age.as_secs_f64()).collect(),
        flows: counts.active,
        flow_limit: monitor.flow_limit(),
        buffered: counts.buffered,
    }
}

fn counters(monitor: &Monitor) -> Counters {
    let named = |(name, count): (&str, u64)| (name.to_owned(), count);
    Counters {
        counters: monitor.snapshot().entries().map(named).collect(),
        verdicts: monitor.verdicts().map(|counts| {
            counts.entries().map(|(verdict, count)| named((verdict.label(), count))).collect()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_nobody_answers_at_is_replaced_and_another_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run").join("relay.sock");
        let socket = AdminSocket::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(AdminSocket::open(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let AdminSocket { listener, name } = socket;
        // As after a kill.
        drop(listener);
        let second = AdminSocket::open(&path).unwrap();
        // The first does not take away what is the second's.
        drop(name);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
