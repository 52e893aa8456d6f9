//! What the kernel knows of a leg.

use std::os::fd::OwnedFd;

use midspan_observe::{Algorithm, LegStats};
use midspan_sys::socket;

/// Asks the kernel; `by_name` for the congestion control's name too, which is one more call. None if it
/// does not say.
pub fn leg_stats(fd: &OwnedFd, by_name: bool) -> Option<LegStats> {
    let info = socket::tcp_info(fd).ok()?;
    let name = if by_name { socket::congestion_control(fd).ok() } else { None };
    Some(LegStats {
        congestion_control: name.map(Algorithm::new).unwrap_or_default(),
        rtt_us: info.rtt,
        rtt_var_us: info.rttvar,
        // The kernel's "none was measured".
        min_rtt_us: Some(info.min_rtt).filter(|&rtt| rtt != u32::MAX && rtt != 0),
        cwnd: info.snd_cwnd,
        mss: info.snd_mss,
        bytes_sent: info.bytes_sent,
        bytes_retransmitted: info.bytes_retrans,
        bytes_received: info.bytes_received,
        segments_sent: info.data_segs_out,
        segments_retransmitted: info.total_retrans,
        delivery_rate: info.delivery_rate,
        busy_us: info.busy_time,
        rwnd_limited_us: info.rwnd_limited,
        sndbuf_limited_us: info.sndbuf_limited,
    })
}
