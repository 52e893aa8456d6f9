//! Settings of one emulated host: what `sysctl` would set on a real one.

use std::io;

use midspan_sys::netns::Netns;
use midspan_sys::sysctl;
use midspan_units::Span;

/// A host's TCP settings.
#[derive(Debug, Clone)]
pub(crate) struct HostSettings<'a> {
    /// `net.ipv4.tcp_rmem`: least, initial and greatest receive buffer, bytes.
    pub(crate) tcp_rmem: &'a str,
    /// `net.ipv4.tcp_wmem`: least, initial and greatest send buffer, bytes.
    pub(crate) tcp_wmem: &'a str,
    /// Whether its connections ask for ECN.
    pub(crate) ecn: bool,
    /// Whether it has selective acknowledgements.
    pub(crate) sack: bool,
    /// Least retransmission timeout, if not Linux's.
    pub(crate) rto_min: Option<Span>,
    /// Whether it remembers peers from one connection to the next.
    pub(crate) metrics_save: bool,
    /// How long and how many SACKs are held back, if not as long and as many as Linux does.
    pub(crate) comp_sack: (Option<Span>, Option<u8>),
    /// Whether it forwards packets between its interfaces.
    pub(crate) router: bool,
}

impl HostSettings<'_> {
    /// Applies the settings inside `netns`. Everything that a machine's own configuration could
    /// have changed is pinned to Linux's default, so that a run does not depend on where it ran.
    ///
    /// # Errors
    /// The first parameter that the kernel refuses, by name.
    pub(crate) fn apply(&self, netns: &Netns) -> io::Result<()> {
        netns.run(|| {
            let forward = if self.router { "1" } else { "0" };
            let settings = [
                ("net.ipv4.tcp_rmem", self.tcp_rmem),
                ("net.ipv4.tcp_wmem", self.tcp_wmem),
                // 2: when asked.
                ("net.ipv4.tcp_ecn", if self.ecn { "1" } else { "2" }),
                ("net.ipv4.tcp_sack", if self.sack { "1" } else { "0" }),
                ("net.ipv4.tcp_no_metrics_save", if self.metrics_save { "0" } else { "1" }),
                ("net.ipv4.ip_forward", forward),
                ("net.ipv6.conf.all.forwarding", forward),
                ("net.ipv4.conf.all.rp_filter", "0"),
                ("net.ipv4.conf.default.rp_filter", "0"),
                ("net.ipv6.conf.default.accept_dad", "0"),
            ];
            for (name, value) in settings.into_iter().chain(PINNED) {
                sysctl::set(name, value)?;
            }
            let (delay, most) = self.comp_sack;
            let chosen = [
                (
                    "net.ipv4.tcp_rto_min_us",
                    self.rto_min.map(|least| least.as_micros().to_string()),
                ),
                (
                    "net.ipv4.tcp_comp_sack_delay_ns",
                    delay.map(|delay| delay.as_nanos().to_string()),
                ),
                ("net.ipv4.tcp_comp_sack_nr", most.map(|most| most.to_string())),
            ];
            for (name, value) in chosen {
                if let Some(value) = value {
                    sysctl::set(name, &value)?;
                }
            }
            Ok(())
        })?
    }
}

/// Linux's defaults.
const PINNED: [(&str, &str); 10] = [
    ("net.ipv4.tcp_dsack", "1"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_window_scaling", "1"),
    ("net.ipv4.tcp_recovery", "1"),
    ("net.ipv4.tcp_early_retrans", "3"),
    ("net.ipv4.tcp_reordering", "3"),
    ("net.ipv4.tcp_moderate_rcvbuf", "1"),
    ("net.ipv4.tcp_slow_start_after_idle", "1"),
    ("net.ipv4.tcp_adv_win_scale", "1"),
    ("net.ipv4.tcp_limit_output_bytes", "4194304"),
];
