//! What an acknowledgement tells.

use midspan_units::{Span, Time};

use super::{Repair, Sender};
use crate::event::Event;
use midspan_cc::{Sample, State};

/// An acknowledgement, with positions in place of sequence numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledgement<'a> {
    /// Next position that the peer expects.
    pub(crate) ack: u64,
    /// Where its window ends.
    pub(crate) right_edge: u64,
    /// SACK blocks.
    pub(crate) sack: &'a [(u64, u64)],
    /// The timestamp that it echoes, milliseconds.
    pub(crate) echo: u32,
    /// ECN-Echo.
    pub(crate) ece: bool,
    /// It came with data, so it is no duplicate acknowledgement.
    pub(crate) with_data: bool,
    /// A base station has marked it (TCP-ME).
    pub(crate) wla: bool,
}

/// What was new in an acknowledgement.
#[derive(Debug, Default)]
pub(super) struct AckEffects {
    /// Something was acknowledged cumulatively.
    pub(super) advanced: bool,
    /// Segments that were, SACKed before or not.
    acked: u32,
    /// Something was SACKed.
    pub(super) sacked: bool,
    /// Something of before the recovery point that was sent once was delivered.
    pub(super) original_delivered: bool,
    /// Something that was sent again was acknowledged cumulatively.
    pub(super) retransmission_acked: bool,
    /// The peer got something twice.
    pub(super) dsack: bool,
    /// What was got twice was the tail loss probe.
    pub(super) dsack_of_probe: bool,
    /// The window is another.
    pub(super) window_update: bool,
    /// A retransmission was found lost.
    pub(super) retransmission_lost: bool,
    pub(super) ece: bool,
    /// Segments sent once that were delivered: when the first and the last were sent.
    acked_sent: Option<(Time, Time)>,
    sacked_sent: Option<(Time, Time)>,
    /// First position of a segment, sent once, that was delivered after later ones.
    overtaken: Option<u64>,
}

/// As it was before an acknowledgement.
struct Before {
    una: u64,
    in_flight: u32,
    delivered: u32,
    ever_lost: u64,
    highest_sacked: u64,
}

impl Sender {
    /// An acknowledgement has come. Afterwards everything that may be sent must be asked for.
    pub(crate) fn acknowledge(&mut self, now: Time, ack: &Acknowledgement<'_>) {
        if ack.ack > self.nxt {
            return;
        }
        self.tell_received(now, ack);
        let before = Before {
            una: self.una,
            in_flight: self.board.in_flight(),
            delivered: self.deliveries.total(),
            ever_lost: self.board.ever_lost(),
            highest_sacked: self.board.highest_sacked().max(self.una),
        };
        let mut effects = AckEffects { ece: ack.ece, ..AckEffects::default() };
        self.repair = Repair::First;
        self.rack.waits = false;
        // What an older acknowledgement says of the window is out of date.
        if ack.ack >= self.una && ack.right_edge > self.right_edge {
            effects.window_update = true;
            self.right_edge = ack.right_edge;
        }
        self.take_sacks(now, ack, &before, &mut effects);
        if ack.ack > self.una {
            self.take_cumulative(now, ack, &before, &mut effects);
        }
        self.rack.adapt_window(self.deliveries.latest_sent_at(), self.deliveries.total());
        let rtt = self.measure_rtt(now, ack, &effects);
        self.end_tail_probe(now, ack.ack, &effects, ack.with_data);
        if ack.wla {
            let connection = self.connection(now);
            self.control.on_alarm(&connection, ack.ece);
        }
        let sample = self.measure(now, rtt, &before, &effects);
        let duplicate = !effects.advanced && !ack.with_data && !effects.window_update;
        if duplicate || effects.sacked || effects.dsack || effects.ece || self.state != State::Open
        {
            self.loss_recovery(now, ack, before.una, &mut effects, duplicate);
        }
        if effects.advanced {
            self.arm_on_progress(now);
        }
        if self.board.is_empty() {
            self.disarm();
        }
        if self.is_drained()
            && let Some(since) = self.totals.busy_since.take()
        {
            self.totals.busy += now.since(since);
        }
        self.adjust_window(now, sample, &before, &effects);
        self.expand_buffer();
        self.tell_congestion(now);
    }

    /// Data that come the other way repeat what was acknowledged: that is no news.
    fn tell_received(&mut self, now: Time, ack: &Acknowledgement<'_>) {
        let &Acknowledgement { ack, right_edge, sack, ece, with_data, .. } = ack;
        let is_new = ack > self.una || right_edge != self.right_edge || !sack.is_empty() || ece;
        if is_new || !with_data {
            let window = right_edge.saturating_sub(ack);
            self.tell(now, || Event::Received { ack, sack: sack.to_vec(), window, ece });
        }
    }

    fn take_sacks(
        &mut self,
        now: Time,
        ack: &Acknowledgement<'_>,
        before: &Before,
        effects: &mut AckEffects,
    ) {
        let mut blocks = ack.sack;
        if let [first, rest @ ..] = blocks {
            // RFC 2883, section 4: below the acknowledgement, or inside the next block.
            let inside = rest.first().is_some_and(|next| next.0 <= first.0 && first.1 <= next.1);
            if first.1 <= ack.ack || inside {
                self.take_dsack(*first, effects);
                blocks = rest;
            }
        }
        let recovery_point = self.recovery_point;
        let Sender { board, deliveries, rack, rtt, .. } = self;
        let min_rtt = rtt.min();
        for &(start, end) in blocks {
            let start = start.max(before.una);
            if start >= end || end > self.nxt {
                continue;
            }
            board.sack(start, end, |segment| {
                effects.sacked = true;
                deliveries.deliver(segment);
                rack.delivered(now, segment, min_rtt, 0);
                if !segment.ever_retransmitted {
                    effects.original_delivered |= segment.end <= recovery_point;
                    stretch(&mut effects.sacked_sent, segment.at);
                    if segment.start < before.highest_sacked {
                        let first = effects.overtaken.unwrap_or(segment.start);
                        effects.overtaken = Some(first.min(segment.start));
                    }
                }
            });
        }
        if let Some(start) = effects.overtaken.take()
            && (self.state != State::Loss || self.undo.is_possible())
        {
            self.note_reordering(start);
        }
    }

    fn take_dsack(&mut self, (start, end): (u64, u64), effects: &mut AckEffects) {
        effects.dsack = true;
        self.totals.dsacks += 1;
        if u64::from(self.totals.dsacks) > self.totals.retransmissions {
            // The network has made this duplicate.
            return;
        }
        let segments = end.saturating_sub(start).div_ceil(u64::from(self.config.mss)).max(1) as u32;
        // It has left the network as one that was needed does.
        self.deliveries.count(segments);
        self.undo.duplicate_arrived(end, segments);
        if self.board.was_repeated(start) {
            // The original has come out of order, before its retransmission.
            effects.overtaken = Some(start);
        }
        if self.tail.was_repeated(end) {
            effects.dsack_of_probe = true;
        } else if self.totals.reorderings > 0 {
            // Before any reordering was seen Linux does not learn from this.
            self.rack.dsack_seen = true;
        }
    }

    fn take_cumulative(
        &mut self,
        now: Time,
        ack: &Acknowledgement<'_>,
        before: &Before,
        effects: &mut AckEffects,
    ) {
        let (ack, echo) = (ack.ack, ack.echo);
        effects.advanced = true;
        self.timeouts = 0;
        self.rtt.recover();
        let recovery_point = self.recovery_point;
        let Sender { board, deliveries, rack, rtt, config, .. } = self;
        let (min_rtt, sack) = (rtt.min(), config.tcp_sack);
        board.acknowledge(ack, |segment| {
            effects.acked += 1;
            if segment.ever_retransmitted {
                effects.retransmission_acked = true;
            } else if !segment.sacked {
                stretch(&mut effects.acked_sent, segment.at);
                effects.original_delivered |= segment.end <= recovery_point;
                if segment.start < before.highest_sacked {
                    effects.overtaken.get_or_insert(segment.start);
                }
            }
            if !segment.sacked {
                deliveries.deliver(segment);
                if sack {
                    rack.delivered(now, segment, min_rtt, echo);
                }
            }
        });
        self.una = ack;
        if !sack {
            self.confirm_guesses(effects.acked);
        }
        if let Some(start) = effects.overtaken.take() {
            self.note_reordering(start);
        }
    }

    /// A segment at `start`, sent once, was delivered after later ones.
    pub(super) fn note_reordering(&mut self, start: u64) {
        let highest = self.board.highest_sacked().max(self.una);
        if start >= highest {
            return;
        }
        let packets = (highest - start).div_ceil(u64::from(self.config.mss));
        self.reordering = self.reordering.max(packets.min(u64::from(super::MAX_REORDERING)) as u32);
        self.totals.reorderings += 1;
    }

    /// Takes a sample of the round-trip time if there is one, and answers that of the segment sent
    /// last, for the congestion control.
    fn measure_rtt(
        &mut self,
        now: Time,
        ack: &Acknowledgement<'_>,
        effects: &AckEffects,
    ) -> Option<Span> {
        let acked = effects.acked_sent.filter(|_| !effects.retransmission_acked);
        // Of the first segment, the delay of a delayed acknowledgement included, for the timeout;
        // of the last one for the congestion control.
        let (longest, shortest) = match (acked, effects.sacked_sent) {
            (Some((first, _)), Some((_, last))) => (now.since(first), now.since(last)),
            (Some((first, last)), None) | (None, Some((first, last))) => {
                (now.since(first), now.since(last))
            }
            (None, None) if effects.advanced && ack.echo != 0 => {
                // RFC 7323, section 4: timestamps count milliseconds.
                let millis = crate::timestamp(now).wrapping_sub(ack.echo).max(1);
                let sample = Span::from_millis(u64::from(millis).min(60_000));
                (sample, sample)
            }
            (None, None) => return None,
        };
        self.rtt.observe_min(now, shortest);
        self.rtt.sample(longest, self.una, self.nxt);
        Some(shortest)
    }

    /// Tells the congestion control what was delivered, before anything is made of it.
    fn measure(
        &mut self,
        now: Time,
        rtt: Option<Span>,
        before: &Before,
        effects: &AckEffects,
    ) -> Sample {
        let acked = self.deliveries.total() - before.delivered;
        if effects.ece {
            self.marked += acked;
        }
        let sample = Sample {
            acked,
            advanced: effects.acked,
            rtt,
            prior_in_flight: before.in_flight,
            ece: effects.ece,
            feedback: self.feedback.and_then(|value| value.at(now)),
            ..Sample::default()
        };
        if acked > 0 {
            let connection = self.connection(now);
            self.control.measure(&connection, &sample);
        }
        sample
    }

    /// Lets the congestion control set window and rate, or reduces the window for it.
    fn adjust_window(&mut self, now: Time, sample: Sample, before: &Before, effects: &AckEffects) {
        let ever_lost = self.board.ever_lost();
        let min_rtt = self.rtt.min().unwrap_or(Span::ZERO);
        let rate = self.deliveries.sample(now, min_rtt, ever_lost);
        // Also what a duplicate acknowledgement has told of since.
        let acked = self.deliveries.total() - before.delivered;
        let lost = (ever_lost - before.ever_lost) as u32;
        if acked > 0 || (lost > 0 && self.owns_rate()) {
            let cwnd_limited = self.is_window_limited() && self.may_grow(effects);
            let connection = self.connection(now);
            self.control.on_ack(&connection, &Sample { acked, rate, cwnd_limited, ..sample });
        }
        if self.is_reducing() && !self.owns_rate() {
            self.reduce_window(acked, lost, effects.advanced);
        }
    }

    /// With much reordering any progress counts, otherwise only cumulative (Linux).
    fn may_grow(&self, effects: &AckEffects) -> bool {
        effects.advanced || (effects.sacked && self.reordering > self.config.tcp_reordering)
    }
}

fn stretch(span: &mut Option<(Time, Time)>, at: Time) {
    *span = Some(match *span {
        Some((first, last)) => (first.min(at), last.max(at)),
        None => (at, at),
    });
}
