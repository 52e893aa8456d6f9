//! Pages of the web and videos, one after the other.

use midspan_apps::{Activity, Event, Order};
use midspan_scenario::record::{
    LegRecord, Measurement, PageRecord, PageSample, TransferRecord, VideoRecord, WorkloadRecord,
};
use midspan_scenario::{Cross, Page, Video};
use midspan_units::{Span, Time};

use crate::application::Application;
use crate::error::Error;
use crate::run::{Connection, Run};
use crate::setup;
use crate::socket::Socket;

/// What a UE does that ends, and the connections that it has for it.
pub(crate) struct Visit {
    /// The UE.
    ue: u32,
    /// The connections, with the number of each one's dialogue.
    opened: Vec<(Connection, usize)>,
}

impl Visit {
    pub(crate) fn new(ue: u32) -> Visit {
        Visit { ue, opened: Vec::new() }
    }

    /// Has `activity` take what is new of one of its dialogues.
    pub(crate) fn take(&self, activity: &mut Activity, now: Time, dialogue: usize, event: Event) {
        if let Some(index) = self.opened.iter().position(|(_, number)| *number == dialogue) {
            activity.take(now, index, event);
        }
    }

    /// Does what `activity` wants done.
    pub(crate) fn turn(&mut self, activity: &mut Activity, run: &mut Run<'_>) -> Result<(), Error> {
        while let Some(order) = activity.poll(run.world.now) {
            match order {
                Order::Open => {
                    let dialogue = run.world.dialogues.open();
                    let ends = (Application::Client(dialogue), Application::Server(dialogue));
                    self.opened.push((run.connect(self.ue, ends.0, ends.1, None)?, dialogue));
                }
                Order::Ask { connection, answer, .. } => {
                    let (connection, dialogue) = &self.opened[connection];
                    run.world.dialogues.ask(*dialogue, activity.request(), answer);
                    run.world.wake(connection.client);
                }
            }
        }
        Ok(())
    }

    /// Lets its dialogues go: its sockets are to be dropped.
    fn end(&self, run: &mut Run<'_>) {
        for (_, dialogue) in &self.opened {
            run.world.dialogues.close(*dialogue);
        }
    }

    /// Lets them go, its sockets too.
    pub(crate) fn drop_all(&self, run: &mut Run<'_>) {
        self.end(run);
        for (connection, _) in &self.opened {
            run.world.drop_connection(connection.client);
        }
    }

    /// The numbers of its dialogues, in the order of their beginnings.
    pub(crate) fn dialogues(&self) -> impl ExactSizeIterator<Item = usize> {
        self.opened.iter().map(|(_, dialogue)| *dialogue)
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
        let (mut visit, mut activity) = (Visit::new(0), Activity::reading(page, self.world.now));
        let mut samples = Samples::new(self);
        loop {
            visit.turn(&mut activity, self)?;
            if activity.is_done() {
                break;
            }
            samples.take(self, &visit);
            let now = self.world.now;
            let wakeup = activity.wakeup(now).unwrap_or(Time::MAX);
            let until = wakeup.min(samples.next).min(deadline);
            self.advance(until, |world| world.dialogues.has_events());
            while let Some((dialogue, event)) = self.world.dialogues.next_event() {
                visit.take(&mut activity, self.world.now, dialogue, event);
            }
            if activity.has_failed() {
                return Err(fault("a connection broke"));
            }
            if self.world.now >= deadline {
                return Err(fault("the workload's limit has passed"));
            }
        }
        visit.end(self);
        Ok((activity.transfer(), activity.page(samples.taken)))
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
        let (mut visit, mut activity) = (Visit::new(0), Activity::watching(video, self.world.now));
        loop {
            visit.turn(&mut activity, self)?;
            if activity.is_done() {
                break;
            }
            let until = activity.wakeup(self.world.now).unwrap_or(Time::MAX).min(deadline);
            self.advance(until, |world| world.dialogues.has_events());
            while let Some((dialogue, event)) = self.world.dialogues.next_event() {
                visit.take(&mut activity, self.world.now, dialogue, event);
            }
            if activity.has_failed() {
                return Err(fault("its connection broke"));
            }
            if self.world.now >= deadline {
                return Err(fault("the workload's limit has passed"));
            }
        }
        visit.end(self);
        let played = activity.video(self.world.now).ok_or(fault("it has not been played"))?;
        Ok((activity.transfer(), played))
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
