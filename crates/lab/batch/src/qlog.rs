//! What simulated senders do, as files of qlog: a JSON text sequence (RFC 7464) for each end of a leg that sends, after
//! draft-ietf-quic-qlog-main-schema-14. There is no standard schema of events for TCP: `docs/reference/results.md` has this
//! one, whose words are those of draft-ietf-quic-qlog-quic-events where both mean the same.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use midspan_scenario::Scenario;
use midspan_sim::{End, Told};
use midspan_tcp::{CongestionState, Event, LossDetection, Proof, SenderMetrics, Timer};
use midspan_units::{Rate, Span, Time};
use serde::Serialize;
use serde_json::json;

use crate::run_folder::{run_folder, run_title};
use crate::sweep::PlannedRun;

/// The schema of the events, which has their namespace in it. Nobody can own the domain (RFC 2606), and nothing is to be
/// had there.
pub const SCHEMA: &str = "https://midspan.invalid/112026/midspan-tcp";

/// What to keep of the events of a sweep's runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qlogs {
    /// Where to: each run has a folder in it, with a file for each end of a leg that sends.
    pub folder: PathBuf,
}

impl Qlogs {
    /// Why of this scenario there are none.
    pub fn unfit(scenario: &Scenario) -> Option<&'static str> {
        let mut cells = scenario.cells().iter();
        cells
            .any(|cell| cell.spec.cells.is_some())
            .then_some("of the users of cells no sender is told of alone; leave it out")
    }
}

/// The files of a run.
pub(crate) struct QlogFiles {
    folder: PathBuf,
    title: String,
    ends: BTreeMap<PathBuf, EndFile>,
    /// After what could not be written there is no more.
    written: io::Result<()>,
}

/// The file of an end.
enum EndFile {
    /// Nothing was sent yet, and perhaps never will be.
    Silent(Vec<(Time, Event)>),
    Begun(QlogWriter),
}

impl QlogFiles {
    pub(crate) fn new(qlogs: &Qlogs, scenario: &Scenario, run: &PlannedRun<'_>) -> QlogFiles {
        QlogFiles {
            folder: run_folder(&qlogs.folder, scenario, run),
            title: run_title(scenario, run),
            ends: BTreeMap::new(),
            written: Ok(()),
        }
    }

    pub(crate) fn take(&mut self, end: &End, told: Told<'_>) {
        if self.written.is_ok() {
            self.written = self.write(end, told);
        }
    }

    /// Whether everything is written.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.written, Ok(()))?;
        self.ends.values_mut().try_for_each(|file| match file {
            EndFile::Begun(writer) => writer.flush(),
            EndFile::Silent(_) => Ok(()),
        })
    }

    fn write(&mut self, end: &End, told: Told<'_>) -> io::Result<()> {
        let path = self.folder.join(format!("{}-{}-{}.sqlog", end.host, end.leg, end.number));
        let (at, event) = match told {
            Told::Event(at, event) => (at, event),
            Told::Over => {
                return match self.ends.remove(&path) {
                    Some(EndFile::Begun(mut writer)) => writer.flush(),
                    Some(EndFile::Silent(_)) | None => Ok(()),
                };
            }
        };
        let file = self.ends.entry(path.clone()).or_insert(EndFile::Silent(Vec::new()));
        if let EndFile::Silent(before) = file
            && matches!(event, Event::Sent { .. })
        {
            let mut writer = QlogWriter::create(&path, &self.title, end)?;
            before.drain(..).try_for_each(|(at, event)| writer.add(at, &event))?;
            *file = EndFile::Begun(writer);
        }
        match file {
            EndFile::Silent(events) => {
                events.push((at, event.clone()));
                Ok(())
            }
            EndFile::Begun(writer) => writer.add(at, event),
        }
    }
}

/// A file that events of one sender are written to.
struct QlogWriter {
    file: BufWriter<File>,
    congestion_control: String,
    /// Bytes in a full packet.
    mss: u64,
    congestion: Option<CongestionState>,
    /// As told last.
    metrics: Option<SenderMetrics>,
}

impl QlogWriter {
    /// Begins a file, in a folder that is made if it is missing.
    fn create(path: &Path, title: &str, end: &End) -> io::Result<QlogWriter> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut writer = QlogWriter {
            file: BufWriter::new(File::create(path)?),
            congestion_control: end.congestion_control.clone(),
            mss: 0,
            congestion: None,
            metrics: None,
        };
        let End { host, leg, number, .. } = end;
        writer.record(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": format!("{title}, {leg} leg {number} at {host}"),
            "description": concat!("midspan ", env!("CARGO_PKG_VERSION")),
            "trace": {
                "vantage_point": {
                    "name": host,
                    "type": if end.initiates { "client" } else { "server" },
                },
                "event_schemas": [SCHEMA],
                "common_fields": {
                    "time_format": "relative_to_epoch",
                    "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
                },
            },
        }))?;
        Ok(writer)
    }

    fn add(&mut self, at: Time, event: &Event) -> io::Result<()> {
        let (name, data) = self.describe(event);
        let time = millis(at.since(Time::ZERO));
        self.record(&Line { time, name, data })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// RFC 7464, section 2.2.
    fn record(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.file.write_all(b"\x1e")?;
        serde_json::to_writer(&mut self.file, value)?;
        self.file.write_all(b"\n")
    }

    fn describe(&mut self, event: &Event) -> (&'static str, Data) {
        match *event {
            Event::Established { mss, sack, ecn } => {
                self.mss = u64::from(mss);
                let congestion_control = self.congestion_control.clone();
                (
                    "midspan-tcp:parameters_set",
                    Data::Parameters { congestion_control, mss, sack, ecn },
                )
            }
            Event::Sent { range, retransmission, probe } => {
                let trigger = probe.then_some("tail_loss_probe");
                ("midspan-tcp:packet_sent", Data::Sent { range, retransmission, trigger })
            }
            Event::Received { ack, ref sack, window, ece } => {
                let sack = sack.clone();
                ("midspan-tcp:packet_received", Data::Received { ack, window, sack, ece })
            }
            Event::Lost { range, by } => {
                let trigger = match by {
                    LossDetection::Rack => "rack",
                    LossDetection::DuplicateAcks => "duplicate_acks",
                    LossDetection::Timeout => "retransmission_timeout",
                };
                ("midspan-tcp:packet_lost", Data::Lost { range, trigger })
            }
            Event::Spurious { by, forgiven } => {
                let trigger = match by {
                    Proof::Timestamps => "timestamps",
                    Proof::Dsack => "dsack",
                    Proof::Frto => "frto",
                };
                ("midspan-tcp:spurious_loss", Data::Spurious { trigger, forgiven })
            }
            Event::TimerSet(timer, after) => timer_updated(timer, "set", Some(millis(after))),
            Event::TimerExpired(timer) => timer_updated(timer, "expired", None),
            Event::TimerCancelled(timer) => timer_updated(timer, "cancelled", None),
            Event::Congestion(new) => {
                let old = self.congestion.replace(new).map(congestion_name);
                let new = congestion_name(new);
                ("midspan-tcp:congestion_state_updated", Data::Congestion { old, new })
            }
            Event::Metrics(now) => {
                let before = self.metrics.replace(now);
                ("midspan-tcp:metrics_updated", Data::Metrics(Metrics::new(before, now, self.mss)))
            }
        }
    }
}

/// An event as main schema, section 7, has it.
#[derive(Serialize)]
struct Line {
    time: f64,
    name: &'static str,
    data: Data,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data {
    Parameters {
        congestion_control: String,
        mss: u32,
        sack: bool,
        ecn: bool,
    },
    Sent {
        range: (u64, u64),
        #[serde(skip_serializing_if = "is_false")]
        retransmission: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        trigger: Option<&'static str>,
    },
    Received {
        ack: u64,
        window: u64,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        sack: Vec<(u64, u64)>,
        #[serde(skip_serializing_if = "is_false")]
        ece: bool,
    },
    Lost {
        range: (u64, u64),
        trigger: &'static str,
    },
    Spurious {
        trigger: &'static str,
        #[serde(skip_serializing_if = "is_false")]
        forgiven: bool,
    },
    Timer {
        timer_type: &'static str,
        event_type: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        delta: Option<f64>,
    },
    Congestion {
        #[serde(skip_serializing_if = "Option::is_none")]
        old: Option<&'static str>,
        new: &'static str,
    },
    Metrics(Metrics),
}

/// What has changed.
#[derive(Serialize)]
struct Metrics {
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion_window: Option<u64>,
    /// Null for one that is infinite again.
    #[serde(skip_serializing_if = "Option::is_none")]
    ssthresh: Option<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    smoothed_rtt: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_variance: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_rtt: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retransmission_timeout: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets_in_flight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_in_flight: Option<u64>,
    /// Null for one that the congestion control leaves to the stack again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pacing_rate: Option<Option<u64>>,
}

impl Metrics {
    fn new(before: Option<SenderMetrics>, now: SenderMetrics, mss: u64) -> Metrics {
        /// What `of` says now, if it said something else before. What is not known yet is not told.
        fn changed<T: PartialEq>(
            before: Option<SenderMetrics>,
            now: SenderMetrics,
            unknown: Option<T>,
            of: impl Fn(SenderMetrics) -> T,
        ) -> Option<T> {
            let earlier = before.map(&of).or(unknown);
            let value = of(now);
            (earlier.as_ref() != Some(&value)).then_some(value)
        }
        let span =
            |of: fn(SenderMetrics) -> Span| changed(before, now, Some(Span::ZERO), of).map(millis);
        let bytes = |packets: u32| u64::from(packets) * mss;
        let ssthresh = changed(before, now, Some(None), |of| of.ssthresh);
        let pacing_rate = changed(before, now, Some(None), |of| of.pacing_rate);
        Metrics {
            congestion_window: changed(before, now, None, |of| of.cwnd).map(bytes),
            ssthresh: ssthresh.map(|of| of.map(bytes)),
            smoothed_rtt: span(|of| of.srtt),
            rtt_variance: span(|of| of.rttvar),
            min_rtt: span(|of| of.min_rtt),
            retransmission_timeout: span(|of| of.rto),
            packets_in_flight: changed(before, now, None, |of| of.packets_in_flight),
            bytes_in_flight: changed(before, now, None, |of| of.bytes_in_flight),
            pacing_rate: pacing_rate.map(|of| of.map(Rate::as_bps)),
        }
    }
}

fn timer_updated(
    timer: Timer,
    event_type: &'static str,
    delta: Option<f64>,
) -> (&'static str, Data) {
    let timer_type = match timer {
        Timer::Retransmission => "retransmission",
        Timer::TailProbe => "tail_loss_probe",
        Timer::Reordering => "reordering",
        Timer::Persist => "persist",
    };
    ("midspan-tcp:timer_updated", Data::Timer { timer_type, event_type, delta })
}

fn congestion_name(state: CongestionState) -> &'static str {
    match state {
        CongestionState::SlowStart => "slow_start",
        CongestionState::CongestionAvoidance => "congestion_avoidance",
        CongestionState::Open => "open",
        CongestionState::Cwr => "cwr",
        CongestionState::Recovery => "recovery",
        CongestionState::Loss => "loss",
    }
}

/// In milliseconds, to the nanosecond.
fn millis(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e6
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(flag: &bool) -> bool {
    !flag
}
