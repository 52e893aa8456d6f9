//! What is in flight, segment by segment (RFC 2018, section 8; RFC 6675), in a ring that is as long
//! as the window.

use std::collections::VecDeque;

use midspan_units::Time;

use super::rate::Stamp;
use crate::ranges::Ranges;

/// A segment that was sent and is not yet acknowledged cumulatively.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Position of its first byte.
    pub(crate) start: u64,
    /// Position after its last byte, or its FIN.
    pub(crate) end: u64,
    /// The first of its burst.
    pub(crate) leads: bool,
    /// When it was last sent.
    pub(crate) at: Time,
    /// How many segments had been sent then: of several that went at one time it says which was first. The scoreboard counts.
    pub(crate) order: u64,
    /// For the delivery rate, as of when it was last sent.
    pub(crate) stamp: Stamp,
    /// Delivered, by a SACK.
    pub(crate) sacked: bool,
    /// Held lost. Stays so when it is sent again.
    pub(crate) lost: bool,
    /// Sent again, and not held lost since.
    pub(crate) retransmitted: bool,
    /// Ever sent again.
    pub(crate) ever_retransmitted: bool,
    /// It was held lost by mistake. RACK does not judge it anew (Linux); a timeout does.
    pub(crate) forgiven: bool,
}

impl Sent {
    /// Whether it was sent before another one (RFC 8985, 6.2). That breaks a tie of times by position; here what several
    /// acknowledgements let go has one time, and a retransmission may have gone behind what is beyond it.
    pub(crate) fn before(&self, order: u64) -> bool {
        self.order < order
    }
}

/// The segments in flight. They are numbered from the start of the connection.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    segments: VecDeque<Sent>,
    /// Segments sent since the start of the connection, retransmissions too.
    ever_sent: u64,
    /// Number of the first of them.
    first: u64,
    /// Those that lead a burst.
    leaders: u32,
    sacked_ranges: Ranges,
    sacked: u32,
    /// Segments delivered out of order as far as duplicate acknowledgements tell, without saying which.
    guessed: u32,
    lost: u32,
    retransmitted: u32,
    /// Segments held lost since the start of the connection.
    ever_lost: u64,
    /// No segment before this one is lost and waits to be sent again.
    next_lost: u64,
    /// No segment before this one is sent once and neither SACKed nor lost.
    next_fresh: u64,
    /// Retransmissions in the order in which they went, and the number of each. Some of them are over.
    retransmissions: VecDeque<(u64, u64)>,
    /// Ranges of segments held lost since they were taken, where somebody wants to know.
    marked: Option<Vec<(u64, u64)>>,
}

impl Scoreboard {
    /// Segments neither acknowledged cumulatively.
    pub(crate) fn len(&self) -> u32 {
        self.segments.len() as u32
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bursts that are not acknowledged as a whole.
    pub(crate) fn bursts(&self) -> u32 {
        self.leaders + u32::from(self.first().is_some_and(|first| !first.leads))
    }

    /// Segments delivered out of order.
    pub(crate) fn sacked(&self) -> u32 {
        self.sacked + self.guessed
    }

    /// Some segment was delivered out of order, and is not known. At least one is missing, or nothing
    /// would be out of order. Whether it was not counted yet.
    pub(crate) fn guess_delivered(&mut self) -> bool {
        let possible = self.guessed + self.lost.max(1) < self.len();
        self.guessed += u32::from(possible);
        possible
    }

    /// Up to `count` of those are known now. How many.
    pub(crate) fn release_guesses(&mut self, count: u32) -> u32 {
        let released = self.guessed.min(count);
        self.guessed -= released;
        self.keep_guesses_possible();
        released
    }

    /// Nothing is known of what was delivered out of order.
    pub(crate) fn forget_guesses(&mut self) {
        self.guessed = 0;
    }

    fn keep_guesses_possible(&mut self) {
        self.guessed = self.guessed.min(self.len().saturating_sub(self.lost.max(1)));
    }

    /// Segments held lost, sent again or not.
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    /// Retransmissions in flight.
    pub(crate) fn retransmitted(&self) -> u32 {
        self.retransmitted
    }

    /// Segments ever held lost.
    pub(crate) fn ever_lost(&self) -> u64 {
        self.ever_lost
    }

    /// Segments in the network, as far as is known (RFC 6675's pipe).
    pub(crate) fn in_flight(&self) -> u32 {
        self.len() + self.retransmitted - self.sacked - self.guessed - self.lost
    }

    /// Bytes of these. Of what duplicate acknowledgements tell of without saying which, segments are full: `mss` bytes.
    pub(crate) fn bytes_in_flight(&self, mss: u32) -> u64 {
        let bytes = |segment: &Sent| {
            let times = 1 + u64::from(segment.retransmitted)
                - u64::from(segment.sacked)
                - u64::from(segment.lost);
            times * (segment.end - segment.start)
        };
        let known: u64 = self.segments.iter().map(bytes).sum();
        known.saturating_sub(u64::from(self.guessed) * u64::from(mss))
    }

    /// Keeps the ranges of segments that are held lost.
    pub(crate) fn watch(&mut self) {
        self.marked = Some(Vec::new());
    }

    /// Those since they were taken last.
    pub(crate) fn take_marked(&mut self) -> Vec<(u64, u64)> {
        self.marked.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Position after the highest byte SACKed; zero if none is.
    pub(crate) fn highest_sacked(&self) -> u64 {
        self.sacked_ranges.end()
    }

    pub(crate) fn first(&self) -> Option<&Sent> {
        self.segments.front()
    }

    /// Number of the last segment.
    pub(crate) fn last_number(&self) -> Option<u64> {
        (self.first + self.segments.len() as u64).checked_sub(1).filter(|_| !self.is_empty())
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Sent> {
        self.segments.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Sent> {
        self.segments.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// A segment was sent for the first time.
    pub(crate) fn push(&mut self, segment: Sent) {
        self.leaders += u32::from(segment.leads);
        self.segments.push_back(Sent { order: self.ever_sent, ..segment });
        self.ever_sent += 1;
    }

    /// Takes out what is acknowledged up to `una`, segment by segment. One that is acknowledged in
    /// part stays, shortened.
    pub(crate) fn acknowledge(&mut self, una: u64, mut each: impl FnMut(&Sent)) {
        while let Some(segment) = self.segments.front() {
            if segment.end > una {
                break;
            }
            self.leaders -= u32::from(segment.leads);
            self.sacked -= u32::from(segment.sacked);
            self.lost -= u32::from(segment.lost);
            self.retransmitted -= u32::from(segment.retransmitted);
            each(segment);
            self.segments.pop_front();
            self.first += 1;
        }
        if let Some(segment) = self.segments.front_mut() {
            segment.start = segment.start.max(una);
        }
        self.sacked_ranges.drop_below(una);
        self.next_lost = self.next_lost.max(self.first);
        self.next_fresh = self.next_fresh.max(self.first);
        if self.segments.is_empty() {
            self.retransmissions.clear();
        }
    }

    /// Marks what a SACK block covers and none did before, segment by segment.
    pub(crate) fn sack(&mut self, start: u64, end: u64, mut each: impl FnMut(&Sent)) {
        let Scoreboard { segments, sacked, lost, retransmitted, .. } = self;
        self.sacked_ranges.insert(start, end, |start, end| {
            let from = segments.partition_point(|segment| segment.start < start);
            for segment in segments.range_mut(from..).take_while(|segment| segment.end <= end) {
                if segment.sacked {
                    continue;
                }
                each(segment);
                *lost -= u32::from(std::mem::take(&mut segment.lost));
                *retransmitted -= u32::from(std::mem::take(&mut segment.retransmitted));
                *sacked += 1;
                segment.sacked = true;
            }
        });
    }

    /// Whether `number` is in flight, as far as is known: neither SACKed, nor lost and waiting.
    fn is_flying(segment: &Sent) -> bool {
        !segment.sacked && (!segment.lost || segment.retransmitted)
    }

    fn mark_lost(&mut self, number: u64) {
        let Some(segment) = self.get_mut(number).filter(|segment| Self::is_flying(segment)) else {
            return;
        };
        let range = (segment.start, segment.end);
        let again = std::mem::take(&mut segment.retransmitted);
        let first = !std::mem::replace(&mut segment.lost, true);
        self.retransmitted -= u32::from(again);
        self.lost += u32::from(first);
        self.ever_lost += 1;
        self.next_lost = self.next_lost.min(number);
        if let Some(marked) = &mut self.marked {
            marked.push(range);
        }
    }

    /// Holds the first segment lost.
    pub(crate) fn mark_first_lost(&mut self) {
        self.mark_lost(self.first);
        self.keep_guesses_possible();
    }

    /// Holds no segment lost any more. What was sent again stays so.
    pub(crate) fn forgive(&mut self) {
        for segment in &mut self.segments {
            segment.forgiven |= std::mem::take(&mut segment.lost) && !segment.retransmitted;
        }
        self.lost = 0;
        self.next_fresh = self.first;
    }

    /// Looks at every segment that was sent before the one of that order and may be in flight: `expired`
    /// says whether to hold it lost. Stops early where only later ones follow.
    pub(crate) fn judge(&mut self, order: u64, mut expired: impl FnMut(&Sent) -> bool) {
        // Those sent once were sent in the order of their numbers.
        let mut passed = true;
        let mut number = self.next_fresh;
        while let Some(segment) = self.get(number) {
            if segment.sacked {
                // Past the whole range at once.
                let beyond = self.sacked_ranges.end_of(segment.start).unwrap_or(segment.end);
                let offset = self.segments.partition_point(|segment| segment.start < beyond);
                number = (self.first + offset as u64).max(number + 1);
            } else if segment.lost || segment.retransmitted {
                number += 1;
            } else if !segment.before(order) && !segment.ever_retransmitted {
                break;
            } else if segment.before(order) && expired(segment) {
                self.mark_lost(number);
                number += 1;
            } else {
                passed = false;
                number += 1;
                continue;
            }
            if passed {
                self.next_fresh = number;
            }
        }
        let mut index = 0;
        while let Some(&(sent, number)) = self.retransmissions.get(index) {
            let flying = self.get(number).filter(|segment| {
                segment.order == sent && segment.retransmitted && !segment.sacked
            });
            match flying {
                Some(segment) if !segment.before(order) => break,
                Some(segment) if !expired(segment) => {
                    index += 1;
                    continue;
                }
                Some(_) => self.mark_lost(number),
                None => {}
            }
            self.retransmissions.remove(index);
        }
    }

    /// The first segment that is lost and waits to be sent again.
    pub(crate) fn next_lost(&mut self) -> Option<u64> {
        if self.lost <= self.retransmitted {
            return None;
        }
        while let Some(segment) = self.get(self.next_lost) {
            if segment.lost && !segment.retransmitted {
                return Some(self.next_lost);
            }
            self.next_lost += 1;
        }
        None
    }

    /// Whether the segment at `start` is in flight no more, by a SACK, and was sent again.
    pub(crate) fn was_repeated(&self, start: u64) -> bool {
        let index = self.segments.partition_point(|segment| segment.end <= start);
        self.segments.get(index).is_some_and(|segment| segment.sacked && segment.ever_retransmitted)
    }

    /// `number` is sent again.
    pub(crate) fn retransmit(&mut self, number: u64, now: Time, stamp: Stamp) {
        let order = self.ever_sent;
        let Some(segment) = self.get_mut(number) else { return };
        let already = std::mem::replace(&mut segment.retransmitted, true);
        (segment.ever_retransmitted, segment.forgiven) = (true, false);
        (segment.at, segment.order) = (now, order);
        segment.stamp = stamp;
        self.retransmitted += u32::from(!already);
        self.ever_sent += 1;
        self.retransmissions.push_back((order, number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// Segments of 10 bytes, number n sent at n.
    fn board(segments: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for n in 0..segments {
            board.push(Sent {
                start: n * 10,
                end: n * 10 + 10,
                leads: true,
                at: at(n),
                order: n,
                stamp: Stamp::default(),
                sacked: false,
                lost: false,
                forgiven: false,
                retransmitted: false,
                ever_retransmitted: false,
            });
        }
        board
    }

    fn sack(board: &mut Scoreboard, start: u64, end: u64) -> Vec<u64> {
        let mut fresh = Vec::new();
        board.sack(start, end, |segment| fresh.push(segment.start / 10));
        fresh
    }

    #[test]
    fn a_block_counts_once() {
        let mut board = board(10);
        assert_eq!(sack(&mut board, 20, 40), [2, 3]);
        assert_eq!(sack(&mut board, 20, 40), []);
        assert_eq!(sack(&mut board, 10, 60), [1, 4, 5]);
        assert_eq!((board.sacked(), board.in_flight(), board.highest_sacked()), (5, 5, 60));
        let mut acked = 0;
        board.acknowledge(45, |_| acked += 1);
        assert_eq!((acked, board.sacked(), board.len()), (4, 2, 6));
        assert_eq!(board.first().map(|segment| segment.start), Some(45));
    }

    #[test]
    fn the_pipe_is_what_rfc_6675_says() {
        let mut board = board(10);
        sack(&mut board, 50, 100);
        board.judge(9, |segment| segment.start < 30);
        assert_eq!((board.lost(), board.in_flight()), (3, 2));
        assert_eq!(board.next_lost(), Some(0));
        board.retransmit(0, at(20), Stamp::default());
        assert_eq!((board.next_lost(), board.in_flight()), (Some(1), 3));
        // The retransmission itself is lost.
        board.judge(u64::MAX, |segment| segment.start == 0);
        assert_eq!((board.next_lost(), board.in_flight(), board.ever_lost()), (Some(0), 2, 4));
        board.forgive();
        assert_eq!((board.lost(), board.next_lost(), board.in_flight()), (0, None, 5));
    }

    /// What one acknowledgement lets go after the other at one time was sent in that order.
    #[test]
    fn a_retransmission_goes_behind_what_went_at_the_same_time() {
        let mut board = board(10);
        sack(&mut board, 50, 90);
        board.judge(8, |segment| segment.start == 0);
        board.retransmit(0, at(9), Stamp::default());
        sack(&mut board, 90, 100);
        board.judge(9, |segment| segment.start == 0);
        assert_eq!((board.next_lost(), board.ever_lost()), (None, 1));
        board.judge(11, |segment| segment.start == 0);
        assert_eq!((board.next_lost(), board.ever_lost()), (Some(0), 2));
    }

    #[test]
    fn only_what_was_sent_before_is_judged() {
        let mut board = board(10);
        sack(&mut board, 40, 60);
        let mut judged = Vec::new();
        board.judge(7, |segment| {
            judged.push(segment.start / 10);
            false
        });
        assert_eq!(judged, [0, 1, 2, 3, 6]);
    }
}
