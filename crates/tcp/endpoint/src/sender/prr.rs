//! Proportional rate reduction (RFC 9937, which was draft-ietf-tcpm-prr-rfc6937bis).

/// A reduction of the window from `prior` to the threshold, spread over the segments that are
/// delivered meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prr {
    /// The window when it began.
    prior: u32,
    /// Segments delivered since.
    delivered: u32,
    /// Segments sent since.
    sent: u32,
}

impl Prr {
    pub(crate) fn start(prior: u32) -> Prr {
        Prr { prior, delivered: 0, sent: 0 }
    }

    /// A segment was sent.
    pub(crate) fn sent(&mut self) {
        self.sent += 1;
    }

    /// How many segments may be sent upon an acknowledgement that delivered `delivered`, with
    /// `in_flight` in the network. `safe`: it advances, and tells of no further loss, so the
    /// slow-start reduction bound holds; otherwise the conservative one.
    pub(crate) fn send_count(
        &mut self,
        threshold: u32,
        in_flight: u32,
        delivered: u32,
        safe: bool,
    ) -> u32 {
        self.delivered += delivered;
        let count = if in_flight > threshold {
            let target = (u64::from(threshold) * u64::from(self.delivered))
                .div_ceil(u64::from(self.prior.max(1)));
            (target as u32).saturating_sub(self.sent)
        } else {
            let conserved = self.delivered.saturating_sub(self.sent).max(delivered);
            (threshold - in_flight).min(conserved + u32::from(safe))
        };
        // The fast retransmission itself.
        count.max(u32::from(self.sent == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6937, section 3.1: 20 segments in flight, the first `lost` of which are lost, and a
    /// threshold of 10. The pipe as each of `acks` acknowledgements finds it, from the one on that
    /// starts the recovery. `prior` is the RFC's RecoverFS.
    fn pipes(prior: u32, lost: u32, acks: u32, safe: bool) -> Vec<u32> {
        let mut prr = Prr::start(prior);
        let mut pipe = 20 - lost;
        let pipe_at_ack = |_| {
            pipe -= 1;
            let found = pipe;
            let count = prr.send_count(10, pipe, 1, safe);
            (0..count).for_each(|_| prr.sent());
            pipe += count;
            found
        };
        (0..acks).map(pipe_at_ack).collect()
    }

    /// The table's row for PRR, after its two acknowledgements of limited transmit, up to where
    /// the pipe comes to the threshold.
    #[test]
    fn one_loss_of_twenty_halves_the_pipe_over_a_round_trip() {
        let row = [18, 18, 18, 17, 17, 16, 16, 15, 15, 14, 14, 13, 13, 12, 12, 11];
        assert_eq!(pipes(19, 1, 16, false), row);
    }

    #[test]
    fn fifteen_losses_of_twenty_conserve_packets() {
        assert_eq!(pipes(20, 15, 3, false), [4, 4, 4]);
    }

    #[test]
    fn with_progress_and_no_further_loss_slow_start_repairs_them() {
        assert_eq!(pipes(20, 15, 3, true), [4, 5, 6]);
    }
}
