//! Ways in for radio data. Each source is a thread that reads what a base station, an API or a file
//! reports, turns it into readings, and hands them to the daemon. What is in the reports is decided
//! by a [`Format`], how they come by a transport; whether the source is believed is the daemon's
//! affair.

#[cfg(test)]
mod closed_loop;
mod config;
mod feed;
mod http;
mod record;
#[cfg(test)]
mod recording;
mod rni;
mod split;
mod srsenb;
mod srsgnb;
mod tail;
mod websocket;

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use midspan_assist_proto::{Basis, BasisKind, Causal, Oracle, Reading, Recorded, SourceId};
use midspan_path::TraceWindows;
use midspan_units::{Span, Time};
use tokio::sync::mpsc;

pub use config::{SourceConfig, SourceKind};
pub use feed::Feed;
pub use record::{Batch, Format, Sample, UeName, Unreadable};
pub use rni::Rni;
pub use split::{Records, Splitter};
pub use srsenb::SrsEnb;
pub use srsgnb::SrsGnb;

use crate::clock;

/// What a source has to say to the daemon.
#[derive(Debug)]
pub enum SourceEvent<B: Basis> {
    /// Readings, UE by UE.
    Readings(Vec<(UeName, Reading<B>)>),
    /// A record that made no sense.
    Unreadable(String),
    /// Readings whose time had been before: how many.
    Stale(usize),
    /// It cannot be had now, and is tried again.
    Down(String),
}

/// Where events go, and from whom.
pub type ToDaemon<B> = mpsc::Sender<(SourceId, SourceEvent<B>)>;

/// Of which windows sources can tell: all of those that passed, recordings also of those that come.
pub trait Sourced: Recorded {
    /// Starts the source's thread, which ends when nobody listens any more.
    ///
    /// # Errors
    /// What in the source's settings cannot be.
    fn start(id: SourceId, config: &SourceConfig, to: ToDaemon<Self>) -> Result<(), String>;
}

impl Sourced for Causal {
    fn start(id: SourceId, config: &SourceConfig, to: ToDaemon<Self>) -> Result<(), String> {
        let channel = SourceChannel { id, to, clock: SourceClock::new(config.period) };
        let cell = config.cell;
        match config.kind {
            SourceKind::Feed => {
                let file = config.file()?.to_owned();
                run(channel, config, move |channel| {
                    tail::follow(channel, &file, Records::Lines, &mut Feed::new(cell))
                })
            }
            SourceKind::Srsenb => {
                let file = config.file()?.to_owned();
                run(channel, config, move |channel| {
                    tail::follow(channel, &file, Records::Objects, &mut SrsEnb::new(cell))
                })
            }
            SourceKind::Srsgnb => {
                let (url, silence) = (config.url()?.to_owned(), config.trust.stall);
                run(channel, config, move |channel| {
                    websocket::listen(channel, &url, silence.into(), &mut SrsGnb::new(cell))
                })
            }
            SourceKind::Rni => {
                let poll = http::Poll::new(config)?;
                run(channel, config, move |channel| poll.run(channel, &mut Rni))
            }
            SourceKind::Trace => {
                let windows = RecordedWindows::read(config)?;
                run(channel, config, move |channel| windows.play(channel))
            }
            SourceKind::Embedded => Ok(()),
        }
    }
}

impl Sourced for Oracle {
    fn start(id: SourceId, config: &SourceConfig, to: ToDaemon<Self>) -> Result<(), String> {
        let channel = SourceChannel { id, to, clock: SourceClock::new(config.period) };
        match config.kind {
            SourceKind::Trace => {
                let windows = RecordedWindows::read(config)?;
                run(channel, config, move |channel| windows.play(channel))
            }
            SourceKind::Embedded => Ok(()),
            _ => Err("`basis = \"oracle\"` takes sources of kind \"trace\" or \"embedded\": no \
                      base station knows what comes"
                .into()),
        }
    }
}

/// Why a transport came back.
#[derive(Debug)]
pub(crate) enum End {
    /// Nobody listens any more.
    NobodyListens,
    /// The source cannot be had now.
    Down(String),
}

/// A source's channel to the daemon.
pub(crate) struct SourceChannel<B: Basis> {
    id: SourceId,
    to: ToDaemon<B>,
    clock: SourceClock,
}

impl<B: Basis> SourceChannel<B> {
    fn say(&self, event: SourceEvent<B>) -> Result<(), End> {
        self.to.blocking_send((self.id, event)).map_err(|_| End::NobodyListens)
    }

    /// Whether anybody listens.
    pub(crate) fn check(&self) -> Result<(), End> {
        if self.to.is_closed() { Err(End::NobodyListens) } else { Ok(()) }
    }
}

impl SourceChannel<Causal> {
    /// Reads a record and passes on what it says, as of now.
    pub(crate) fn record(&mut self, record: &[u8], format: &mut dyn Format) -> Result<(), End> {
        match format.read(record) {
            Ok(None) => Ok(()),
            Ok(Some(batch)) => {
                let (readings, stale) = self.clock.readings(batch, clock::now());
                if stale > 0 {
                    self.say(SourceEvent::Stale(stale))?;
                }
                self.say(SourceEvent::Readings(readings))
            }
            Err(Unreadable(why)) => self.unreadable(why),
        }
    }

    pub(crate) fn unreadable(&self, why: String) -> Result<(), End> {
        self.say(SourceEvent::Unreadable(why))
    }
}

/// Runs a transport in a thread, again and again, with longer and longer pauses while it fails.
fn run<B: Basis>(
    mut channel: SourceChannel<B>,
    config: &SourceConfig,
    mut transport: impl FnMut(&mut SourceChannel<B>) -> End + Send + 'static,
) -> Result<(), String> {
    let work = move || {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = clock::now();
            match transport(&mut channel) {
                End::NobodyListens => return,
                End::Down(why) => {
                    if channel.say(SourceEvent::Down(why)).is_err() {
                        return;
                    }
                }
            }
            if clock::now().since(began) > Span::from(LONGEST_PAUSE) {
                pause = FIRST_PAUSE;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    let name = format!("source {}", config.name);
    thread::Builder::new().name(name).spawn(work).map_err(|error| error.to_string())?;
    Ok(())
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Turns what a source says into readings: sees that each UE's time goes forward, how long the
/// windows are, and when they were.
#[derive(Debug)]
struct SourceClock {
    period: Span,
    last: BTreeMap<UeName, u64>,
    stamps: Stamps,
}

impl SourceClock {
    fn new(period: Span) -> SourceClock {
        SourceClock { period, last: BTreeMap::new(), stamps: Stamps::default() }
    }

    /// The readings, and how many samples were old.
    fn readings(&mut self, batch: Batch, now: Time) -> (Vec<(UeName, Reading<Causal>)>, usize) {
        let mut readings = Vec::with_capacity(batch.samples.len());
        let mut stale = 0;
        let at = batch.stamp.map_or(now, |stamp| self.stamps.time_of(stamp, now));
        for sample in batch.samples {
            let mut since_last = None;
            if let Some(stamp) = batch.stamp {
                if let Some(last) = self.last.insert(sample.name, stamp) {
                    if stamp <= last {
                        self.last.insert(sample.name, last);
                        stale += 1;
                        continue;
                    }
                    since_last = Some(Span::from_nanos((stamp - last).saturating_mul(1_000)));
                }
                if self.last.len() > MOST_NAMES {
                    self.last.pop_first();
                }
            }
            let known = sample.window.or(since_last).filter(|window| *window <= LONGEST_WINDOW);
            let window = known.unwrap_or(self.period);
            let reading = Reading::passed(at, window, sample.downlink, sample.uplink);
            readings.push((sample.name, reading));
        }
        (readings, stale)
    }
}

const LONGEST_WINDOW: Span = Span::from_secs(10);
const MOST_NAMES: usize = 100_000;

/// What a source's own clock says on this host's. The report that came soonest after its stamp counts
/// as new, and all others are older by as much as they took longer: the two clocks need not agree.
#[derive(Debug, Default)]
struct Stamps {
    soonest: Option<Soonest>,
}

#[derive(Debug, Clone, Copy)]
struct Soonest {
    /// From a stamp to its arrival, in microseconds; the two clocks' zeros are in it.
    delay: i128,
    /// When it was last used.
    at: Time,
}

/// How much the two clocks may drift apart: in so many microseconds by one.
const DRIFT: u64 = 2_000;

impl Stamps {
    /// When it was what `stamp`, in microseconds, says, if it came `now`.
    fn time_of(&mut self, stamp: u64, now: Time) -> Time {
        let delay = i128::from(now.as_nanos() / 1_000) - i128::from(stamp);
        let soonest = self.soonest.map_or(delay, |soonest| {
            let drift = now.since(soonest.at).as_micros() / DRIFT;
            delay.min(soonest.delay + i128::from(drift))
        });
        // One of the clocks has been set.
        let set = delay - soonest > i128::from(LONGEST_WINDOW.as_micros());
        let soonest = if set { delay } else { soonest };
        self.soonest = Some(Soonest { delay: soonest, at: now });
        let age = Span::from_micros(u64::try_from(delay - soonest).unwrap_or_default());
        Time::from_nanos(now.as_nanos().saturating_sub(age.as_nanos()))
    }
}

/// A recording's two directions, for one UE.
struct RecordedWindows {
    ue: UeName,
    downlink: TraceWindows,
    uplink: Option<TraceWindows>,
}

impl RecordedWindows {
    fn read(config: &SourceConfig) -> Result<RecordedWindows, String> {
        let read = |path: &std::path::Path| {
            let in_file = |error: String| format!("{}: {error}", path.display());
            let bytes = std::fs::read(path).map_err(|error| in_file(error.to_string()))?;
            let trace = midspan_path::Trace::parse(&bytes);
            let trace = trace.map_err(|error| in_file(error.to_string()))?;
            Ok::<_, String>(TraceWindows::new(trace, config.period))
        };
        let ue = config.ue.ok_or("kind \"trace\" takes `ue`, the address of the UE")?;
        Ok(RecordedWindows {
            ue: UeName::Address(ue),
            downlink: read(config.file()?)?,
            uplink: config.uplink.as_deref().map(read).transpose()?,
        })
    }

    /// Tells window after window.
    fn play<B: Recorded>(&self, channel: &mut SourceChannel<B>) -> End {
        let start = clock::now();
        let window = self.downlink.window();
        for index in 0.. {
            let at = start + window * (index + B::DELAY);
            let wait = at.since(clock::now());
            if wait > Span::ZERO {
                thread::sleep(wait.into());
            }
            let up = self.uplink.as_ref().map(|uplink| uplink.rate(index));
            let reading = B::reading(at, window, self.downlink.rate(index), up);
            if let Err(end) = channel.say(SourceEvent::Readings(vec![(self.ue, reading)])) {
                return end;
            }
        }
        End::NobodyListens
    }
}

/// A source inside this process, such as the lab's emulated base station: whoever has this says what
/// it measures.
#[derive(Debug, Clone)]
pub struct Embedded<B: Basis> {
    id: SourceId,
    to: ToDaemon<B>,
}

impl<B: Basis> Embedded<B> {
    pub(crate) fn new(id: SourceId, to: ToDaemon<B>) -> Self {
        Embedded { id, to }
    }

    /// Hands readings to the daemon; their times are on the kernel's monotonic clock
    /// ([`crate::now`]). False if the daemon is so far behind that they were dropped, or gone.
    pub fn report(&self, readings: Vec<(UeName, Reading<B>)>) -> bool {
        self.to.try_send((self.id, SourceEvent::Readings(readings))).is_ok()
    }

    /// Of which windows readings are.
    pub fn basis(&self) -> BasisKind {
        B::KIND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: u32) -> Sample {
        Sample {
            name: UeName::Rnti(name),
            window: None,
            downlink: midspan_assist_proto::LinkReading::default(),
            uplink: midspan_assist_proto::LinkReading::default(),
        }
    }

    #[test]
    fn windows_last_from_one_stamp_to_the_next_and_time_goes_forward() {
        let mut clock = SourceClock::new(Span::from_millis(100));
        let mut read = |stamp: Option<u64>, samples: Vec<Sample>| {
            let (readings, stale) = clock.readings(Batch { stamp, samples }, Time::ZERO);
            let windows: Vec<Span> = readings.iter().map(|(_, reading)| reading.window).collect();
            (windows, stale)
        };
        let millis = |millis: u64| Span::from_millis(millis);
        assert_eq!(read(Some(1_000_000), vec![sample(1), sample(2)]), (vec![millis(100); 2], 0));
        assert_eq!(read(Some(1_050_000), vec![sample(1)]), (vec![millis(50)], 0));
        assert_eq!(read(Some(1_050_000), vec![sample(1), sample(2)]), (vec![millis(50)], 1));
        assert_eq!(read(Some(900_000), vec![sample(1)]), (vec![], 1));
        assert_eq!(read(Some(1_060_000), vec![sample(1)]), (vec![millis(10)], 0));
        // After a long silence nobody knows what the window was.
        assert_eq!(read(Some(90_000_000), vec![sample(1)]), (vec![millis(100)], 0));
        assert_eq!(read(None, vec![sample(1)]), (vec![millis(100)], 0));
    }

    #[test]
    fn readings_are_as_old_as_their_stamps_say_whatever_the_clocks_zeros() {
        for zero in [0, 1_795_455_000_000_000u64] {
            let mut clock = SourceClock::new(Span::from_millis(100));
            let epoch = Time::from_nanos(77_000_000_000);
            let mut ages = Vec::new();
            // Reports of every 100 ms, written out four at a time.
            for clump in 1..=5u64 {
                let now = epoch + Span::from_millis(400 * clump + 3);
                for report in 0..4 {
                    let stamp = Some(zero + (400 * (clump - 1) + 100 * (report + 1)) * 1_000);
                    let batch = Batch { stamp, samples: vec![sample(1)] };
                    let (readings, stale) = clock.readings(batch, now);
                    assert_eq!(stale, 0);
                    ages.push(now.since(readings[0].1.at).as_micros());
                }
            }
            // The first clump is the measure of the others.
            let expected = [300_000, 200_000, 100_000, 0].repeat(4);
            let drift = 1_000;
            assert!(ages[4..].iter().zip(expected).all(|(age, right)| age.abs_diff(right) < drift));
        }
    }

    #[test]
    fn clocks_may_drift_and_be_set() {
        let mut stamps = Stamps::default();
        let second = |count: u64| Time::from_nanos(count * 1_000_000_000);
        assert_eq!(stamps.time_of(5_000_000, second(100)), second(100));
        // The source's is slower by a ten thousandth: that is no age.
        let age = second(200).since(stamps.time_of(104_990_000, second(200)));
        assert_eq!(age, Span::ZERO);
        // Set back by an hour: from then on as before.
        let set_back = 1_000_000;
        assert_eq!(stamps.time_of(set_back, second(3_900)), second(3_900));
        let late = Time::from_nanos(3_901_200_000_000);
        let age = late.since(stamps.time_of(2_000_000, late));
        assert!(age.as_micros().abs_diff(200_000) < 1_000, "{age:?}");
    }
}
