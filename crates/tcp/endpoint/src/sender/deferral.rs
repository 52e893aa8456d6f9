//! Whether new data waits for company: a sender that is about to be told of more room sends one long burst
//! in place of two short ones, as segmentation offload takes it (`tcp_tso_win_divisor`).

use midspan_units::{Span, Time};

use super::Sender;
use midspan_cc::State;

/// Data waits only where the last segment went so lately, and where an acknowledgement is expected
/// so soon.
const SOON: Span = Span::from_millis(1);

impl Sender {
    /// Whether the next new data is better sent with what the next acknowledgement lets go. That one sees
    /// to it: no timer is set.
    pub(super) fn defers(&mut self, now: Time) -> bool {
        let mss = u64::from(self.config.mss);
        if matches!(self.state, State::Recovery | State::Loss) || now.since(self.last_sent) > SOON {
            return false;
        }
        // A lone segment is Nagle's to keep back; the end of the stream gets no company.
        if self.unsent() <= mss || (self.closed && self.unsent() <= super::pacing::GSO_MAX_SIZE) {
            return false;
        }
        let Some(head) = self.board.first() else { return false };
        let cwnd = self.cwnd();
        let peer = self.right_edge - self.una.min(self.right_edge);
        let ours = u64::from(cwnd.saturating_sub(self.board.in_flight())) * mss;
        let theirs = self.right_edge.saturating_sub(self.nxt);
        let room = ours.min(theirs);
        if room >= u64::from(self.burst_length()) * mss {
            return false;
        }
        let enough = match self.config.tcp_tso_win_divisor {
            0 => 3 * mss,
            divisor => peer.min(u64::from(cwnd) * mss) / u64::from(divisor),
        };
        if room >= enough {
            return false;
        }
        let srtt = self.rtt.smoothed();
        if (head.at + srtt).since(now) > SOON.min(srtt / 2) {
            return false;
        }
        self.round.window_limited |= ours < theirs && ours <= self.unsent();
        true
    }
}
