use midspan_units::{Rate, Span};

/// A socket buffer's bounds in bytes, as in `tcp_rmem` and `tcp_wmem`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What a socket starts with.
    pub initial: u32,
    /// What autotuning may reach.
    pub max: u32,
}

/// Whether ECN is used, as in `tcp_ecn` (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EcnMode {
    /// 0: neither asked for nor agreed to.
    Off,
    /// 1: asked for.
    Active,
    /// 2: agreed to if the peer asks. Linux's default.
    #[default]
    Passive,
}

/// How an endpoint is set up: Linux's sysctls and socket options under their own names, with
/// Linux's defaults (6.1).
///
/// Window scaling and timestamps (RFC 7323) are always on, as they are by default.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Greatest payload of a packet: the path's MTU less 52 bytes of headers.
    pub mss: u32,
    /// `tcp_rmem`.
    pub tcp_rmem: Memory,
    /// `tcp_wmem`.
    pub tcp_wmem: Memory,
    /// `SO_RCVBUF` as the program gives it (the kernel doubles it): no autotuning.
    pub so_rcvbuf: Option<u32>,
    /// `SO_SNDBUF` as the program gives it (the kernel doubles it): no autotuning.
    pub so_sndbuf: Option<u32>,
    /// `TCP_NOTSENT_LOWAT`: bytes not yet sent above which [`Endpoint::writable`] is zero.
    ///
    /// [`Endpoint::writable`]: crate::Endpoint::writable
    pub tcp_notsent_lowat: Option<u32>,
    /// `TCP_NODELAY`: no waiting for a full packet (Minshall's variant of Nagle's algorithm).
    pub tcp_nodelay: bool,
    /// `SO_MAX_PACING_RATE`: paces whatever the congestion control says.
    pub so_max_pacing_rate: Option<Rate>,
    /// `tcp_ecn`.
    pub tcp_ecn: EcnMode,
    /// `tcp_sack`: SACK (RFC 2018) with D-SACK (RFC 2883), if the peer has it too; NewReno (RFC 6582)
    /// without.
    pub tcp_sack: bool,
    /// `tcp_frto`: detection of spurious timeouts (RFC 5682).
    pub tcp_frto: bool,
    /// `tcp_reordering`: packets that must be SACKed before the reordering window closes.
    pub tcp_reordering: u32,
    /// `tcp_early_retrans`: tail loss probes (RFC 8985, section 7).
    pub tcp_early_retrans: bool,
    /// `tcp_slow_start_after_idle`: an idle window is taken back (RFC 2861).
    pub tcp_slow_start_after_idle: bool,
    /// `tcp_moderate_rcvbuf`: autotuning of the receive buffer.
    pub tcp_moderate_rcvbuf: bool,
    /// `tcp_comp_sack_delay_ns`: how long SACKs may be held back to be sent as one, at most.
    pub tcp_comp_sack_delay: Span,
    /// `tcp_comp_sack_nr`: how many SACKs may be held back.
    pub tcp_comp_sack_nr: u32,
    /// Bytes of headers that pacing counts with each packet's payload, at the rate of full packets. None with
    /// Linux; a congestion control's glue may.
    pub paced_headers: u32,
    /// `tcp_min_tso_segs`: least packets of a burst.
    pub tcp_min_tso_segs: u32,
    /// `tcp_tso_rtt_log`: bursts grow on paths of less than some times 2 to this many microseconds.
    pub tcp_tso_rtt_log: u32,
    /// `tcp_tso_win_divisor`: the part of the window that a burst need not wait for company with; 0 for
    /// three packets.
    pub tcp_tso_win_divisor: u32,
    /// `tcp_pacing_ss_ratio`, per cent.
    pub tcp_pacing_ss_ratio: u32,
    /// `tcp_pacing_ca_ratio`, per cent.
    pub tcp_pacing_ca_ratio: u32,
    /// `tcp_min_rtt_wlen`: over how long the least round-trip time is kept.
    pub tcp_min_rtt_wlen: Span,
    /// `tcp_syn_retries`, and `tcp_synack_retries`: how often a SYN is sent again.
    pub tcp_syn_retries: u32,
    /// `tcp_retries2`: how many timeouts in a row end the connection.
    pub tcp_retries2: u32,
    /// Initial window in packets (`initcwnd` of a route; RFC 6928).
    pub initcwnd: u32,
    /// Each data segment is acknowledged at once (`quickack` of a route).
    pub quickack: bool,
    /// Floor of the variance part of the retransmission timeout (`rto_min` of a route).
    pub rto_min: Span,
    /// Round-trip time that earlier connections with the peer have had, of [`Metrics`](crate::Metrics). Where it is longer
    /// than the handshake's, the first timeout goes by it.
    pub remembered_rtt: Option<Span>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mss: 1448,
            tcp_rmem: Memory { initial: 131_072, max: 6_291_456 },
            tcp_wmem: Memory { initial: 16_384, max: 4_194_304 },
            so_rcvbuf: None,
            so_sndbuf: None,
            tcp_notsent_lowat: None,
            tcp_nodelay: false,
            so_max_pacing_rate: None,
            tcp_ecn: EcnMode::Passive,
            tcp_sack: true,
            tcp_frto: true,
            tcp_reordering: 3,
            tcp_early_retrans: true,
            tcp_slow_start_after_idle: true,
            tcp_moderate_rcvbuf: true,
            tcp_comp_sack_delay: Span::from_millis(1),
            tcp_comp_sack_nr: 44,
            paced_headers: 0,
            tcp_min_tso_segs: 2,
            tcp_tso_rtt_log: 9,
            tcp_tso_win_divisor: 3,
            tcp_pacing_ss_ratio: 200,
            tcp_pacing_ca_ratio: 120,
            tcp_min_rtt_wlen: Span::from_secs(300),
            tcp_syn_retries: 6,
            tcp_retries2: 15,
            initcwnd: 10,
            quickack: false,
            rto_min: Span::from_millis(200),
            remembered_rtt: None,
        }
    }
}
