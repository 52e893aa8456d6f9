//! What connections to a server begin with, by what earlier ones have shown of the way there (RFC 9040 calls that temporal
//! sharing): each that has lost nothing lets the next begin with twice as much, within half of what the way was seen to carry
//! in a round trip.

use std::hash::Hash;

use midspan_units::{Rate, Span, Time};

use crate::defaults::INITIAL_WINDOW;
use crate::first_window::{has_been, has_waited};
use crate::parts::{PARTS, Parts};

/// How long what was seen of a way is believed.
const MEMORY: Span = Span::from_secs(600);

/// The most that a connection begins with, in packets.
const MOST: u32 = 100;

/// So many first windows long is what tells of the first one, if something was lost.
const FIRST: u32 = 8;

/// What a connection to a server has shown when it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// What it was made to begin with, in packets; none if as the kernel has it.
    pub began: Option<u32>,
    /// Its window at the end, in packets.
    pub window: u32,
    /// Packets sent, those sent again included.
    pub sent: u32,
    /// Packets sent again that the server had not got already.
    pub lost: u32,
    /// At what rate the way has carried all of it, while there was something to carry.
    pub rate: Rate,
    /// Its least round trip; zero if none was measured.
    pub round_trip: Span,
    /// Bytes of a packet.
    pub packet: u32,
}

impl Shown {
    /// Bytes below which a connection says nothing: what is sent at once anyway.
    pub const LEAST: u64 = INITIAL_WINDOW as u64 * 1448;

    /// What it began with.
    fn first(&self) -> u32 {
        self.began.unwrap_or(INITIAL_WINDOW)
    }

    /// Packets that the way has carried in a round trip, in the mean.
    fn carried(&self) -> u32 {
        let bytes = self.rate.bytes_in(self.round_trip).as_bytes();
        u32::try_from(bytes / u64::from(self.packet.max(1))).unwrap_or(u32::MAX)
    }

    /// What the next one may begin with: only who has filled a window has a larger one at the end, and only who has lost
    /// nothing knows that the way takes it at once.
    fn next(&self) -> Option<u32> {
        let filled = self.lost == 0 && self.window > self.first();
        let most = (self.carried() / 2).min(MOST);
        filled.then_some(most.min(self.first().saturating_mul(2)))
    }

    /// Whether it began with more than the kernel's, and may have lost of that.
    fn is_hurt(&self) -> bool {
        let of_first = self.sent <= self.first().saturating_mul(FIRST);
        self.began.is_some() && self.lost > 0 && of_first
    }
}

/// What is known of the ways to servers, for all workers. A server is whatever the caller tells servers apart by.
///
/// Memory is taken at the start, for so many as are remembered at most: [`ServerPaths::ROOM`].
#[derive(Debug)]
pub struct ServerPaths<S> {
    servers: Parts<S, ServerPath>,
}

#[derive(Debug)]
struct ServerPath {
    /// What the next connection may begin with, in packets.
    next: u32,
    /// The least round trip that was seen.
    round_trip: Span,
    /// When `next` was last shown to be right.
    shown: Time,
    /// What was too much, and when.
    hurt: Option<(u32, Time)>,
    /// When a connection last began with more than the kernel's.
    begun: Option<Time>,
}

impl ServerPath {
    fn is_known(&self, now: Time) -> bool {
        has_been(self.shown, now, MEMORY)
    }

    /// Whether a round trip of so long is another way's, or has a queue in it.
    fn is_other(&self, round_trip: Span) -> bool {
        has_waited(round_trip, self.round_trip) || has_waited(self.round_trip, round_trip)
    }

    /// As much may be begun with, by what was too much lately.
    fn most(&self, now: Time) -> u32 {
        let lately = self.hurt.filter(|(_, when)| has_been(*when, now, MEMORY));
        lately.map_or(MOST, |(window, _)| window / 2)
    }
}

impl<S: Copy + Eq + Hash> ServerPaths<S> {
    /// How many servers are remembered.
    pub const ROOM: usize = 1 << 14;

    const ROOM_OF_PART: usize = Self::ROOM / PARTS;

    /// Whether anything may be known of the way to a server: of most nothing is, who only answer short requests.
    pub fn is_known(&self, server: &S, now: Time) -> bool {
        self.servers.of(server).get(server).is_some_and(|path| path.is_known(now))
    }

    /// The window to begin with, in packets, of a connection to a server whose `handshake` took so long and on which nothing
    /// was sent yet; none if that is the one that the `kernel` has given it.
    ///
    /// One whose SYN was lost begins with one packet (RFC 6928, section 2), and keeps to that; and only one begins with more
    /// within a round trip, so that several do not add up.
    pub fn first(&self, server: &S, now: Time, handshake: Span, kernel: u32) -> Option<u32> {
        let mut part = self.servers.of(server);
        let path = part.get_mut(server).filter(|path| path.is_known(now))?;
        let beside = path.begun.is_some_and(|begun| has_been(begun, now, handshake));
        let wanted = path.next.min(path.most(now));
        if kernel <= 1 || wanted <= kernel || beside || path.is_other(handshake) {
            return None;
        }
        path.begun = Some(now);
        Some(wanted)
    }

    /// Takes in what a connection to a server has shown.
    pub fn over(&self, server: S, now: Time, shown: Shown) {
        let mut part = self.servers.of(&server);
        if shown.is_hurt() {
            if let Some(path) = part.get_mut(&server) {
                path.hurt = Some((shown.first(), now));
                path.next = INITIAL_WINDOW;
            }
            return;
        }
        let Some(next) = shown.next().filter(|next| *next > INITIAL_WINDOW) else { return };
        let round_trip = shown.round_trip;
        let former = part.remove(&server);
        let same = former.filter(|path| path.is_known(now) && !path.is_other(round_trip));
        if part.len() >= Self::ROOM_OF_PART {
            part.retain(|_, path| path.is_known(now));
        }
        if part.len() >= Self::ROOM_OF_PART {
            return;
        }
        let mut path =
            same.unwrap_or(ServerPath { next, round_trip, shown: now, hurt: None, begun: None });
        // Short ones show less than there is.
        if next >= path.next {
            (path.next, path.shown) = (next, now);
        }
        path.round_trip = path.round_trip.min(round_trip);
        part.insert(server, path);
    }
}

impl<S: Copy + Eq + Hash> Default for ServerPaths<S> {
    fn default() -> Self {
        ServerPaths { servers: Parts::with_capacity(Self::ROOM) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Time = Time::from_nanos(1_000_000_000_000);
    const RTT: Span = Span::from_millis(50);
    const KERNEL: u32 = 10;

    /// Has filled its window, lost nothing, and seen so many packets carried in a round trip.
    fn clean(began: Option<u32>, carried: u32) -> Shown {
        let rate = Rate::of(u64::from(carried) * 1448 + 1, RTT);
        Shown { began, window: 200, sent: 500, lost: 0, rate, round_trip: RTT, packet: 1448 }
    }

    /// The window of a connection that begins now.
    fn begin(paths: &ServerPaths<u8>, now: Time) -> Option<u32> {
        paths.first(&1, now, RTT, KERNEL)
    }

    /// Connections to one server one after the other, each clean: what they begin with.
    fn windows(paths: &ServerPaths<u8>, from: Time, carried: u32, many: u64) -> Vec<u32> {
        let at = |number| from + Span::from_secs(number);
        let mut next = |number| {
            let began = begin(paths, at(number));
            paths.over(1, at(number), clean(began, carried));
            began.unwrap_or(KERNEL)
        };
        (0..many).map(&mut next).collect()
    }

    #[test]
    fn each_lets_the_next_begin_with_twice_as_much() {
        assert_eq!(windows(&ServerPaths::default(), NOW, 1000, 6), [10, 20, 40, 80, 100, 100]);
    }

    #[test]
    fn none_begins_with_more_than_half_of_what_the_way_carries() {
        assert_eq!(windows(&ServerPaths::default(), NOW, 38, 4), [10, 19, 19, 19]);
        assert_eq!(windows(&ServerPaths::default(), NOW, 20, 4), [10; 4]);
    }

    #[test]
    fn what_was_lost_of_a_first_window_takes_it_back_for_some_time() {
        let paths = ServerPaths::default();
        windows(&paths, NOW, 1000, 3);
        let later = NOW + Span::from_secs(3);
        let began = begin(&paths, later);
        assert_eq!(began, Some(80));
        let hurt = Shown { lost: 5, ..clean(began, 1000) };
        paths.over(1, later, hurt);
        assert_eq!(windows(&paths, later + RTT, 1000, 5), [10, 20, 40, 40, 40]);
        paths.over(1, later + (MEMORY - RTT), clean(None, 1000));
        assert_eq!(begin(&paths, later + (MEMORY - RTT)), Some(40));
        assert_eq!(begin(&paths, later + MEMORY), Some(80));
    }

    #[test]
    fn what_a_long_one_has_lost_says_nothing_of_its_first_window() {
        let paths = ServerPaths::default();
        windows(&paths, NOW, 1000, 2);
        let later = NOW + Span::from_secs(2);
        paths.over(1, later, Shown { lost: 5, sent: 161, ..clean(Some(20), 1000) });
        assert_eq!(begin(&paths, later), Some(40));
    }

    #[test]
    fn who_has_not_filled_a_window_or_has_lost_something_shows_nothing() {
        for shown in [
            Shown { window: 10, ..clean(None, 1000) },
            Shown { lost: 1, ..clean(None, 1000) },
            Shown { round_trip: Span::ZERO, ..clean(None, 1000) },
        ] {
            let paths = ServerPaths::default();
            paths.over(1, NOW, shown);
            assert!(!paths.is_known(&1, NOW), "{shown:?}");
            assert_eq!(begin(&paths, NOW), None);
        }
    }

    #[test]
    fn one_at_a_time() {
        let paths = ServerPaths::default();
        paths.over(1, NOW, clean(None, 1000));
        let at = [Span::ZERO, Span::from_millis(49), RTT];
        assert_eq!(at.map(|later| begin(&paths, NOW + later)), [Some(20), None, Some(20)]);
        assert_eq!(paths.first(&2, NOW, RTT, KERNEL), None);
    }

    #[test]
    fn on_another_way_nothing_is_known() {
        let paths = ServerPaths::default();
        paths.over(1, NOW, clean(None, 1000));
        let first =
            |handshake: u64, kernel| paths.first(&1, NOW, Span::from_millis(handshake), kernel);
        assert_eq!([first(86, KERNEL), first(26, KERNEL), first(0, KERNEL)], [None; 3]);
        // Nor where a SYN was lost, or where the route has as much.
        assert_eq!([first(50, 1), first(50, 20)], [None; 2]);
        assert_eq!(first(85, KERNEL), Some(20));
        paths.over(1, NOW, Shown { round_trip: RTT * 2, ..clean(Some(20), 1000) });
        assert_eq!(begin(&paths, NOW + Span::from_secs(1)), None);
    }

    #[test]
    fn a_way_is_known_for_some_time() {
        let paths = ServerPaths::default();
        paths.over(1, NOW, clean(None, 1000));
        assert!(paths.is_known(&1, NOW + (MEMORY - RTT)) && !paths.is_known(&1, NOW + MEMORY));
        assert_eq!(begin(&paths, NOW + MEMORY), None);
        // Another worker's clock may be behind.
        assert_eq!(begin(&paths, Time::ZERO), Some(20));
    }

    #[test]
    fn those_that_show_less_neither_take_anything_back_nor_keep_it_known() {
        let paths = ServerPaths::default();
        windows(&paths, NOW, 1000, 3);
        let (shown, later) = (NOW + Span::from_secs(2), NOW + Span::from_secs(100));
        paths.over(1, later, clean(None, 24));
        assert_eq!(begin(&paths, later), Some(80));
        assert!(!paths.is_known(&1, shown + MEMORY));
        paths.over(1, shown + MEMORY, clean(None, 24));
        assert_eq!(begin(&paths, shown + MEMORY), Some(12));
    }

    #[test]
    fn no_more_servers_are_remembered_than_there_is_room_for() {
        let paths = ServerPaths::default();
        let many = 2 * ServerPaths::<u32>::ROOM as u32;
        (0..many).for_each(|server: u32| paths.over(server, NOW, clean(None, 1000)));
        let known = |now| (0..many).filter(|server| paths.is_known(server, now)).count();
        assert_eq!(known(NOW), ServerPaths::<u32>::ROOM);
        let later = NOW + MEMORY;
        (0..many).for_each(|server| paths.over(server, later, clean(None, 1000)));
        assert_eq!(known(later), ServerPaths::<u32>::ROOM);
    }

    proptest! {
        /// Whatever connections show, in whatever order: none begins with more than half of what any has seen carried, nor
        /// with more than 100 packets, nor with less than the kernel gives it.
        #[test]
        fn a_window_is_within_what_was_seen(
            steps in prop::collection::vec((0u64..400, 0u32..300, 0u32..3, 1u32..2000), 1..60),
        ) {
            let paths = ServerPaths::default();
            let (mut now, mut most) = (NOW, 0);
            for (wait, carried, lost, sent) in steps {
                now += Span::from_secs(wait);
                let began = begin(&paths, now);
                if let Some(window) = began {
                    prop_assert!(window > KERNEL && window <= MOST.min(most / 2));
                }
                paths.over(1, now, Shown { lost, sent, ..clean(began, carried) });
                most = most.max(carried);
            }
        }
    }
}
