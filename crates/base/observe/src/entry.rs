//! What the flow log says of a flow: when it is over, and when it begins if that is asked for.

use core::net::SocketAddr;
use std::borrow::Cow;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::identity::FlowId;
use crate::leg::LegStats;
use crate::naming::ClientName;

/// What the fields of an entry mean. It rises when one changes its meaning or goes; new ones may come
/// without.
pub const SCHEMA: u32 = 1;

/// One line of the flow log.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// A flow that the relay begins to split.
    Start(Start),
    /// A flow that the relay has split.
    Split(Split),
    /// A flow, split or not, as it was seen to pass.
    Path(PathRecord),
}

impl Entry {
    /// As JSON, without the end of the line.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            schema: u32,
            #[serde(flatten)]
            entry: &'a Entry,
        }
        let line = Line { schema: SCHEMA, entry: self };
        // Neither keys nor values are such that JSON could not hold them.
        serde_json::to_string(&line).unwrap_or_default()
    }
}

/// A flow that the relay begins to split. Its [`Split`] follows when it is over.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Start {
    /// Which connection it is.
    pub id: FlowId,
    /// When the relay took it.
    #[serde(serialize_with = "rfc3339")]
    pub start: SystemTime,
    /// Who opened it.
    pub client: ClientName,
    /// Whom it is to be passed on to. One of several that cannot be connected to gives way to the next.
    pub server: SocketAddr,
    /// The worker that has it.
    pub worker: usize,
}

/// A flow that the relay has split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Split {
    /// Which connection it is. What it has in common with [`PathRecord::id`] is the client's SYN.
    pub id: FlowId,
    /// When the relay took it.
    #[serde(serialize_with = "rfc3339")]
    pub start: SystemTime,
    /// When it was over.
    #[serde(serialize_with = "rfc3339")]
    pub end: SystemTime,
    /// Who opened it.
    pub client: ClientName,
    /// Whom it was passed on to.
    pub server: SocketAddr,
    /// How it ended: `closed`, or the name of what ended it.
    pub ended: Cow<'static, str>,
    /// The worker that had it.
    pub worker: usize,
    /// How long the server took to answer the connect. None if it never did.
    pub connect_us: Option<u64>,
    /// Whether the direction from the client, and that from the server, was ever promoted to
    /// splicing.
    pub spliced: [bool; 2],
    /// Bytes read from the client.
    pub bytes_from_client: u64,
    /// Bytes given to the server.
    pub bytes_to_server: u64,
    /// Bytes read from the server.
    pub bytes_from_server: u64,
    /// Bytes given to the client.
    pub bytes_to_client: u64,
    /// The connection of the client. None if the kernel would not say.
    pub client_leg: Option<LegStats>,
    /// The connection to the server. None if there was none.
    pub server_leg: Option<LegStats>,
}

/// A flow as the steering program saw it pass, whether it was split or not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PathRecord {
    /// Which connection it is.
    pub id: FlowId,
    /// When its opening was seen.
    #[serde(serialize_with = "rfc3339")]
    pub start: SystemTime,
    /// When it was over.
    #[serde(serialize_with = "rfc3339")]
    pub end: SystemTime,
    /// Who opened it.
    pub client: ClientName,
    /// Whom it was opened to.
    pub server: SocketAddr,
    /// Why it was split or was not: the label of the verdict.
    pub verdict: Cow<'static, str>,
    /// When the slot of the holdout began that it was drawn in. None if it was not, or drawn by itself.
    #[serde(serialize_with = "rfc3339_if_any")]
    pub slot: Option<SystemTime>,
    /// The share of the holdout that it was drawn from. None if it was not.
    pub holdout: Option<f64>,
    /// Why it was that much, where it is decided by what was learned: `unknown`, `fine`, `harm`, or `pinned` by an operator;
    /// else `told`. None if it was not drawn.
    pub because: Option<String>,
    /// How it ended: `finished`, `reset_by_client`, `reset_by_server`, `idle`, or `replaced` by another
    /// one with the same addresses and ports.
    pub ended: Cow<'static, str>,
    /// From the client to the server.
    pub up: Direction,
    /// From the server to the client.
    pub down: Direction,
}

/// One direction of a flow that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Direction {
    /// Bytes of payload, each counted once however often it was sent.
    pub bytes: u64,
    /// From the flow's start to its first payload. None if there was none.
    pub first_payload_us: Option<u64>,
    /// From the flow's start to its last payload.
    pub last_payload_us: Option<u64>,
    /// From the flow's start until who it is for first acknowledged payload. None if it has not.
    pub first_acknowledged_us: Option<u64>,
    /// From the flow's start until who it is for acknowledged the last payload: then it had all.
    pub last_acknowledged_us: Option<u64>,
}

/// RFC 3339, in UTC, to the microsecond.
fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let time = Timestamp::try_from(*time).unwrap_or(Timestamp::MAX);
    serializer.collect_str(&format_args!("{time:.6}"))
}

fn rfc3339_if_any<S: Serializer>(
    time: &Option<SystemTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => rfc3339(time, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::leg::Algorithm;
    use crate::naming::Naming;

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_000 + millis)
    }

    fn parsed(entry: &Entry) -> Value {
        let line = entry.to_json();
        assert!(!line.contains('\n'));
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn a_split_flow_is_a_line_of_documented_keys() {
        let leg = LegStats {
            congestion_control: Algorithm::new(*b"cubic\0\0\0\0\0\0\0\0\0\0\0"),
            rtt_us: 1500,
            ..LegStats::default()
        };
        let entry = Entry::Split(Split {
            id: FlowId(0xa1),
            start: at(0),
            end: at(2500),
            client: Naming::Plain.of("10.0.0.1:4000".parse().unwrap()),
            server: "[2001:db8::1]:443".parse().unwrap(),
            ended: "closed".into(),
            worker: 1,
            connect_us: Some(900),
            spliced: [false, true],
            bytes_from_client: 1,
            bytes_to_server: 1,
            bytes_from_server: 2,
            bytes_to_client: 2,
            client_leg: Some(leg),
            server_leg: None,
        });
        let line = parsed(&entry);
        assert_eq!(line["schema"], 1);
        assert_eq!(line["kind"], "split");
        assert_eq!(line["id"], "00000000000000a1");
        assert_eq!(line["start"], "2027-01-15T08:00:00.000000Z");
        assert_eq!(line["end"], "2027-01-15T08:00:02.500000Z");
        assert_eq!(line["client"], "10.0.0.1:4000");
        assert_eq!(line["server"], "[2001:db8::1]:443");
        assert_eq!(line["spliced"], json!([false, true]));
        assert_eq!(line["client_leg"]["congestion_control"], "cubic");
        assert_eq!(line["client_leg"]["min_rtt_us"], Value::Null);
        assert_eq!(line["server_leg"], Value::Null);
        let docs = include_str!("../../../../docs/reference/flow-log.md");
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        for key in keys(&line).into_iter().chain(keys(&line["client_leg"])) {
            assert!(docs.contains(&format!("`{key}`")), "docs/reference/flow-log.md lacks {key}");
        }
    }

    #[test]
    fn a_start_says_what_is_known_by_then() {
        let entry = Entry::Start(Start {
            id: FlowId(0xa1),
            start: at(0),
            client: ClientName::Pseudonym(7),
            server: "192.0.2.1:80".parse().unwrap(),
            worker: 1,
        });
        let line = json!({
            "schema": 1, "kind": "start", "id": "00000000000000a1", "start": "2027-01-15T08:00:00.000000Z",
            "client": "sub-0000000000000007", "server": "192.0.2.1:80", "worker": 1,
        });
        assert_eq!(parsed(&entry), line);
    }

    #[test]
    fn a_flow_that_passed_is_another_kind_of_line() {
        let entry = Entry::Path(PathRecord {
            id: FlowId(u64::MAX),
            start: at(0),
            end: at(1),
            client: ClientName::Pseudonym(7),
            server: "192.0.2.1:80".parse().unwrap(),
            verdict: "pass_holdout".into(),
            slot: Some(at(0)),
            holdout: Some(0.5),
            because: Some("unknown".into()),
            ended: "finished".into(),
            up: Direction {
                bytes: 100,
                first_payload_us: Some(10),
                last_payload_us: Some(20),
                first_acknowledged_us: Some(30),
                last_acknowledged_us: Some(40),
            },
            down: Direction::default(),
        });
        let line = parsed(&entry);
        assert_eq!((&line["kind"], &line["schema"]), (&json!("path"), &json!(1)));
        assert_eq!(line["client"], "sub-0000000000000007");
        assert_eq!(line["id"], "ffffffffffffffff");
        assert_eq!((&line["slot"], &line["holdout"]), (&line["start"], &json!(0.5)));
        assert_eq!(line["up"]["last_payload_us"], 20);
        assert_eq!(line["up"]["last_acknowledged_us"], 40);
        let docs = include_str!("../../../../docs/reference/flow-log.md");
        for key in line.as_object().unwrap().keys().chain(line["up"].as_object().unwrap().keys()) {
            assert!(docs.contains(&format!("`{key}`")), "docs/reference/flow-log.md lacks {key}");
        }
    }
}
