//! Settings out of TOML files: which file, which line, what is wrong, what would be right.

use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use midspan_assist_proto::estimate::EstimatorConfig;
use midspan_assist_proto::{BasisKind, LONGEST_PERIOD, Limits, Policy, SHORTEST_PERIOD, Target};
use midspan_units::{Rate, Span, wording};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::source::SourceConfig;
use crate::tls::Identity;

/// Settings of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonConfig {
    /// UDP address for senders.
    #[serde(default = "listen")]
    pub listen: SocketAddr,
    /// Of which windows all feedback is.
    #[serde(default)]
    pub basis: BasisKind,
    /// File that says who may ask for what.
    pub policy: PathBuf,
    /// Unix socket for `midspan assist top` and `midspan assist map`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<PathBuf>,
    /// Connections of senders and UEs at one time.
    #[serde(default = "sessions")]
    pub sessions: usize,
    /// The base station's address, to which the network part of minRTT is measured with ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<IpAddr>,
    /// This end's certificate, and whom it believes.
    pub identity: Identity,
    /// What is held at most.
    #[serde(default)]
    pub limits: Limits,
    /// How feedback is estimated.
    #[serde(default)]
    pub estimator: EstimatorConfig,
    /// Where measurements come from.
    #[serde(default, rename = "source")]
    pub sources: Vec<SourceConfig>,
}

/// The daemon's port, from the range that nobody registers.
pub const PORT: u16 = 49_460;

fn listen() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 0], PORT))
}

fn sessions() -> usize {
    4_096
}

/// Settings of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// Of which windows feedback must be.
    #[serde(default)]
    pub basis: BasisKind,
    /// Prefixes of the UEs that this host sends to.
    #[serde(default)]
    pub ues: Vec<IpNet>,
    /// This host's own address, if it is a UE: the number of its flows is reported to the daemons
    /// (the paper's direct way).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<IpAddr>,
    /// This host's own address, if it is a UE: it gives each of its flows a part of its link by the
    /// window that it advertises (the paper's indirect way). Takes root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regulate: Option<IpAddr>,
    /// Whether every address in `ues` is registered at once; else those that this host has TCP
    /// connections with.
    #[serde(default)]
    pub always: bool,
    /// How often feedback is wanted.
    #[serde(default = "period")]
    pub period: Span,
    /// After how long without feedback senders go as their base control does. Absent: three and a
    /// half periods, and at least [`SHORTEST_TIMEOUT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// More bandwidth than this is not believed of any UE.
    #[serde(default = "greatest")]
    pub greatest: Rate,
    /// Round trip between this host and the edge, which the daemon does not know and which is added
    /// to minRTT. Absent: as measured on the connection to the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<Span>,
    /// Where the number of flows that share a UE's link comes from.
    #[serde(default)]
    pub flows: FlowsFrom,
    /// Whose minRTT senders go by.
    #[serde(default)]
    pub min_rtt: MinRttFrom,
    /// See [`Target::standing_queue`].
    #[serde(default = "standing_queue")]
    pub standing_queue: Span,
    /// See [`Target::pace_percent`].
    #[serde(default = "pace_percent")]
    pub pace_percent: u32,
    /// The folder in which the map for the congestion controls is pinned.
    #[serde(default = "pins")]
    pub pins: PathBuf,
    /// Unix socket for `midspan assist top`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<PathBuf>,
    /// This end's certificate, and whom it believes.
    pub identity: Identity,
    /// The daemons, one for each part of the network that UEs may be in.
    #[serde(rename = "daemon")]
    pub daemons: Vec<DaemonAddress>,
}

/// Where a daemon is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonAddress {
    /// Its UDP address.
    pub address: SocketAddr,
    /// The name in its certificate; its address if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl DaemonAddress {
    /// The name that its certificate must have.
    pub fn certified_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address.ip().to_canonical().to_string())
    }
}

/// Where the number of flows that share a UE's link comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowsFrom {
    /// From the UE, by way of the daemon; one where it says nothing.
    #[default]
    Reported,
    /// From this host's own connections: for a host that all of a UE's flows pass, such as the
    /// relay.
    Counted,
}

/// Whose minRTT senders go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MinRttFrom {
    /// What the network says.
    #[default]
    Network,
    /// The least round trip that each connection has measured: throughput guidance, for comparison.
    Sender,
    /// The smoothed round trip of each connection: the same, with a queue that feeds itself.
    SenderSmoothed,
}

fn period() -> Span {
    Span::from_millis(50)
}

/// What a timeout is at least where none is configured: base stations write their reports out in clumps
/// of 300 ms and more, and until the next clump the newest measurement holds.
pub const SHORTEST_TIMEOUT: Span = Span::from_millis(600);

/// The timeout where none is configured.
pub(crate) fn timeout(period: Span) -> Span {
    (period * 7 / 2).max(SHORTEST_TIMEOUT)
}

fn standing_queue() -> Span {
    Target::default().standing_queue
}

fn pace_percent() -> u32 {
    Target::default().pace_percent
}

fn greatest() -> Rate {
    Rate::from_bps(10_000_000_000)
}

fn pins() -> PathBuf {
    "/sys/fs/bpf/midspan/cc".into()
}

/// More addresses than this are not registered at once.
const MOST_ALWAYS: u128 = 20_000;

impl AgentConfig {
    /// Defaults, but for what has none; of no UE yet.
    pub fn new(identity: Identity, daemons: Vec<DaemonAddress>) -> AgentConfig {
        AgentConfig {
            basis: BasisKind::default(),
            ues: Vec::new(),
            report: None,
            regulate: None,
            always: false,
            period: period(),
            timeout: None,
            greatest: greatest(),
            distance: None,
            flows: FlowsFrom::default(),
            min_rtt: MinRttFrom::default(),
            standing_queue: standing_queue(),
            pace_percent: pace_percent(),
            pins: pins(),
            control: None,
            identity,
            daemons,
        }
    }

    /// After how long without feedback senders go as their base control does.
    pub fn timeout(&self) -> Span {
        self.timeout.unwrap_or_else(|| timeout(self.period))
    }

    /// What is wanted of the links that this host sends over.
    pub fn target(&self) -> Target {
        Target { standing_queue: self.standing_queue, pace_percent: self.pace_percent }
    }

    fn fault(&self) -> Option<String> {
        if let Some(said) = self.target().fault() {
            return Some(said.into());
        }
        if self.ues.is_empty() && self.report.is_none() && self.regulate.is_none() {
            let said = "`ues` must name at least one prefix, such as \"10.45.0.0/16\", unless there \
                        is `report` or `regulate`";
            return Some(said.into());
        }
        if self.daemons.is_empty() {
            return Some("there must be at least one [[daemon]]".into());
        }
        if !(SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&self.period) {
            return Some("`period` must be between 10 ms and 500 ms".into());
        }
        if !(self.period * 2..=Span::from_secs(10)).contains(&self.timeout()) {
            return Some("`timeout` must be between two periods and 10 s".into());
        }
        if self.always && self.addresses() > MOST_ALWAYS {
            return Some(format!("`always` takes prefixes of {MOST_ALWAYS} addresses at most"));
        }
        None
    }

    fn addresses(&self) -> u128 {
        let size = |prefix: &IpNet| {
            let bits = u32::from(prefix.max_prefix_len() - prefix.prefix_len());
            1u128.checked_shl(bits).unwrap_or(u128::MAX)
        };
        self.ues.iter().map(size).fold(0, u128::saturating_add)
    }
}

impl DaemonConfig {
    /// Defaults, but for what has none.
    pub fn new(policy: PathBuf, identity: Identity) -> DaemonConfig {
        DaemonConfig {
            listen: listen(),
            basis: BasisKind::default(),
            policy,
            control: None,
            sessions: sessions(),
            probe: None,
            identity,
            limits: Limits::default(),
            estimator: EstimatorConfig::default(),
            sources: Vec::new(),
        }
    }

    fn fault(&self) -> Option<String> {
        if self.sessions == 0 {
            return Some("`sessions` must be at least 1".into());
        }
        if self.limits.ues == 0 || self.limits.registrations == 0 {
            return Some("`limits.ues` and `limits.registrations` must be at least 1".into());
        }
        if self.estimator.bounds.jump < 2 {
            return Some("`estimator.bounds.jump` must be at least 2".into());
        }
        for (index, source) in self.sources.iter().enumerate() {
            if let Some(said) = source.fault() {
                return Some(format!("source `{}`: {said}", source.name));
            }
            if self.sources[..index].iter().any(|other| other.name == source.name) {
                return Some(format!("source `{}` is there twice", source.name));
            }
        }
        None
    }
}

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    line: Option<usize>,
    said: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.said)
    }
}

impl std::error::Error for ConfigError {}

impl DaemonConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or says what cannot be.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let config: Self = parse(path)?;
        config.fault().map_or(Ok(config), |said| Err(error(path, said)))
    }
}

impl AgentConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or says what cannot be.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let config: Self = parse(path)?;
        config.fault().map_or(Ok(config), |said| Err(error(path, said)))
    }
}

/// Reads a policy.
///
/// # Errors
/// When it cannot be read, or says what cannot be.
pub fn load_policy(path: &Path) -> Result<Policy, ConfigError> {
    let policy: Policy = parse(path)?;
    policy.checked().map_err(|said| error(path, said.to_string()))
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let text = fs::read_to_string(path)
        .map_err(|cannot| error(path, format!("cannot be read: {cannot}")))?;
    toml::from_str(&text).map_err(|wrong: toml::de::Error| {
        let before = wrong.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| 1 + before.matches('\n').count());
        let said = wording::reword(wrong.message());
        ConfigError { file: path.to_owned(), line, said }
    })
}

fn error(path: &Path, said: String) -> ConfigError {
    ConfigError { file: path.to_owned(), line: None, said }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAEMON: &str = r#"
listen = "127.0.0.1:49460"
basis = "causal"
policy = "policy.toml"
control = "/run/midspan/assist.sock"
sessions = 100
probe = "192.0.2.1"
[identity]
certificate = "daemon.pem"
key = "daemon.key"
authority = "authority.pem"
revocation_lists = ["revoked.pem"]
[limits]
ues = 100
stale = "300 ms"
[estimator.min_rtt]
network = "4 ms"
[estimator.bounds]
ceiling = "1 Gbit/s"
[[source]]
name = "cell 1"
kind = "srsenb"
file = "/tmp/enb_report.json"
rnti = "rnti.csv"
period = "100 ms"
cell = { technology = "lte", blocks = 50 }
trust = { stall = "500 ms" }
"#;

    fn load<T>(text: &str, load: impl Fn(&Path) -> Result<T, ConfigError>) -> Result<T, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, text).unwrap();
        load(&path)
            .map_err(|error| error.to_string().replace(&path.display().to_string(), "config.toml"))
    }

    #[test]
    fn every_key_of_the_daemon_is_read() {
        let config = load(DAEMON, DaemonConfig::load).unwrap();
        assert_eq!(config.limits.stale, Span::from_millis(300));
        assert_eq!(config.estimator.min_rtt.network, Span::from_millis(4));
        assert_eq!(config.sources[0].trust.stall, Span::from_millis(500));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        let refusal = |text: &str| load(text, DaemonConfig::load).unwrap_err();
        let with = |from: &str, to: &str| {
            assert!(DAEMON.contains(from), "{from}");
            refusal(&DAEMON.replace(from, to))
        };
        assert!(
            with("sessions = 100", "session = 100")
                .starts_with("config.toml:6: unknown key `session`; did you mean `sessions`?")
        );
        assert!(with("stale = \"300 ms\"", "stale = 300").starts_with("config.toml:15:"));
        assert!(with("blocks = 50", "blocks = 0").contains("`blocks` must be between"));
        assert!(with("kind = \"srsenb\"", "kind = \"rni\"").contains("takes no `file`"));
        assert!(with("stall = \"500 ms\"", "stall = \"150 ms\"").contains("two periods"));
        let twice = format!("{DAEMON}{}", &DAEMON[DAEMON.find("[[source]]").unwrap()..]);
        assert!(refusal(&twice).contains("`cell 1` is there twice"));
    }

    #[test]
    fn policies_know_no_other_keys() {
        let right = "[[peer]]\nname = \"a.example\"\nmay_ask = [\"10.45.0.0/16\"]\n";
        assert_eq!(load(right, load_policy).unwrap().peers.len(), 1);
        let wrong = format!("{right}may_aks = [\"::/0\"]\n");
        assert!(load(&wrong, load_policy).unwrap_err().contains("may_aks"));
    }

    #[test]
    fn the_agents_settings_fit_together() {
        let text = |more: &str| {
            format!(
                "ues = [\"10.45.0.0/16\"]\n{more}\n[identity]\ncertificate = \"c\"\nkey = \"k\"\n\
                 authority = \"a\"\n[[daemon]]\naddress = \"192.0.2.1:49460\"\n"
            )
        };
        let config = load(&text(""), AgentConfig::load).unwrap();
        assert_eq!(config.timeout(), SHORTEST_TIMEOUT);
        assert_eq!(config.daemons[0].certified_name(), "192.0.2.1");
        let refusal = |more: &str| load(&text(more), AgentConfig::load).unwrap_err();
        assert!(refusal("period = \"5 ms\"").contains("`period` must be"));
        assert!(refusal("timeout = \"60 ms\"").contains("`timeout` must be"));
        assert!(refusal("always = true").contains("`always` takes"));
        assert!(refusal("pace_percent = 0").contains("`pace_percent` must be"));
        assert!(refusal("standing_queue = \"2 s\"").contains("`standing_queue` must be"));
    }
}
