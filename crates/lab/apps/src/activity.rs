//! What a user does that ends: it loads a page or watches a video.

use midspan_scenario::record::{PageRecord, PageSample, TransferRecord, VideoRecord};
use midspan_scenario::{Objects, Page, Video};
use midspan_units::{ByteSize, Span, Time};

use crate::{Browser, Order, Player};

/// What stands before each answer's body, in bytes: what a small web server writes.
pub const ANSWER_HEAD: u64 = 130;

/// What is new of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Event {
    /// It is open.
    pub connected: bool,
    /// Bytes of answers' bodies that were read since the last one.
    pub fresh: u64,
    /// It broke.
    pub failed: bool,
}

/// A page that is being loaded, or a video that is being downloaded and played. After each call take all that
/// [`Activity::poll`] gives.
#[derive(Debug)]
pub struct Activity {
    /// Bytes of a request.
    request: u64,
    /// Bytes of all that is loaded.
    bytes: u64,
    browser: Browser,
    /// None for pages.
    player: Option<Player>,
    begin: Time,
    /// When the first connection was open.
    connected: Option<Time>,
    failed: bool,
}

impl Activity {
    /// Begins to load `page` at `now`.
    pub fn reading(page: &Page, now: Time) -> Activity {
        let sizes = page.objects.iter().flat_map(Objects::sizes);
        Activity {
            request: page.request.as_bytes(),
            bytes: sizes.chain([page.document]).map(ByteSize::as_bytes).sum(),
            browser: Browser::new(page, now),
            player: None,
            begin: now,
            connected: None,
            failed: false,
        }
    }

    /// Is told to play `video` at `now`.
    pub fn watching(video: &Video, now: Time) -> Activity {
        let player = Some(Player::new(video, now));
        Activity { player, ..Activity::reading(&video.as_page(), now) }
    }

    /// Bytes of a request.
    pub fn request(&self) -> u64 {
        self.request
    }

    /// Takes what is new of a connection. They are numbered as they were ordered.
    pub fn take(&mut self, now: Time, connection: usize, event: Event) {
        self.failed |= event.failed;
        if event.connected {
            self.connected.get_or_insert(now);
            self.browser.opened(connection);
        }
        if event.fresh > 0 {
            self.browser.received(now, connection, event.fresh);
        }
        if let Some(player) = &mut self.player {
            player.received(now, event.fresh);
        }
    }

    /// The next thing to do at `now`.
    pub fn poll(&mut self, now: Time) -> Option<Order> {
        if let Some(player) = &mut self.player {
            player.turn(now);
        }
        self.browser.poll(now)
    }

    /// When to poll again although nothing came.
    pub fn wakeup(&self, now: Time) -> Option<Time> {
        let playing = self.player.as_ref().and_then(Player::wakeup);
        playing.into_iter().chain(self.browser.wakeup(now)).min()
    }

    /// Whether the page is there, all of it, or the video has been played.
    pub fn is_done(&self) -> bool {
        self.player.as_ref().map_or_else(|| self.browser.is_done(), Player::is_done)
    }

    /// Whether one of its connections broke.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Its record as a transfer, when it is done.
    pub fn transfer(&self) -> TransferRecord {
        let since_begin = |at: Time| at.since(self.begin).as_secs_f64();
        let loaded = self.browser.times().map(|(_, had)| since_begin(had)).fold(0.0, f64::max);
        TransferRecord {
            bytes: self.bytes,
            connected_s: self.connected.map_or(0.0, since_begin),
            acknowledged_s: loaded,
            closed_s: loaded,
            received_s: loaded,
        }
    }

    /// Its record as a page, when it is done.
    pub fn page(&self, samples: Vec<PageSample>) -> PageRecord {
        let mut times = self.browser.times();
        let document = times.next().map_or(Span::ZERO, |(_, had)| had.since(self.begin));
        PageRecord {
            document_s: document.as_secs_f64(),
            objects_s: times.map(|(asked, had)| had.since(asked).as_secs_f64()).collect(),
            samples,
        }
    }

    /// How it has played by `now`, if it is a video.
    pub fn video(&self, now: Time) -> Option<VideoRecord> {
        let player = self.player.as_ref()?;
        Some(VideoRecord {
            start_s: player.start_up().map(Span::as_secs_f64),
            stalls: player.stalls(),
            stalled_s: player.stalled(now).as_secs_f64(),
        })
    }
}
