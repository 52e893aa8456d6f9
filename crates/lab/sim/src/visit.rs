//! Pages of the web and videos, one after the other.

use midspan_apps::{Browser, Order, Player};
use midspan_scenario::record::{
    LegRecord, Measurement, PageRecord, PageSample, TransferRecord, VideoRecord, WorkloadRecord,
};
use midspan_scenario::{Cross, Objects, Page, Video};
use midspan_units::{ByteSize, Span, Time};

use crate::application::Application;
use crate::dialogue::DialogueEvent;
use crate::error::Error;
use crate::run::{Connection, Run};
use crate::setup;
use crate::socket::Socket;

/// A page that is being loaded.
pub(crate) struct Visit {
    /// The UE that it is loaded by.
    ue: u32,
    /// Bytes of a request.
    request: u64,
    /// Bytes of the page.
    bytes: u64,
    browser: Browser,
    begin: Time,
    /// The browser's connections, with the number of each one's dialogue.
    opened: Vec<(Connection, usize)>,
    /// When the first of them was open.
    connected: Option<Time>,
    failed: bool,
}

impl Visit {
    pub(crate) fn new(ue: u32, page: &Page, now: Time) -> Visit {
        let sizes = page.objects.iter().flat_map(Objects::sizes);
        Visit {
            ue,
            request: page.request.as_bytes(),
            bytes: sizes.chain([page.document]).map(ByteSize::as_bytes).sum(),
            browser: Browser::new(page, now),
            begin: now,
            opened: Vec::new(),
            connected: None,
            failed: false,
        }
    }

    /// Takes what is new of one of its dialogues.
    pub(crate) fn take(&mut self, now: Time, dialogue: usize, event: DialogueEvent) {
        let Some(index) = self.opened.iter().position(|(_, number)| *number == dialogue) else {
            return;
        };
        self.failed |= event.failed;
        if event.connected {
            self.connected.get_or_insert(now);
            self.browser.opened(index);
        }
        if event.fresh > 0 {
            self.browser.received(now, index, event.fresh);
        }
    }

    /// Does what the browser wants done.
    pub(crate) fn turn(&mut self, run: &mut Run<'_>) -> Result<(), Error> {
        while let Some(order) = self.browser.poll(run.world.now) {
            match order {
                Order::Open => {
                    let dialogue = run.world.dialogues.open();
                    let ends = (Application::Client(dialogue), Application::Server(dialogue));
                    self.opened.push((run.connect(self.ue, ends.0, ends.1, None)?, dialogue));
                }
                Order::Ask { connection, answer, .. } => {
                    let (connection, dialogue) = &self.opened[connection];
                    run.world.dialogues.ask(*dialogue, self.request, answer);
                    run.world.wake(connection.client);
                }
            }
        }
        Ok(())
    }

    /// Lets it go: its sockets are to be dropped.
    fn end(&self, run: &mut Run<'_>) {
        for (_, dialogue) in &self.opened {
            run.world.dialogues.close(*dialogue);
        }
    }

    /// Lets it go, its sockets too.
    pub(crate) fn drop_all(&self, run: &mut Run<'_>) {
        self.end(run);
        for (connection, _) in &self.opened {
            run.world.drop_connection(connection.client);
        }
    }

    /// Whether all of it is there.
    pub(crate) fn is_done(&self) -> bool {
        self.browser.is_done()
    }

    /// Whether one of its connections broke.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// When to ask again although nothing came.
    pub(crate) fn wakeup(&self, now: Time) -> Option<Time> {
        self.browser.wakeup(now)
    }

    /// The numbers of its dialogues, in the order of their beginnings.
    pub(crate) fn dialogues(&self) -> impl ExactSizeIterator<Item = usize> {
        self.opened.iter().map(|(_, dialogue)| *dialogue)
    }

    /// Its record as a transfer, when it is done.
    pub(crate) fn transfer(&self) -> TransferRecord {
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
    fn record(&self, samples: Vec<PageSample>) -> PageRecord {
        let mut times = self.browser.times();
        let document = times.next().map_or(Span::ZERO, |(_, had)| had.since(self.begin));
        PageRecord {
            document_s: document.as_secs_f64(),
            objects_s: times.map(|(asked, had)| had.since(asked).as_secs_f64()).collect(),
            samples,
        }
    }
}

/// A video that is being downloaded and played.
pub(crate) struct Viewing {
    visit: Visit,
    player: Player,
}

impl Viewing {
    pub(crate) fn new(ue: u32, video: &Video, now: Time) -> Viewing {
        Viewing { visit: Visit::new(ue, &video.as_page(), now), player: Player::new(video, now) }
    }

    /// Its download.
    pub(crate) fn visit(&self) -> &Visit {
        &self.visit
    }

    /// Whether it has been played.
    pub(crate) fn is_done(&self) -> bool {
        self.player.is_done()
    }

    /// Takes what is new of its dialogue.
    pub(crate) fn take(&mut self, now: Time, dialogue: usize, event: DialogueEvent) {
        self.visit.take(now, dialogue, event);
        self.player.received(now, event.fresh);
    }

    /// Does what is due.
    pub(crate) fn turn(&mut self, run: &mut Run<'_>) -> Result<(), Error> {
        self.player.turn(run.world.now);
        self.visit.turn(run)
    }

    /// When to ask again although nothing came.
    pub(crate) fn wakeup(&self, now: Time) -> Option<Time> {
        self.player.wakeup().into_iter().chain(self.visit.wakeup(now)).min()
    }

    /// How it has played by `now`.
    pub(crate) fn record(&self, now: Time) -> VideoRecord {
        VideoRecord {
            start_s: self.player.start_up().map(Span::as_secs_f64),
            stalls: self.player.stalls(),
            stalled_s: self.player.stalled(now).as_secs_f64(),
        }
    }
}

/// How long cross traffic runs before the first page, as live.
const CROSS_WARMUP: Span = Span::from_secs(3);

/// From sample to sample, as live.
const SAMPLE: Span = Span::from_millis(100);

impl Run<'_> {
    pub(crate) fn pages(&mut self, page: &Page) -> Result<Measurement, Error> {
        self.start_cross_traffic(&page.cross)?;
        let deadline = self.world.now + page.limit;
        let before = self.world.counters();
        self.world.restart_delays();
        let (mut transfers, mut pages) = (Vec::new(), Vec::new());
        let mut legs = Vec::<LegRecord>::new();
        for number in 0..page.count as usize {
            let (transfer, record) = self.page(page, number, deadline)?;
            transfers.push(transfer);
            pages.push(record);
            legs.extend(self.legs());
            self.forget_connections();
        }
        Ok(self.of_workload(WorkloadRecord::Pages { transfers, pages }, legs, false, &before))
    }

    fn start_cross_traffic(&mut self, cross: &Cross) -> Result<(), Error> {
        for number in 0..cross.flows as usize {
            self.connect_cross(cross.congestion_control.as_deref(), number)?;
        }
        if cross.flows > 0 {
            self.advance(self.world.now + CROSS_WARMUP, |_| false);
        }
        Ok(())
    }

    fn page(
        &mut self,
        page: &Page,
        number: usize,
        deadline: Time,
    ) -> Result<(TransferRecord, PageRecord), Error> {
        let fault = |why| Error::Connection { what: "page", number, why };
        let mut visit = Visit::new(0, page, self.world.now);
        let mut samples = Samples::new(self);
        loop {
            visit.turn(self)?;
            if visit.is_done() {
                break;
            }
            samples.take(self, &visit);
            let now = self.world.now;
            let wakeup = visit.wakeup(now).unwrap_or(Time::MAX);
            let until = wakeup.min(samples.next).min(deadline);
            self.advance(until, |world| world.dialogues.has_events());
            while let Some((dialogue, event)) = self.world.dialogues.next_event() {
                visit.take(self.world.now, dialogue, event);
            }
            if visit.failed {
                return Err(fault("a connection broke"));
            }
            if self.world.now >= deadline {
                return Err(fault("the workload's limit has passed"));
            }
        }
        visit.end(self);
        Ok((visit.transfer(), visit.record(samples.taken)))
    }

    pub(crate) fn videos(&mut self, video: &Video) -> Result<Measurement, Error> {
        let deadline = self.world.now + video.limit;
        let before = self.world.counters();
        self.world.restart_delays();
        let (mut transfers, mut videos) = (Vec::new(), Vec::new());
        let mut legs = Vec::<LegRecord>::new();
        for number in 0..video.count as usize {
            let (transfer, record) = self.video(video, number, deadline)?;
            transfers.push(transfer);
            videos.push(record);
            legs.extend(self.legs());
            self.forget_connections();
        }
        Ok(self.of_workload(WorkloadRecord::Videos { transfers, videos }, legs, false, &before))
    }

    fn video(
        &mut self,
        video: &Video,
        number: usize,
        deadline: Time,
    ) -> Result<(TransferRecord, VideoRecord), Error> {
        let fault = |why| Error::Connection { what: "video", number, why };
        let mut viewing = Viewing::new(0, video, self.world.now);
        loop {
            viewing.turn(self)?;
            if viewing.is_done() {
                break;
            }
            let until = viewing.wakeup(self.world.now).unwrap_or(Time::MAX).min(deadline);
            self.advance(until, |world| world.dialogues.has_events());
            while let Some((dialogue, event)) = self.world.dialogues.next_event() {
                viewing.take(self.world.now, dialogue, event);
            }
            if viewing.visit.failed {
                return Err(fault("its connection broke"));
            }
            if self.world.now >= deadline {
                return Err(fault("the workload's limit has passed"));
            }
        }
        viewing.visit.end(self);
        Ok((viewing.visit.transfer(), viewing.record(self.world.now)))
    }
}

/// Looks at path and sender while a page is loaded.
struct Samples {
    begin: Time,
    /// When the next is due.
    next: Time,
    /// Policed, lost on the air, and marked, when the page began.
    before: (u64, u64, u64),
    taken: Vec<PageSample>,
}

impl Samples {
    fn new(run: &Run<'_>) -> Samples {
        let now = run.world.now;
        Samples { begin: now, next: now, before: counts(run), taken: Vec::new() }
    }

    fn take(&mut self, run: &Run<'_>, visit: &Visit) {
        if run.world.now < self.next {
            return;
        }
        self.next += SAMPLE;
        let (policed, radio_lost, marked) = counts(run);
        let last = visit.opened.last();
        let server = last.and_then(|(connection, _)| run.socket(run.server(*connection)?));
        let control = server.and_then(Socket::endpoint).map(|endpoint| endpoint.control());
        let rate = control.filter(|control| setup::shows_rate(control));
        self.taken.push(PageSample {
            at_s: run.world.now.since(self.begin).as_secs_f64(),
            rate_bps: rate.and_then(|rate| rate.pacing_rate()).map(|rate| rate.as_bps() as f64),
            policed: policed - self.before.0,
            radio_lost: radio_lost - self.before.1,
            marked: marked - self.before.2,
        });
    }
}

/// Packets policed, lost on the air, and marked, on the access link so far.
fn counts(run: &Run<'_>) -> (u64, u64, u64) {
    let counters = run.world.counters();
    let Some((up, down)) = counters.first() else { return (0, 0, 0) };
    let dropped = |cause| down.dropped.get(cause).copied().unwrap_or_default();
    (dropped("policer"), dropped("radio"), up.marked)
}
