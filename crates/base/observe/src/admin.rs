//! What is asked of a running relay over its admin socket, and answered: a line of JSON each.

use std::collections::BTreeMap;

use core::net::SocketAddr;
use serde::{Deserialize, Serialize};

use crate::leg::LegStats;
use crate::naming::ClientName;

/// What may be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// How the relay is: [`Answer::Status`].
    Status,
    /// All counts: [`Answer::Counters`].
    Counters,
    /// Open flows: [`Answer::Flows`]. Rates are over the time since the same connection last asked, or
    /// over the flow's life where it did not know the flow yet.
    Flows {
        /// Which come first.
        #[serde(default)]
        order: Order,
        /// How many are answered, at most [`MOST_FLOWS`].
        #[serde(default = "default_most")]
        most: usize,
    },
    /// How often connections are split where, and why: [`Answer::Decisions`].
    Decisions,
    /// Take no new connections, and end with the last flow or when `drain_timeout` is over:
    /// [`Answer::Done`].
    Drain,
    /// Read the configuration again, and the flow log's file by its name: [`Answer::Done`].
    Reload,
    /// Set how much is logged, as `MIDSPAN_LOG` does: [`Answer::Done`].
    Log {
        /// Such as `info`, or `midspan_relay=debug`.
        level: String,
    },
}

/// Flows in one answer, at most.
pub const MOST_FLOWS: usize = 1000;

fn default_most() -> usize {
    20
}

/// Which flows come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Those that move most per second, both ways together.
    #[default]
    Rate,
    /// Those that have moved most.
    Bytes,
    /// The oldest.
    Age,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Status),
    /// To [`Request::Counters`].
    Counters(Counters),
    /// To [`Request::Flows`].
    Flows(Flows),
    /// To [`Request::Decisions`].
    Decisions(Decisions),
    /// It was done; in words.
    Done(String),
    /// It was not; why, in one line.
    Error(String),
}

/// How the relay is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The program's.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// `running`, `draining`, `replaced` or `stopping`.
    pub phase: String,
    /// Who steers connections to it.
    pub steered_by: String,
    /// How long it runs, in seconds.
    pub uptime_s: f64,
    /// For each worker, how long ago it said that it lives, in seconds.
    pub heartbeat_age_s: Vec<f64>,
    /// Flows open now.
    pub flows: u64,
    /// Flows that may be open.
    pub flow_limit: u32,
    /// Buffers and pipes in use now, in bytes.
    pub buffered: u64,
}

/// All counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// By name, since the relay started.
    pub counters: BTreeMap<String, u64>,
    /// What became of connections and packets, where BPF steers.
    pub verdicts: Option<BTreeMap<String, u64>>,
}

/// How often connections are split where, by what was learned.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Decisions {
    /// It is told only, and not done.
    pub is_dry_run: bool,
    /// For how long a subscriber keeps its lot, and after which decisions change, in seconds.
    pub slot_s: f64,
    /// What became of connections that ended.
    pub transfers: Transfers,
    /// From all to single places.
    pub decided: Vec<Decided>,
}

/// What became of connections that ended, to learn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Transfers {
    /// They were compared, or are when their slot is closed.
    pub counted: u64,
    /// So few of their size were seen that they only help to predict others.
    pub learned: u64,
    /// Their slot was closed; they had counted as running.
    pub late: u64,
    /// There were too many subscribers at one time.
    pub full: u64,
    /// They began in the first part of a slot.
    pub unsettled: u64,
    /// They carried nothing that was acknowledged.
    pub empty: u64,
    /// They could have had no other lot.
    pub useless: u64,
    /// They were not heard of, as too many waited.
    pub lost: u64,
}

/// What was decided of some of the connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// `all`, those to a `prefix` of servers, to one `service`, or those of one `place`: of a group of clients to a service.
    pub level: String,
    /// Which.
    pub of: String,
    /// The share of subscribers for whom they are split, 0 to 1.
    pub split: f64,
    /// Why: `unknown`, `fine`, `harm`, or `pinned` by an operator.
    pub because: String,
    /// Whether what was seen lately speaks against that.
    pub is_doubted: bool,
    /// How many times faster they are if split, as a best guess, of what the reason goes by.
    pub gain: Option<f64>,
    /// Where that is, but for one time in twenty, however often one looks.
    pub at_least: Option<f64>,
    /// Likewise.
    pub at_most: Option<f64>,
    /// How many subscribers' slots have told of it, as if half were split.
    pub weight: f64,
    /// How often the gain was found to have changed.
    pub changes: u32,
}

/// Open flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// How many there are, whatever was asked for.
    pub open: usize,
    /// Those that were asked for, in order.
    pub flows: Vec<Flow>,
}

/// An open flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The worker that has it.
    pub worker: usize,
    /// Who opened it.
    pub client: ClientName,
    /// Whom it is passed on to.
    pub server: SocketAddr,
    /// How long ago it was taken, in seconds.
    pub age_s: f64,
    /// Whether the server has answered yet.
    pub connected: bool,
    /// Bytes read from the client.
    pub bytes_up: u64,
    /// Bytes read from the server.
    pub bytes_down: u64,
    /// Bytes a second from the client.
    pub rate_up: f64,
    /// Bytes a second from the server.
    pub rate_down: f64,
    /// Bytes read and not yet given on, both ways together.
    pub buffered: u64,
    /// The connection of the client; none if the flow has ended meanwhile.
    pub client_leg: Option<LegStats>,
    /// The connection to the server.
    pub server_leg: Option<LegStats>,
    /// What NetAssist has said, where a leg's congestion control goes by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assisted: Option<Assisted>,
}

/// What a leg has to go by whose congestion control goes by what the network says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Assisted {
    /// How long ago the latest that was said was measured, in seconds; none if nothing was.
    pub age_s: Option<f64>,
    /// Whether it still holds. If not, the control does as its base control.
    pub holds: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_a_person_would_write() {
        let read = |text| serde_json::from_str::<Request>(text);
        assert_eq!(read(r#"{"ask":"status"}"#).unwrap(), Request::Status);
        assert_eq!(
            read(r#"{"ask":"flows","most":5}"#).unwrap(),
            Request::Flows { order: Order::Rate, most: 5 }
        );
        assert_eq!(
            read(r#"{"ask":"log","level":"debug"}"#).unwrap(),
            Request::Log { level: "debug".into() }
        );
        for wrong in [r#"{"ask":"dance"}"#, r#"{"ask":"flows","order":"size"}"#, "status", "{}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_survives_its_text() {
        let leg = LegStats { rtt_us: 5, min_rtt_us: None, ..LegStats::default() };
        let flow = Flow {
            worker: 0,
            client: ClientName::Pseudonym(1),
            server: "[2001:db8::1]:443".parse().unwrap(),
            age_s: 1.5,
            connected: true,
            bytes_up: 1,
            bytes_down: 2,
            rate_up: 0.5,
            rate_down: 1.0,
            buffered: 0,
            client_leg: Some(leg),
            server_leg: None,
            assisted: Some(Assisted { age_s: Some(0.25), holds: true }),
        };
        let answer = Answer::Flows(Flows { open: 1, flows: vec![flow] });
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
    }
}
