//! The relay's settings: a file's text, its defaults, and what of it cannot be. Who reads the file, and resolves its
//! names, is the relay.

mod change;
mod decide;
mod fault;
mod forward;
mod leg;
mod limits;
mod marks;
mod observe;
mod policy;

use std::str::FromStr;

use ipnet::IpNet;
use midspan_split::defaults;
use midspan_units::{ByteSize, Span, wording};
use serde::{Deserialize, Serialize};

pub use decide::{DecideConfig, DecideMode};
pub use fault::ConfigError;
use fault::{Fault, line_of, one_line};
pub use forward::{ForwardConfig, Loop, ProxyConfig, To, first_loop};
pub use leg::{Dscp, LegConfig};
pub use limits::LimitsConfig;
pub use marks::Marks;
pub use midspan_split::ReadAheadKind;
pub use midspan_split::proxy_protocol::ProxyVersion;
pub use observe::{AddressesKind, AdminConfig, FlowLogConfig, LogConfig, MetricsConfig};
pub use policy::{PolicyConfig, Ports};

/// The relay's settings. Read from TOML, or built in code from [`Config::new`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where nftables rules hand connections to. Connections made straight to it are refused.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Prefixes whose connections are intercepted. Nothing else is, or ever bound as a source. Empty
    /// if there is only `forward`.
    #[serde(default)]
    pub clients: Vec<IpNet>,
    /// When clients are told that they are connected. Absent: [`Handshake::Learned`] where BPF steers and SYNs can be
    /// held, else [`Handshake::Early`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Handshake>,
    /// Who steers connections here.
    #[serde(default)]
    pub interception: InterceptionKind,
    /// What this host's own rules for what it forwards are to split connections.
    #[serde(default)]
    pub forward_rules: ForwardRules,
    /// Interfaces at whose ingress BPF steers; empty is all but the loopback, those that come later
    /// included.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// Whether BPF steers only after a connection of the relay's own has shown that what it
    /// steers arrives.
    #[serde(default = "default_prove")]
    pub prove: bool,
    /// Whether BPF's programs and maps are pinned in the BPF file system, so that another relay can take
    /// over from this one. Where that is not mounted it goes without, with a word.
    #[serde(default = "default_pin")]
    pub pin: bool,
    /// After how long without payload a connection, split or not, is no longer accounted for.
    #[serde(default = "default_account_idle")]
    pub account_idle: Span,
    /// Worker threads; 0 is one per core.
    #[serde(default)]
    pub workers: usize,
    /// The workers' scheduling priority, -20 (first) to 19, as far as the user may set it.
    #[serde(default)]
    pub nice: i32,
    /// Firewall mark of packets to deliver here, and number of the routing table that does it. The two marks above it
    /// tell clients' legs from servers'.
    #[serde(default = "default_mark")]
    pub mark: u32,
    /// What the relay holds of a flow in each direction, at most, beside the sockets' buffers.
    #[serde(default = "default_buffer")]
    pub buffer: ByteSize,
    /// How far it reads ahead of the leg that takes a direction's bytes.
    #[serde(default)]
    pub read_ahead: ReadAheadKind,
    /// How long holes in what clients send are kept from them at most, where BPF steers and their segments are known
    /// to come late by themselves; zero: not at all.
    #[serde(default = "default_reordering_hold")]
    pub reordering_hold: Span,
    /// How long a stop waits for open flows.
    #[serde(default = "default_drain_timeout")]
    pub drain_timeout: Span,
    /// How long a server may take to answer before the client is reset.
    #[serde(default = "default_connect_timeout")]
    pub connect_timeout: Span,
    /// Whether clients may send data with their SYN, and whether it is then sent with the SYN to the
    /// server (TCP Fast Open, RFC 7413), as far as `net.ipv4.tcp_fastopen` allows either.
    #[serde(default)]
    pub fast_open: bool,
    /// Whether clients may use MPTCP (RFC 8684), where this kernel has it. Not where BPF steers.
    #[serde(default)]
    pub mptcp: bool,
    /// The connections of clients.
    #[serde(default)]
    pub client_leg: LegConfig,
    /// The connections to servers.
    #[serde(default)]
    pub server_leg: LegConfig,
    /// What is taken at most.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// Which connections of the clients are split.
    #[serde(default)]
    pub policy: PolicyConfig,
    /// Splitting only where it does not harm. Absent: whatever `policy` has split is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decide: Option<DecideConfig>,
    /// How subscribers are shown.
    #[serde(default)]
    pub log: LogConfig,
    /// Metrics over HTTP. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsConfig>,
    /// A line for each flow that has ended. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_log: Option<FlowLogConfig>,
    /// Where the relay is asked and told while it runs. Absent: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<AdminConfig>,
    /// Where connections are made to the relay itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward: Vec<ForwardConfig>,
}

/// When a client is told that it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Handshake {
    /// At once, before the server was asked.
    Early,
    /// When the server has answered. If it refuses, cannot be reached or does not answer, the client
    /// sees what it would see without the relay. Takes BPF.
    Confirmed,
    /// At once where the server has answered somebody within ten minutes, and not refused since; else confirmed.
    Learned,
}

/// Who steers connections to the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterceptionKind {
    /// BPF where the kernel and the user's rights allow it, else nftables.
    #[default]
    Auto,
    /// A BPF program at the ingress of the interfaces, which fails open.
    Bpf,
    /// nftables TPROXY rules.
    Nftables,
    /// Somebody else does.
    None,
}

/// What rules for what this host forwards, as a firewall has them, are to connections that are split: these end here,
/// and are not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardRules {
    /// What they would not let through, or send elsewhere, is not split. Where nftables steers they cannot be asked, and
    /// the relay does not start if there are any.
    #[default]
    Follow,
    /// They do not count: `policy` says what clients may not reach.
    Ignore,
}

fn default_port() -> u16 {
    8742
}

fn default_mark() -> u32 {
    0x4d53
}

fn default_buffer() -> ByteSize {
    ByteSize::from_bytes(defaults::BUFFER)
}

fn default_drain_timeout() -> Span {
    Span::from_secs(30)
}

fn default_connect_timeout() -> Span {
    Span::from_secs(30)
}

fn default_pin() -> bool {
    true
}

fn default_reordering_hold() -> Span {
    defaults::REORDERING_HOLD
}

fn default_account_idle() -> Span {
    Span::from_secs(3600)
}

fn default_prove() -> bool {
    true
}

impl Config {
    /// The defaults, for these clients.
    pub fn new(clients: Vec<IpNet>) -> Config {
        Config {
            port: default_port(),
            clients,
            handshake: None,
            interception: InterceptionKind::default(),
            forward_rules: ForwardRules::default(),
            interfaces: Vec::new(),
            prove: default_prove(),
            pin: default_pin(),
            account_idle: default_account_idle(),
            reordering_hold: default_reordering_hold(),
            workers: 0,
            nice: 0,
            mark: default_mark(),
            buffer: default_buffer(),
            read_ahead: ReadAheadKind::default(),
            drain_timeout: default_drain_timeout(),
            connect_timeout: default_connect_timeout(),
            fast_open: false,
            mptcp: false,
            client_leg: LegConfig::default(),
            server_leg: LegConfig::default(),
            limits: LimitsConfig::default(),
            policy: PolicyConfig::default(),
            decide: None,
            log: LogConfig::default(),
            metrics: None,
            flow_log: None,
            admin: None,
            forward: Vec::new(),
        }
    }

    /// Names what the client's leg has where nothing is named, unless that is left to the kernel.
    pub fn complete(&mut self, for_clients: Option<&str>) {
        let leg = &mut self.client_leg;
        if leg.congestion_control.is_none() {
            leg.congestion_control = for_clients.map(str::to_owned);
            leg.is_control_by_default = true;
        }
    }

    /// Says when clients are told, where that is left open: `by_default`.
    pub fn settle_handshake(&mut self, by_default: Handshake) {
        self.handshake.get_or_insert(by_default);
    }

    /// Checks what the types alone do not.
    ///
    /// # Errors
    /// The first setting that cannot be used, and what would be right.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.first_fault().map_or(Ok(()), |fault| Err(ConfigError::new(fault.to_string())))
    }

    fn first_fault(&self) -> Option<Fault> {
        let fault = |key: &[&'static str], said: &str| Some(Fault::new(key, said));
        if self.port == 0 {
            return fault(&["port"], "must be between 1 and 65535");
        }
        if self.clients.is_empty() && self.forward.is_empty() {
            return fault(
                &["clients"],
                "must name at least one prefix, such as \"10.0.0.0/8\", unless there is a [[forward]]",
            );
        }
        for forward in &self.forward {
            if let Some(said) = forward.fault() {
                return fault(&["forward"], &format!("that listens at {} {said}", forward.listen));
            }
        }
        let literal: Vec<_> = self.forward.iter().map(ForwardConfig::literal).collect();
        if let Some(found) = first_loop(&literal, |address| address.is_loopback()) {
            return fault(&["forward"], &found.to_string());
        }
        if self.mark == 0 {
            return fault(&["mark"], "must not be 0, which every unmarked packet has");
        }
        if self.mark > u32::MAX - 2 {
            return fault(&["mark"], "must be at most 4294967293: the two above it are used too");
        }
        if (253..=255).contains(&self.mark) {
            return fault(
                &["mark"],
                "must not be 253, 254 or 255, the kernel's own routing tables",
            );
        }
        if !(-20..=19).contains(&self.nice) {
            return fault(&["nice"], "must be between -20 and 19");
        }
        if self.workers > MOST_WORKERS {
            return fault(&["workers"], "must be at most 64 (0 is one per core)");
        }
        if !(4096..=1 << 30).contains(&self.buffer.as_bytes()) {
            return fault(&["buffer"], "must be between 4 KiB and 1 GiB");
        }
        if self.account_idle < Span::from_secs(1) {
            return fault(&["account_idle"], "must be at least 1 s");
        }
        if self.reordering_hold > defaults::REORDERING_HOLD {
            return fault(&["reordering_hold"], "must be at most 50 ms");
        }
        if self.connect_timeout == Span::ZERO {
            return fault(&["connect_timeout"], "must be longer than 0 s");
        }
        for (table, leg) in [("client_leg", &self.client_leg), ("server_leg", &self.server_leg)] {
            if let Some((key, said)) = leg.first_fault() {
                return fault(&[table, key], said);
            }
        }
        if let Some(key) = self.server_leg.of_clients_alone() {
            return fault(&["server_leg", key], "is for the client's leg alone");
        }
        if self.limits.flows == Some(0) {
            return fault(&["limits", "flows"], "must be at least 1");
        }
        if self.limits.flows_per_client == Some(0) {
            return fault(&["limits", "flows_per_client"], "must be at least 1");
        }
        if self.limits.buffered.as_bytes() < 1 << 20 {
            return fault(&["limits", "buffered"], "must be at least 1 MiB");
        }
        let spans = [("idle", self.limits.idle), ("half_closed", self.limits.half_closed)];
        for (key, span) in spans {
            if span.is_some_and(|span| span < Span::from_secs(1)) {
                return fault(&["limits", key], "must be at least 1 s");
            }
        }
        if !(1..=MOST_SYN_RATE).contains(&self.limits.syn_rate.unwrap_or(1)) {
            return fault(&["limits", "syn_rate"], "must be between 1 and 1000000");
        }
        if self.limits.half_open == 0 {
            return fault(&["limits", "half_open"], "must be at least 1");
        }
        if let Some((key, said)) = self.policy.first_fault() {
            return fault(&["policy", key], said);
        }
        if let Some(decide) = &self.decide {
            if let Some((key, said)) = decide.first_fault() {
                return fault(&["decide", key], said);
            }
            if let Some((key, said)) = self.policy.fault_beside(decide.mode) {
                return fault(&["policy", key], said);
            }
        }
        if let Some((key, said)) = self.flow_log.as_ref().and_then(FlowLogConfig::first_fault) {
            return fault(&["flow_log", key], said);
        }
        if let Some((key, said)) = self.admin.as_ref().and_then(AdminConfig::first_fault) {
            return fault(&["admin", key], said);
        }
        let may_be_bpf =
            matches!(self.interception, InterceptionKind::Auto | InterceptionKind::Bpf);
        if self.mptcp && may_be_bpf && !self.clients.is_empty() {
            return fault(
                &["mptcp"],
                "takes `interception = \"nftables\"`, or \"none\": BPF cannot steer to MPTCP listeners",
            );
        }
        if !may_be_bpf {
            let said = "takes `interception = \"bpf\"`, or \"auto\"";
            if self.handshake.is_some_and(|when| when != Handshake::Early) {
                return fault(
                    &["handshake"],
                    "`learned` and `confirmed` take `interception = \"bpf\"`, or \"auto\"",
                );
            }
            if self.policy != PolicyConfig::default() {
                return fault(&["policy"], said);
            }
            if self.limits.syn_rate.is_some() {
                return fault(&["limits", "syn_rate"], said);
            }
            if self.decide.is_some() {
                return fault(&["decide"], said);
            }
        }
        None
    }
}

const MOST_WORKERS: usize = 64;
const MOST_SYN_RATE: u32 = 1_000_000;

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|error| ConfigError {
            file: None,
            line: error.span().map(|span| line_of(text, span.start)),
            message: one_line(&wording::reword(error.message())),
        })?;
        match config.first_fault() {
            Some(fault) => Err(ConfigError {
                line: fault.line_in(text),
                ..ConfigError::new(fault.to_string())
            }),
            None => Ok(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = include_str!("../tests/full.toml");
    const FORWARDS: &str = include_str!("../tests/forwards.toml");

    fn refusal(text: &str) -> String {
        text.parse::<Config>().unwrap_err().to_string()
    }

    #[test]
    fn reads_every_key_and_writes_what_it_reads() {
        let config: Config = FULL.parse().unwrap();
        assert_eq!(config.mark, 0x4d53);
        assert_eq!(config.client_leg.receive_buffer, Some(ByteSize::from_kib(4096)));
        let again: Config = toml::to_string(&config).unwrap().parse().unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn forwards_are_read_and_refused() {
        let config: Config = FORWARDS.parse().unwrap();
        let again: Config = toml::to_string(&config).unwrap().parse().unwrap();
        assert_eq!((config.forward.len(), &again), (2, &config));
        for (right, wrong, words) in [
            ("[::]:8080", "[::]:0", ["[::]:0", "between 1 and 65535"]),
            ("one.example:80\"\n", "one.example\"\n", ["[::]:8080", "HOST:PORT"]),
            ("send = \"v2\"", "send = \"v3\"", ["v3", "`v2`"]),
            (", send", ", sned", ["sned", "`send`"]),
            ("from = [\"192.0.2.0/24\"], send = \"v2\"", "", ["0.0.0.0:8080", "`send`"]),
            ("192.0.2.1:80", "127.0.0.1:8080", ["127.0.0.1:8080", "itself"]),
        ] {
            let said = refusal(&FORWARDS.replacen(right, wrong, 1));
            assert!(said.starts_with("line ") && !said.contains('\n'), "{said}");
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    }

    #[test]
    fn only_the_clients_are_required() {
        let config: Config = "clients = [\"10.0.0.0/8\"]".parse().unwrap();
        assert_eq!(config, Config::new(vec!["10.0.0.0/8".parse().unwrap()]));
        assert!(refusal("port = 1").contains("clients"));
    }

    #[test]
    fn a_refusal_names_line_fault_and_cure() {
        for (wrong, line, words) in [
            ("port = 8742", 2, ["port = 70000", "65535", "u16"]),
            ("port = 8742", 2, ["port = 0", "`port`", "between 1 and 65535"]),
            ("workers = 2", 5, ["nice = -21", "`nice`", "-20 and 19"]),
            (
                "workers = 2",
                5,
                ["wrokers = 2", "unknown key `wrokers`; did you mean `workers`?", "`workers`"],
            ),
            ("\"10.0.0.0/8\", \"fd00::/8\"", 3, ["", "`clients`", "10.0.0.0/8"]),
            ("buffer = \"1 MiB\"", 7, ["buffer = \"1 mib\"", "1 mib", "64 KiB"]),
            ("buffer = \"1 MiB\"", 7, ["buffer = \"1 B\"", "`buffer`", "4 KiB"]),
            ("\"cubic\"", 13, ["\"\"", "`client_leg.congestion_control`", "cubic"]),
            ("\"auto\"", 8, ["\"never\"", "never", "`fixed`"]),
            ("\"20 ms\"", 9, ["\"60 ms\"", "`reordering_hold`", "50 ms"]),
            ("\"10 min\"", 17, ["\"10 ms\"", "`client_leg.keepalive`", "1 s"]),
            ("\"2 min\"", 18, ["\"25 days\"", "25 days", "min"]),
            ("\"2 min\"", 18, ["\"30 ms\"", "`client_leg.user_timeout`", "1 s"]),
            ("1300", 19, ["80", "`client_leg.max_segment`", "88"]),
            ("50 Mbit", 20, ["1 kbit", "`client_leg.max_pacing_rate`", "8 kbit/s"]),
            ("dscp = 10", 21, ["dscp = 64", "64", "63"]),
            ("dscp = 10", 21, ["dscp = \"EF\"", "EF", "\"copy\""]),
            ("window = 10", 22, ["window = 0", "`client_leg.initial_window`", "1000"]),
            ("beside = 2", 23, ["beside = 2000", "`client_leg.initial_window_beside`", "1000"]),
            ("\"500 ms\"", 24, ["\"1 ms\"", "`client_leg.rto_min`", "5 ms"]),
            ("dscp = \"copy\"", 26, ["rto_min = \"1 s\"", "`server_leg.rto_min`", "client's"]),
            ("buffered = \"256 MiB\"", 30, ["buffered = \"1 B\"", "`limits.buffered`", "1 MiB"]),
            ("\"1 min\"", 32, ["\"1 ms\"", "`limits.half_closed`", "1 s"]),
            ("\"bpf\"", 4, ["\"iptables\"", "iptables", "`nftables`"]),
            ("\"bpf\"", 35, ["\"nftables\"", "`policy`", "bpf"]),
            ("\"22\"", 38, ["\"0x16\"", "0x16", "5060-5061"]),
            ("holdout = 10", 40, ["holdout = 1001", "`policy.holdout`", "1000"]),
            ("holdout = 10\n", 40, ["holdout = 0\n", "`policy.holdout`", "dry"]),
            (
                "holdout = 10\n",
                41,
                ["holdout = 10\nholdout_slot = \"0 s\"\n", "`policy.holdout_slot`", "slot"],
            ),
            ("\"dry-run\"", 40, ["\"on\"", "`policy.holdout`", "by itself"]),
            ("1.4 x", 46, ["11 x", "`decide.prior`", "10 x"]),
            ("1.4 x", 46, ["1.4", "1.4", "1.4 x"]),
            ("\"3 %\"", 47, ["\"0 %\"", "`decide.margin`", "above 0"]),
            ("\"2 %\"", 49, ["\"30 %\"", "`decide.explore`", "25 %"]),
            ("\"plain\"", 51, ["\"none\"", "none", "`pseudonym`"]),
            ("/run/midspan/relay.sock", 61, ["/", "`admin.socket`", "100"]),
            ("9743", 54, ["port", "socket address", ""]),
            ("\"100 MB\"", 57, ["\"1 B\"", "`flow_log.max_size`", "4 KiB"]),
            ("[46]", 39, ["[64]", "`policy.pass_dscp`", "63"]),
        ] {
            let text = FULL.replacen(wrong, words[0], 1);
            let said = refusal(&text);
            assert!(said.starts_with(&format!("line {line}: ")), "{said}");
            assert!(!said.contains('\n'), "{said}");
            let named = said.contains(words[1]) || words[0].contains("70000");
            assert!(named && said.contains(words[2]), "{said}");
        }
    }
}
