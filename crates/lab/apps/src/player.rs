//! A video player: when it plays, and when it stands still for want of data.

use midspan_scenario::Video;
use midspan_units::{Span, Time};

/// Plays a video of a constant rate while it is downloaded, as a browser's HTML5 player does: it begins
/// when so much is buffered, stands still when the buffer has run out, and goes on when so much is buffered
/// again or all of it is there.
#[derive(Debug, Clone)]
pub struct Player {
    /// Bits per second.
    rate: u64,
    duration: Span,
    start: Span,
    resume: Span,
    begin: Time,
    /// Bytes that have come.
    arrived: u64,
    state: State,
    started: Option<Time>,
    stalls: u32,
    stalled: Span,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Stands at `at`, since then.
    Waiting {
        since: Time,
        at: Span,
    },
    /// Plays, since then from `at`.
    Playing {
        since: Time,
        at: Span,
    },
    Ended,
}

impl Player {
    /// Is told to play `video` at `now`.
    pub fn new(video: &Video, now: Time) -> Player {
        Player {
            rate: video.rate.as_bps(),
            duration: video.duration,
            start: video.start,
            resume: video.resume,
            begin: now,
            arrived: 0,
            state: State::Waiting { since: now, at: Span::ZERO },
            started: None,
            stalls: 0,
            stalled: Span::ZERO,
        }
    }

    /// So many bytes of the video came. What was due before comes first.
    pub fn received(&mut self, now: Time, bytes: u64) {
        if self.wakeup().is_some_and(|at| at < now) {
            self.turn(now);
        }
        self.arrived += bytes;
        self.turn(now);
    }

    /// Does what is due at `now`: call it when [`Player::wakeup`] says so.
    pub fn turn(&mut self, now: Time) {
        let available = self.available();
        match self.state {
            State::Playing { since, at } if now.since(since) >= available - at => {
                if available == self.duration {
                    self.state = State::Ended;
                } else {
                    self.stalls += 1;
                    let since = since + (available - at);
                    self.state = State::Waiting { since, at: available };
                }
            }
            State::Waiting { since, at } => {
                let wanted = if self.started.is_some() { self.resume } else { self.start };
                if available - at >= wanted || available == self.duration {
                    if self.started.is_some() {
                        self.stalled += now.since(since);
                    }
                    self.started.get_or_insert(now);
                    self.state = State::Playing { since: now, at };
                }
            }
            State::Playing { .. } | State::Ended => {}
        }
    }

    /// When the buffer runs out, or the video ends, if nothing comes.
    pub fn wakeup(&self) -> Option<Time> {
        match self.state {
            State::Playing { since, at } => Some(since + (self.available() - at)),
            State::Waiting { .. } | State::Ended => None,
        }
    }

    /// How much of the video is there.
    fn available(&self) -> Span {
        let nanos = u128::from(self.arrived) * 8_000_000_000 / u128::from(self.rate.max(1));
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(self.duration)
    }

    /// Whether it has played to the end.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// From being told to play until it played; none if it has not yet.
    pub fn start_up(&self) -> Option<Span> {
        self.started.map(|at| at.since(self.begin))
    }

    /// How often it stood still after it had begun.
    pub fn stalls(&self) -> u32 {
        self.stalls
    }

    /// For how long in all, by `now`.
    pub fn stalled(&self, now: Time) -> Span {
        match self.state {
            State::Waiting { since, .. } if self.started.is_some() => {
                self.stalled + now.since(since)
            }
            _ => self.stalled,
        }
    }
}

#[cfg(test)]
mod tests {
    use midspan_units::{ByteSize, Rate};
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// 10 s at 8 kbit/s: a byte is a millisecond.
    fn video() -> Video {
        Video {
            rate: Rate::from_bps(8000),
            duration: Span::from_secs(10),
            start: Span::from_secs(2),
            resume: Span::from_secs(1),
            request: ByteSize::from_bytes(100),
            lookup: Span::ZERO,
            count: 1,
            limit: Span::from_secs(600),
        }
    }

    #[test]
    fn it_starts_stalls_goes_on_and_ends() {
        let mut player = Player::new(&video(), at(0));
        player.received(at(1000), 1999);
        assert_eq!((player.start_up(), player.wakeup()), (None, None));
        player.received(at(1500), 1);
        assert_eq!(player.start_up(), Some(Span::from_millis(1500)));
        assert_eq!(player.wakeup(), Some(at(3500)));
        player.turn(at(3500));
        assert_eq!((player.stalls(), player.wakeup()), (1, None));
        player.received(at(4000), 999);
        assert_eq!(player.stalled(at(4100)), Span::from_millis(600), "not enough yet");
        player.received(at(4200), 1);
        assert_eq!((player.stalls(), player.stalled(at(9000))), (1, Span::from_millis(700)));
        // All the rest at once: it plays the seven and a second that are left.
        player.received(at(4300), 7000);
        assert_eq!(player.wakeup(), Some(at(12_200)));
        player.turn(at(12_200));
        assert!(player.is_done());
    }

    #[test]
    fn a_rest_shorter_than_the_buffer_wanted_is_played() {
        let mut player = Player::new(&video(), at(0));
        player.received(at(0), 9500);
        player.turn(at(9500));
        assert_eq!(player.stalls(), 1);
        player.received(at(9600), 500);
        assert_eq!(player.wakeup(), Some(at(10_100)));
    }

    proptest! {
        /// From start to end passes what the video takes and what it stood still.
        #[test]
        fn time_is_played_or_stood(gaps in prop::collection::vec((0u64..3000, 1u64..2000), 1..60)) {
            let mut player = Player::new(&video(), at(0));
            let mut now = 0;
            for (gap, bytes) in gaps.into_iter().chain([(0, 10_000)]) {
                now += gap;
                while let Some(due) = player.wakeup().filter(|due| *due < at(now)) {
                    player.turn(due);
                }
                if !player.is_done() {
                    player.received(at(now), bytes);
                }
            }
            let mut end = at(now);
            while let Some(due) = player.wakeup() {
                end = due;
                player.turn(due);
            }
            prop_assert!(player.is_done());
            let started = player.start_up().unwrap();
            if end > at(now) {
                let passed = end.since(at(0)) - started;
                prop_assert_eq!(passed, Span::from_secs(10) + player.stalled(end));
            }
        }
    }
}
