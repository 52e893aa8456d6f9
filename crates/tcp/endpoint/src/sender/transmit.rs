//! What to send next.

use midspan_units::{Span, Time};

use super::scoreboard::Sent;
use super::{Forced, Repair, Round, Sender};
use crate::event::{Event, Timer};
use midspan_cc::State;

/// A segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// Position of its first byte.
    pub(crate) start: u64,
    /// Bytes of payload.
    pub(crate) payload: u32,
    pub(crate) fin: bool,
    /// Nothing more waits behind it.
    pub(crate) psh: bool,
    pub(crate) cwr: bool,
    pub(crate) retransmission: bool,
    /// Number of the burst that it is part of.
    pub(crate) burst: u64,
}

impl Sender {
    /// The next segment that may go now. Ask until there is none.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Outgoing> {
        let probe = self.forced == Some(Forced::TailProbe);
        let outgoing = self.next(now);
        match &outgoing {
            // A probe of the peer's window has no data.
            Some(sent) if sent.payload > 0 || sent.fin => {
                let end = sent.start + u64::from(sent.payload) + u64::from(sent.fin);
                let (range, retransmission) = ((sent.start, end), sent.retransmission);
                self.tell(now, || Event::Sent { range, retransmission, probe });
            }
            Some(_) => {}
            None => {
                self.end_round(now);
                self.tell_standing(now);
            }
        }
        outgoing
    }

    fn next(&mut self, now: Time) -> Option<Outgoing> {
        if self.una == self.end() && self.forced.is_none() {
            return None;
        }
        if let Some(forced) = self.forced.take() {
            return self.send_forced(now, forced);
        }
        if self.repair == Repair::First
            && let Some(outgoing) = self.send_lost(now)
        {
            return Some(outgoing);
        }
        if let Some(outgoing) = self.send_new(now) {
            return Some(outgoing);
        }
        if self.repair == Repair::AfterNewData && self.nxt <= self.recovery_point {
            // F-RTO needs new data, and none may go: the usual way then.
            self.repair = Repair::First;
            self.frto = false;
            return self.send_lost(now);
        }
        None
    }

    fn send_forced(&mut self, now: Time, forced: Forced) -> Option<Outgoing> {
        match forced {
            Forced::TailProbe => {
                let probe = if self.has_new_data() {
                    self.sendable().map(|length| (self.emit_new(now, length), false))
                } else {
                    let last = self.board.last_number()?;
                    self.emit_again(now, last).map(|outgoing| (outgoing, true))
                };
                let (outgoing, repeated) = probe?;
                self.note_probe(repeated);
                Some(outgoing)
            }
            Forced::WindowProbe => Some(Outgoing {
                start: self.una - 1,
                payload: 0,
                fin: false,
                psh: false,
                cwr: false,
                retransmission: false,
                burst: self.burst(now, 0),
            }),
        }
    }

    /// A lost segment, if there is one and the windows let it go.
    fn send_lost(&mut self, now: Time) -> Option<Outgoing> {
        let number = self.board.next_lost()?;
        self.consult(now);
        if self.board.in_flight() >= self.cwnd() {
            self.round.window_limited = true;
            return None;
        }
        if !self.may_burst(now) {
            return None;
        }
        self.emit_again(now, number)
    }

    fn send_new(&mut self, now: Time) -> Option<Outgoing> {
        if self.nxt >= self.end() {
            return None;
        }
        if self.board.is_empty() {
            self.restart_after_idle(now);
        }
        self.consult(now);
        if self.board.in_flight() >= self.cwnd() {
            self.round.window_limited = true;
            return None;
        }
        if !self.may_burst(now) {
            return None;
        }
        let length = self.sendable()?;
        if self.pacer.is_between_bursts() && self.defers(now) {
            return None;
        }
        Some(self.emit_new(now, length))
    }

    /// The network may have said something since the last acknowledgement.
    fn consult(&mut self, now: Time) {
        if let Some(value) = self.feedback {
            let connection = self.connection(now);
            self.control.on_send(&connection, value.at(now).as_ref());
        }
    }

    /// Whether there is something to send that was never sent, and the peer's window takes it.
    pub(super) fn has_new_data(&self) -> bool {
        self.sendable().is_some()
    }

    /// How much of the sequence space the next new segment takes, if one may be formed now.
    fn sendable(&self) -> Option<u32> {
        let left = self.end().checked_sub(self.nxt).filter(|left| *left > 0)?;
        let full = u64::from(self.config.mss);
        let data = (self.written.saturating_sub(self.nxt)).min(full);
        let window = self.right_edge.saturating_sub(self.nxt);
        // A FIN beyond the window is sent nonetheless, as it takes no buffer.
        if data > window {
            // Silly window avoidance: a part goes only if nothing else is out (RFC 9293, 3.8.6.2.1).
            let alone = self.board.is_empty() && window > 0 && self.timeouts > 0;
            return alone.then_some(window as u32);
        }
        let last = data + u64::from(self.closed) >= left;
        if data < full && !last {
            return None;
        }
        // Minshall: one segment that is not full may be out, unless the FIN goes with it.
        let waits =
            data < full && !self.closed && !self.config.tcp_nodelay && self.small_end > self.una;
        let length = if last { left } else { data };
        (!waits).then_some(length as u32)
    }

    /// Sends a segment that takes `length` of the sequence space.
    fn emit_new(&mut self, now: Time, length: u32) -> Outgoing {
        let start = self.nxt;
        let end = start + u64::from(length);
        let fin = end > self.written;
        let payload = length - u32::from(fin);
        let first = self.board.is_empty();
        if first {
            self.totals.busy_since.get_or_insert(now);
            let connection = self.connection(now);
            self.control.on_transmit_start(&connection);
        }
        let stamp = self.deliveries.stamp(now, self.board.in_flight(), self.board.ever_lost());
        self.board.push(Sent {
            start,
            end,
            leads: self.pacer.is_between_bursts(),
            at: now,
            order: 0,
            stamp,
            sacked: false,
            lost: false,
            forgiven: false,
            retransmitted: false,
            ever_retransmitted: false,
        });
        self.nxt = end;
        if payload < self.config.mss {
            self.small_end = end;
        }
        if first || self.timer.is_some_and(|(timer, _)| timer == Timer::TailProbe) {
            self.arm_retransmission(now);
        }
        self.round.sent_new = true;
        let cwr = std::mem::take(&mut self.cwr_due);
        let burst = self.note_sent(now, payload);
        Outgoing { start, payload, fin, psh: end >= self.end(), cwr, retransmission: false, burst }
    }

    fn emit_again(&mut self, now: Time, number: u64) -> Option<Outgoing> {
        let Sent { start, end, .. } = *self.board.get(number)?;
        let in_flight = self.board.in_flight();
        let stamp = self.deliveries.stamp(now, in_flight, self.board.ever_lost());
        self.undo.retransmitted(crate::timestamp(now));
        self.board.retransmit(number, now, stamp);
        self.totals.retransmissions += 1;
        let head = self.board.first().is_some_and(|first| first.start == start);
        if head && self.timer.is_none_or(|(timer, _)| timer != Timer::Reordering) {
            self.arm(Timer::Retransmission, now, self.rtt.rto());
        }
        // Never one burst with what is elsewhere in the stream.
        self.pacer.end_burst();
        let fin = end > self.written;
        let payload = (end - start) as u32 - u32::from(fin);
        let burst = self.note_sent(now, payload);
        Some(Outgoing {
            start,
            payload,
            fin,
            psh: end >= self.end(),
            cwr: false,
            retransmission: true,
            burst,
        })
    }

    fn note_sent(&mut self, now: Time, payload: u32) -> u64 {
        if self.is_reducing() {
            self.prr.sent();
        }
        self.round.sent = true;
        self.last_sent = now;
        let burst = self.burst(now, payload);
        self.totals.data_segments += 1;
        burst
    }

    /// Nothing more may go now: looks at what limited sending.
    fn end_round(&mut self, now: Time) {
        self.pacer.end_burst();
        let Round { sent, sent_new, window_limited } = std::mem::take(&mut self.round);
        let in_flight = self.board.in_flight();
        let limited = window_limited || in_flight >= self.cwnd();
        if sent || limited {
            self.validate_window(now, limited);
        }
        if sent_new && self.timer.is_none_or(|(timer, _)| timer != Timer::Reordering) {
            self.arm_tail_probe(now, false);
        }
        if self.nxt < self.end() && self.board.is_empty() && self.timer.is_none() {
            // The peer's window is all that can keep it.
            if self.right_edge.saturating_sub(self.nxt) < u64::from(self.config.mss)
                && self.pacer.wakeup().is_none()
            {
                self.arm(Timer::Persist, now, self.rtt.rto());
            }
        }
        let idle = self.unsent() < u64::from(self.config.mss) && in_flight < self.cwnd();
        if idle && self.board.lost() <= self.board.retransmitted() {
            self.deliveries.app_limited(in_flight);
        }
    }

    /// Notes how much of the window is used, and takes back what is not for long (RFC 2861).
    fn validate_window(&mut self, now: Time, limited: bool) {
        let out = self.board.len();
        let validation = &mut self.cwnd_validation;
        if self.una >= validation.until
            || (limited && !validation.limited)
            || out > validation.most_out
        {
            validation.limited = limited;
            validation.most_out = out;
            validation.until = self.nxt;
        }
        if self.is_window_limited() {
            self.cwnd_validation.used = 0;
            self.cwnd_validation.since = now;
            return;
        }
        self.cwnd_validation.used = self.cwnd_validation.used.max(out);
        let unused = now.since(self.cwnd_validation.since) >= self.rtt.rto();
        if self.config.tcp_slow_start_after_idle && unused && !self.owns_rate() {
            self.take_back_unused(now);
        }
    }

    /// RFC 2861, section 3.2: the window goes half way to what is used.
    fn take_back_unused(&mut self, now: Time) {
        if self.state == State::Open {
            let (cwnd, used) = (self.cwnd(), self.cwnd_validation.used.max(self.config.initcwnd));
            if used < cwnd {
                self.keep_threshold();
                self.control.set_cwnd((cwnd + used) / 2);
            }
            self.cwnd_validation.used = 0;
        }
        self.cwnd_validation.since = now;
    }

    /// Whether the window limits sending: twice what is used counts as needed in slow start
    /// (RFC 7661, 4.3; Linux).
    pub(super) fn is_window_limited(&self) -> bool {
        let cwnd = self.cwnd();
        self.cwnd_validation.limited
            || (cwnd < self.control.ssthresh() && cwnd < 2 * self.cwnd_validation.most_out)
    }

    /// RFC 5681, section 4.1, and RFC 2861: half the window for each timeout spent idle.
    fn restart_after_idle(&mut self, now: Time) {
        if !self.config.tcp_slow_start_after_idle || self.owns_rate() {
            return;
        }
        let (idle, rto) = (now.since(self.last_sent), self.rtt.rto());
        if idle <= rto {
            return;
        }
        self.keep_threshold();
        let restart = self.config.initcwnd.min(self.cwnd());
        let (mut cwnd, mut left) = (self.cwnd(), idle.saturating_sub(rto));
        while left > Span::ZERO && cwnd > restart {
            cwnd /= 2;
            left = left.saturating_sub(rto);
        }
        self.control.set_cwnd(cwnd.max(restart));
        let connection = self.connection(now);
        self.control.on_restart(&connection);
        self.cwnd_validation.since = now;
        self.cwnd_validation.used = 0;
        self.last_sent = now;
    }

    /// The threshold remembers the window that was.
    fn keep_threshold(&mut self) {
        let cwnd = self.cwnd();
        let remembered = self.control.ssthresh().max(cwnd / 2 + cwnd / 4);
        self.control.set_ssthresh(remembered);
    }
}
