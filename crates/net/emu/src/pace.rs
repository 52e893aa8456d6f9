//! When to wake for the packets that fall due.
//!
//! At 1 Gbit/s one falls due every 12 us, and a timer costs 15 to 20 us of processor where this was
//! measured (two cores, virtual, Linux 6.18) and rings 36 us late (median). A thread that wants to
//! be punctual sets it early and waits out the rest awake. One that has too much to do for that
//! waits a little for several to fall due, and lets them leave together.
//!
//! What decides is the share of the processor that the thread uses: above 95 % the kernel stops a
//! real-time thread for 50 ms in every second, which costs more than any pause.
//!
//! So the best for short round trips is a thread that does not sleep at all while packets are about
//! to fall due, and is no real-time thread. Three runs each at 1 Gbit/s and 1 ms, with a relay and a
//! second link beside it on two cores: p99 lateness 32 to 38 us awake, 91 to 136 us else. It keeps a
//! processor to itself, so only half of them may be kept that way, and none while others want them.
//!
//! And where only long round trips are at stake a link that has much to do lets its packets leave in
//! larger groups, as a network card does that moderates its interrupts. One that has little to do is
//! punctual there too: congestion controls that look at delays (TCP Illinois at a hundredth of the queue's)
//! see the difference.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::available_parallelism;

use midspan_units::{Span, Time};

/// Decides when the thread is to wake.
#[derive(Debug)]
pub(crate) struct Pace {
    manner: Manner,
    /// How long after a departure the next one is, at least, when thrifty.
    pause: Span,
    last_departure: Time,
    window: Window,
}

/// What the thread did since counting began.
#[derive(Debug, Clone, Copy)]
struct Window {
    since: Time,
    slept: Span,
    departed: u64,
}

impl Window {
    const fn begin(since: Time) -> Window {
        Window { since, slept: Span::ZERO, departed: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Sleep only while nothing is due for long.
    Awake,
    /// Wake early, and look until the packet is due.
    Punctual,
    /// Let packets leave in groups.
    Thrifty,
}

/// How long before a packet is due a thread that stays awake has itself woken: longer than timers are
/// ever late but for the odd one.
const AWAKE_LEAD: Span = Span::from_micros(150);

/// How early a punctual thread has itself woken: about as much as timers are late. A wait awake is
/// what it costs to be wrong.
const LEAD: Span = Span::from_micros(40);

/// The pause where round trips are short. Medians of three runs at 1 Gbit/s and 1 ms, processor and
/// p99 lateness: 30 us 84 % and 72 us; 40 us 75 % and 96 us; 50 us 69 % and 365 us.
const LEAST_PAUSE: Span = Span::from_micros(30);

/// The pause where they are long: 20 packets at 1 Gbit/s.
const LONGEST_PAUSE: Span = Span::from_micros(250);

/// How long the thread is watched before it may change its manner.
const WINDOW: Span = Span::from_millis(5);

/// Above this share of a processor (in per cent) a punctual thread becomes thrifty.
const TOO_BUSY: u64 = 75;

/// Below this one a thrifty thread becomes punctual, if that takes no more either.
const AT_EASE: u64 = 40;

/// The same two where round trips are long, and the processor is better left to the hosts and to other
/// links.
const TOO_BUSY_FOR_LONG: u64 = 40;
const AT_EASE_FOR_LONG: u64 = 25;

/// What a packet costs a punctual thread, which wakes for each.
const COST_OF_WAKING: Span = Span::from_micros(20);

impl Pace {
    /// For links whose connections have round trips of this length at least, and whether a processor
    /// may be kept busy for it.
    pub(crate) fn for_rtt(shortest: Span, processor: Option<&Processor>) -> Pace {
        let pause = (shortest / 100).clamp(LEAST_PAUSE, LONGEST_PAUSE);
        let manner = match processor {
            Some(_) if pause == LEAST_PAUSE => Manner::Awake,
            _ => Manner::Punctual,
        };
        Pace { manner, pause, last_departure: Time::ZERO, window: Window::begin(Time::ZERO) }
    }

    /// Whether the thread will use a whole processor.
    pub(crate) fn stays_awake(&self) -> bool {
        self.manner == Manner::Awake
    }

    /// From now on it sleeps until shortly before a packet is due, as others want the processor too.
    pub(crate) fn sleep_between(&mut self) {
        self.manner = Manner::Punctual;
    }

    /// The thread starts at `now`.
    pub(crate) fn begin(&mut self, now: Time) {
        self.window = Window::begin(now);
    }

    /// When to wake for a packet that is due then.
    pub(crate) fn wake_for(&self, due: Time) -> Time {
        match self.manner {
            Manner::Awake => before(due, AWAKE_LEAD),
            Manner::Punctual => before(due, LEAD),
            Manner::Thrifty => due.max(self.last_departure + self.pause),
        }
    }

    /// So many packets have left at `now`, at least one.
    pub(crate) fn departed(&mut self, now: Time, packets: usize) {
        self.last_departure = now;
        self.window.departed += packets as u64;
    }

    /// The thread slept, or looked whether there is something to do.
    pub(crate) fn slept(&mut self, from: Time, until: Time) {
        let window = &mut self.window;
        let time = until.since(from);
        // A look is no rest.
        if time > LOOK {
            window.slept += time;
        }
        let elapsed = until.since(window.since);
        if elapsed < WINDOW {
            return;
        }
        let share = |time: Span| time.as_nanos() * 100 / elapsed.as_nanos();
        let busy = share(elapsed.saturating_sub(window.slept));
        let punctual = share(COST_OF_WAKING * window.departed);
        let (too_busy, at_ease) = match self.pause {
            LEAST_PAUSE => (TOO_BUSY, AT_EASE),
            _ => (TOO_BUSY_FOR_LONG, AT_EASE_FOR_LONG),
        };
        self.manner = match self.manner {
            Manner::Punctual if busy > too_busy => Manner::Thrifty,
            Manner::Thrifty if busy.max(punctual) < at_ease => Manner::Punctual,
            manner => manner,
        };
        self.window = Window::begin(until);
    }
}

/// So long before that, but not before time began.
pub(crate) fn before(time: Time, lead: Span) -> Time {
    Time::from_nanos(time.as_nanos().saturating_sub(lead.as_nanos()))
}

/// The right to keep a processor busy, until it is dropped. Half of the processors, rounded down,
/// may be kept so by this process: the others are for the hosts and the longer links.
#[derive(Debug)]
pub(crate) struct Processor(());

static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Until when none may be kept, in nanoseconds of [`Time`]: others have kept a thread of this process from its processor,
/// and the next ones need not find out.
static CONTENDED: AtomicU64 = AtomicU64::new(0);

/// How long others who wanted the processors are expected to want them still.
const CONTENDED_FOR: Span = Span::from_secs(600);

impl Processor {
    /// One, if one is left beside the `others` that want a processor now, and nobody else has wanted it of late.
    #[allow(
        deprecated,
        reason = "`try_update`, the newer name of `fetch_update`, is not in Rust 1.88"
    )]
    pub(crate) fn take(now: Time, others: usize) -> Option<Processor> {
        let processors = available_parallelism().map_or(1, usize::from);
        // The hosts need one too.
        if others + 2 > processors || now.as_nanos() < CONTENDED.load(Ordering::Relaxed) {
            return None;
        }
        let most = processors / 2;
        let take = |kept| (kept < most).then_some(kept + 1);
        KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| Processor(()))
    }

    /// Others want the processors too: for the next while none may be kept.
    pub(crate) fn contended(now: Time) {
        CONTENDED.store((now + CONTENDED_FOR).as_nanos(), Ordering::Relaxed);
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a call that does not sleep may take.
const LOOK: Span = Span::from_micros(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    /// A thread that sleeps so many microseconds of each hundred, for 10 ms from `begin` on.
    fn lived(pace: &mut Pace, begin: u64, slept: u64) {
        for from in (begin..begin + 10_000).step_by(100) {
            pace.slept(at(from), at(from + slept));
        }
    }

    #[test]
    fn with_little_to_do_it_wakes_early() {
        let mut pace = Pace::for_rtt(Span::from_millis(1), None);
        lived(&mut pace, 0, 50);
        assert_eq!(pace.wake_for(at(100_000)) + LEAD, at(100_000));
        assert_eq!(pace.wake_for(at(3)), at(0));
    }

    #[test]
    fn with_much_to_do_packets_leave_in_groups_until_there_is_less() {
        let mut pace = Pace::for_rtt(Span::from_millis(1), None);
        lived(&mut pace, 0, 10);
        pace.departed(at(20_000), 1);
        assert_eq!(pace.wake_for(at(20_010)), at(20_000) + LEAST_PAUSE);
        assert_eq!(pace.wake_for(at(20_100)), at(20_100));
        // In between nothing changes.
        lived(&mut pace, 20_000, 45);
        assert_eq!(pace.manner, Manner::Thrifty);
        lived(&mut pace, 30_000, 80);
        assert_eq!(pace.manner, Manner::Punctual);
    }

    #[test]
    fn where_round_trips_are_long_groups_are_larger_and_come_sooner() {
        let mut pace = Pace::for_rtt(Span::from_millis(50), None);
        assert_eq!(pace.wake_for(at(3)), at(0));
        lived(&mut pace, 0, 55);
        pace.departed(at(10_000), 1);
        assert_eq!(pace.wake_for(at(10_010)), at(10_000) + LONGEST_PAUSE);
        assert_eq!(Pace::for_rtt(Span::from_millis(10), None).pause, Span::from_micros(100));
        let processor = std::mem::ManuallyDrop::new(Processor(()));
        assert!(!Pace::for_rtt(Span::from_millis(10), Some(&processor)).stays_awake());
    }

    #[test]
    fn groups_go_on_as_long_as_a_wake_up_for_each_packet_would_take_too_much() {
        let mut pace = Pace::for_rtt(Span::from_millis(50), None);
        lived(&mut pace, 0, 10);
        // A tenth of the time in all, in groups of 20, of which a packet each 25 us is made.
        for begin in (10_000..50_000).step_by(500) {
            pace.departed(at(begin), 20);
            pace.slept(at(begin + 50), at(begin + 500));
        }
        assert_eq!(pace.manner, Manner::Thrifty);
        for begin in (50_000..70_000).step_by(500) {
            pace.departed(at(begin), 5);
            pace.slept(at(begin + 50), at(begin + 500));
        }
        assert_eq!(pace.manner, Manner::Punctual);
    }

    #[test]
    fn looking_is_not_sleeping() {
        let mut pace = Pace::for_rtt(Span::from_millis(1), None);
        lived(&mut pace, 0, 4);
        assert_eq!(pace.manner, Manner::Thrifty);
    }

    #[test]
    fn with_a_processor_to_itself_it_sleeps_only_while_nothing_is_due_for_long() {
        let processor = std::mem::ManuallyDrop::new(Processor(()));
        let mut pace = Pace::for_rtt(Span::from_millis(1), Some(&processor));
        lived(&mut pace, 0, 0);
        assert_eq!(pace.wake_for(at(20_000)) + AWAKE_LEAD, at(20_000));
    }

    #[test]
    fn kept_from_its_processor_it_sleeps_between_packets() {
        let processor = std::mem::ManuallyDrop::new(Processor(()));
        let mut pace = Pace::for_rtt(Span::from_millis(1), Some(&processor));
        pace.sleep_between();
        assert!(!pace.stays_awake());
        assert_eq!(pace.wake_for(at(20_000)) + LEAD, at(20_000));
        lived(&mut pace, 0, 10);
        assert_eq!(pace.manner, Manner::Thrifty);
    }

    #[test]
    fn half_of_the_processors_can_be_kept() {
        let processors = available_parallelism().unwrap().get();
        let most = processors / 2;
        let now = at(1);
        let kept = std::iter::from_fn(|| Processor::take(now, 0)).take(most + 1);
        let kept: Vec<Processor> = kept.collect();
        assert!(kept.len() <= most);
        drop(kept);
        assert_eq!(Processor::take(now, 0).is_some(), most > 0);
        // Others want them, and then no more.
        assert!(Processor::take(now, processors).is_none());
        Processor::contended(now);
        assert!(Processor::take(now + Span::from_secs(599), 0).is_none());
        assert_eq!(Processor::take(now + Span::from_secs(601), 0).is_some(), most > 0);
    }
}
