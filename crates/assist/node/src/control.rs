//! The socket by which a running daemon or agent is asked: a line of JSON in, a line of JSON out.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use midspan_assist_proto::Rnti;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use crate::agent::AgentStatus;
use crate::daemon::DaemonStatus;

/// What may be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Everything that is known.
    State,
    /// From now on this RNTI of a source is this address.
    Map {
        /// The source's name.
        source: String,
        /// As the base station calls the UE.
        rnti: Rnti,
        /// As its senders do.
        ue: IpAddr,
    },
    /// This RNTI is nobody's any more.
    Unmap {
        /// The source's name.
        source: String,
        /// Which.
        rnti: Rnti,
    },
}

/// What is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// Why not, in a line.
    Refused {
        /// That line.
        error: String,
    },
    /// An order was carried out.
    Done {
        /// Whether there was anything to do.
        done: bool,
    },
    /// What a daemon knows and has done.
    Daemon(Box<DaemonStatus>),
    /// What an agent knows and has done.
    Agent(Box<AgentStatus>),
}

impl Answer {
    pub(crate) fn refused(why: &str) -> Answer {
        Answer::Refused { error: why.to_owned() }
    }
}

/// A question and where its answer goes.
pub(crate) type Question = (Request, oneshot::Sender<Answer>);

/// A listening socket, which its owner alone may connect to, and which is gone when this is.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
}

/// How long a question may be.
const LONGEST: u64 = 4_096;

impl Control {
    /// Listens, and hands questions on.
    ///
    /// # Errors
    /// When the socket cannot be made, or another program listens there.
    pub(crate) fn listen(path: &Path, questions: mpsc::Sender<Question>) -> io::Result<Control> {
        let in_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let old_socket = fs::symlink_metadata(path).is_ok_and(|old| old.file_type().is_socket());
        if old_socket && UnixStream::connect(path).is_err() {
            fs::remove_file(path).map_err(in_path)?;
        }
        let listener = UnixListener::bind(path).map_err(in_path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(in_path)?;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, questions.clone()));
            }
        });
        Ok(Control { path: path.to_owned() })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

async fn answer(stream: tokio::net::UnixStream, questions: mpsc::Sender<Question>) {
    let (read, mut write) = stream.into_split();
    let mut reader = tokio::io::BufReader::new(tokio::io::AsyncReadExt::take(read, LONGEST));
    let mut line = String::new();
    while reader.read_line(&mut line).await.is_ok_and(|count| count > 0) {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => {
                let (to, answer) = oneshot::channel();
                if questions.send((request, to)).await.is_err() {
                    return;
                }
                let Ok(answer) = answer.await else { return };
                answer
            }
            Err(error) => Answer::refused(&error.to_string()),
        };
        let Ok(answer) = serde_json::to_string(&answer) else { return };
        if write.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            return;
        }
        line.clear();
        reader.get_mut().set_limit(LONGEST);
    }
}

/// Asks the program that listens at `path`.
///
/// # Errors
/// When nothing listens there, or it refuses.
pub fn ask(path: &Path, request: &Request) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    writeln!(stream, "{}", serde_json::to_string(request)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match serde_json::from_str(&line)? {
        Answer::Refused { error } => Err(io::Error::other(error)),
        answer => Ok(answer),
    }
}
