//! What of a sender is told to those who watch it. Where nobody does it costs a look at a null pointer.

use midspan_cc::{Control, State};
use midspan_units::{Span, Time};

use super::Sender;
use crate::event::{CongestionState, Event, LossDetection, SenderMetrics, Timer};

impl Sender {
    /// From now on events are told.
    pub(crate) fn watch(&mut self) {
        self.watch = Some(Box::default());
        self.board.watch();
    }

    /// Those since they were taken last.
    pub(crate) fn take_events(&mut self) -> Vec<(Time, Event)> {
        self.watch.as_mut().map_or_else(Vec::new, |watch| watch.take())
    }

    pub(super) fn tell(&mut self, now: Time, event: impl FnOnce() -> Event) {
        if let Some(watch) = &mut self.watch {
            watch.tell(now, event());
        }
    }

    /// What was marked lost since this was told last.
    pub(super) fn tell_lost(&mut self, now: Time, by: LossDetection) {
        if let Some(watch) = &mut self.watch {
            for range in self.board.take_marked() {
                watch.tell(now, Event::Lost { range, by });
            }
        }
    }

    pub(super) fn tell_expired(&mut self, now: Time, timer: Timer) {
        if let Some(watch) = &mut self.watch {
            watch.expired(now, timer);
        }
    }

    /// An acknowledgement or a timer has had its effect on how the window is governed.
    pub(super) fn tell_congestion(&mut self, now: Time) {
        let state = self.congestion_state();
        if let Some(watch) = &mut self.watch {
            watch.congestion(now, state);
        }
    }

    /// All that may be sent now is sent.
    pub(super) fn tell_standing(&mut self, now: Time) {
        self.tell_congestion(now);
        if let Some(mut watch) = self.watch.take() {
            watch.metrics(now, self.metrics());
            watch.timer(now, self.timer);
            self.watch = Some(watch);
        }
    }

    fn congestion_state(&self) -> CongestionState {
        match self.state {
            State::Cwr => CongestionState::Cwr,
            State::Recovery => CongestionState::Recovery,
            State::Loss => CongestionState::Loss,
            State::Open | State::Disorder if self.owns_rate() => CongestionState::Open,
            State::Open | State::Disorder if self.control.in_slow_start() => {
                CongestionState::SlowStart
            }
            State::Open | State::Disorder => CongestionState::CongestionAvoidance,
        }
    }

    fn metrics(&self) -> SenderMetrics {
        let ssthresh = self.control.ssthresh();
        SenderMetrics {
            cwnd: self.cwnd(),
            ssthresh: (ssthresh < Control::SSTHRESH_INFINITE).then_some(ssthresh),
            srtt: self.rtt.smoothed(),
            rttvar: self.rtt.deviation(),
            min_rtt: self.rtt.min().unwrap_or(Span::ZERO),
            rto: self.rtt.rto(),
            packets_in_flight: self.board.in_flight(),
            bytes_in_flight: self.board.bytes_in_flight(self.config.mss),
            pacing_rate: self.control.pacing_rate(),
        }
    }
}
