use std::net::IpAddr;
use std::path::{Path, PathBuf};

use midspan_assist_proto::HealthLimits;
use midspan_assist_proto::estimate::Cell;
use midspan_units::Span;
use serde::{Deserialize, Serialize};

/// One source of radio data (`[[source]]`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// What people call it; each its own.
    pub name: String,
    /// What it is.
    pub kind: SourceKind,
    /// The file that it writes, a FIFO also, or the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Where it listens: `ws://HOST:PORT` or `http(s)://HOST/rni/v2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Certificates of the authority that an `https` server must be signed by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<PathBuf>,
    /// The recording of the uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<PathBuf>,
    /// Whose link the recording is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ue: Option<IpAddr>,
    /// How often it reports, or is asked.
    #[serde(default = "period")]
    pub period: Span,
    /// File that says which address an RNTI is, `RNTI,ADDRESS` a line; read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rnti: Option<PathBuf>,
    /// The cell, so that channel quality bounds what is believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<Cell>,
    /// When it is cut off.
    #[serde(default)]
    pub trust: HealthLimits,
}

fn period() -> Span {
    Span::from_millis(100)
}

/// What a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// The plain feed: CSV or JSON lines in a file that grows, or a FIFO.
    Feed,
    /// srsRAN 4G's eNB: its JSON report, a file that grows.
    Srsenb,
    /// srsRAN's gNB: JSON over a WebSocket.
    Srsgnb,
    /// ETSI MEC 012 Radio Network Information, polled.
    Rni,
    /// A recording in Mahimahi's format.
    Trace,
    /// A program that this library is part of, such as the lab.
    Embedded,
}

impl SourceConfig {
    /// Nothing but what every kind has.
    pub fn new(name: &str, kind: SourceKind, period: Span) -> SourceConfig {
        SourceConfig {
            name: name.to_owned(),
            kind,
            file: None,
            url: None,
            authority: None,
            uplink: None,
            ue: None,
            period,
            rnti: None,
            cell: None,
            trust: HealthLimits::default(),
        }
    }

    /// The file, where the kind takes one.
    pub(super) fn file(&self) -> Result<&Path, String> {
        self.file
            .as_deref()
            .ok_or_else(|| format!("kind {:?} takes `file`", self.kind).to_lowercase())
    }

    /// The URL, where the kind takes one.
    pub(super) fn url(&self) -> Result<&str, String> {
        self.url
            .as_deref()
            .ok_or_else(|| format!("kind {:?} takes `url`", self.kind).to_lowercase())
    }

    /// What cannot be, if anything.
    pub fn fault(&self) -> Option<String> {
        if self.name.is_empty() {
            return Some("`name` must not be empty".into());
        }
        if !(Span::from_millis(1)..=Span::from_secs(10)).contains(&self.period) {
            return Some("`period` must be between 1 ms and 10 s".into());
        }
        if self.trust.stall < self.period * 2 {
            return Some("`trust.stall` must be at least two periods".into());
        }
        if let Some(said) = self.cell.and_then(|cell| cell.fault()) {
            return Some(format!("cell: {said}"));
        }
        let (file, url) = match self.kind {
            SourceKind::Feed | SourceKind::Srsenb | SourceKind::Trace => (true, false),
            SourceKind::Srsgnb | SourceKind::Rni => (false, true),
            SourceKind::Embedded => (false, false),
        };
        let odd = [
            ("file", self.file.is_some(), file),
            ("url", self.url.is_some(), url),
            ("authority", self.authority.is_some(), self.kind == SourceKind::Rni),
            ("uplink", self.uplink.is_some(), self.kind == SourceKind::Trace),
            ("ue", self.ue.is_some(), self.kind == SourceKind::Trace),
            (
                "cell",
                self.cell.is_some(),
                !matches!(self.kind, SourceKind::Rni | SourceKind::Trace),
            ),
        ];
        let (name, _, _) = odd.into_iter().find(|(_, there, allowed)| *there && !allowed)?;
        Some(format!("kind {:?} takes no `{name}`", self.kind).to_lowercase())
    }
}
