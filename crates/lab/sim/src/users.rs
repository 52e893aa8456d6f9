//! The users of a mobile network, all at once, each with what it runs.

use midspan_path::lte::CELLS;
use midspan_scenario::record::{
    BulkRecord, Measurement, TransferRecord, VideoRecord, WorkloadRecord,
};
use midspan_scenario::{Bulk, Cells, Direction, Workload};
use midspan_units::{Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::agenda::Agenda;
use crate::application;
use crate::dialogue::DialogueEvent;
use crate::error::Error;
use crate::measure;
use crate::run::{Connection, Look, Run};
use crate::visit::{Viewing, Visit};

/// Users begin at times spread over so long, so that they are not in step; those beside the workload over
/// a pause, if that is longer.
const BEGINNINGS: Span = Span::from_secs(1);

/// A user and what it is doing.
struct User<'a> {
    number: u32,
    workload: &'a Workload,
    /// Of its downloads.
    connections: Vec<Connection>,
    doing: Option<Doing>,
    /// What it has loaded, up to as much as counts, and how the videos of it played.
    loaded: Vec<TransferRecord>,
    played: Vec<VideoRecord>,
}

/// Something that ends.
enum Doing {
    Reading(Visit),
    Watching(Box<Viewing>),
}

/// All users, and when each next does something of its own accord.
struct Crowd<'a> {
    cells: &'a Cells,
    users: Vec<User<'a>>,
    agenda: Agenda,
    /// Whose each dialogue is.
    owners: Vec<usize>,
    /// How many are still to do what is measured.
    unfinished: usize,
}

impl<'a> Crowd<'a> {
    /// Those of whom each runs `workload` first, then the others.
    fn new(workload: &'a Workload, cells: &'a Cells, seed: u64) -> Crowd<'a> {
        let mut workloads = vec![workload; cells.running() as usize];
        for others in &cells.others {
            let count = others.users as usize * CELLS;
            workloads.extend(std::iter::repeat_n(&others.workload, count));
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut agenda = Agenda::new();
        let user = |(number, workload)| {
            let is_running = number < cells.running() as usize;
            let spread = if is_running { BEGINNINGS } else { BEGINNINGS.max(cells.pause) };
            let begin = random.next_u64() % spread.as_nanos();
            agenda.set(number, Time::from_nanos(begin));
            User::new(number as u32, workload)
        };
        let users = workloads.into_iter().enumerate().map(user).collect();
        let unfinished = cells.running() as usize;
        Crowd { cells, users, agenda, owners: Vec::new(), unfinished }
    }

    /// Those whose workload is measured.
    fn running(&self) -> &[User<'a>] {
        &self.users[..self.cells.running() as usize]
    }

    /// Lets everything happen until `until`, or until all are finished whose workload ends.
    fn run(&mut self, run: &mut Run<'_>, until: Time) -> Result<(), Error> {
        while self.unfinished > 0 {
            let next = self.agenda.first().map_or(Time::MAX, |(at, _)| at).min(until);
            let has_events = run.advance(next, |world| world.dialogues.has_events());
            while let Some((dialogue, event)) = run.world.dialogues.next_event() {
                let number = self.owners[dialogue];
                if let Some(doing) = &mut self.users[number].doing {
                    doing.take(run.world.now, dialogue, event);
                }
                self.turn(run, number)?;
            }
            while let Some((_, number)) = self.agenda.first().filter(|(at, _)| *at <= run.world.now)
            {
                self.agenda.set(number, Time::MAX);
                self.turn(run, number)?;
            }
            if !has_events && run.world.now >= until {
                break;
            }
        }
        Ok(())
    }

    /// Lets a user do what it can, and sets when it goes on by itself.
    fn turn(&mut self, run: &mut Run<'_>, number: usize) -> Result<(), Error> {
        let user = &mut self.users[number];
        let now = run.world.now;
        let doing = match (&mut user.doing, user.workload) {
            (Some(doing), _) => doing,
            (None, Workload::Bulk(bulk)) => return user.download(run, bulk),
            (None, Workload::Page(page)) => {
                user.doing.insert(Doing::Reading(Visit::new(user.number, page, now)))
            }
            (None, Workload::Video(video)) => {
                let viewing = Box::new(Viewing::new(user.number, video, now));
                user.doing.insert(Doing::Watching(viewing))
            }
            (None, Workload::Transfer(_)) => return Err(Error::TransferInCells),
        };
        let before = doing.visit().dialogues().len();
        doing.turn(run)?;
        for dialogue in doing.visit().dialogues().skip(before) {
            if self.owners.len() <= dialogue {
                self.owners.resize(dialogue + 1, 0);
            }
            self.owners[dialogue] = number;
        }
        if !doing.is_over() {
            self.agenda.set(number, doing.wakeup(now).unwrap_or(Time::MAX));
            return Ok(());
        }
        self.finish(run, number)
    }

    /// A user has loaded a page or seen a video, or could not.
    fn finish(&mut self, run: &mut Run<'_>, number: usize) -> Result<(), Error> {
        let is_running = number < self.cells.running() as usize;
        let user = &mut self.users[number];
        let Some(doing) = user.doing.take() else { return Ok(()) };
        doing.visit().drop_all(run);
        self.agenda.set(number, run.world.now + self.cells.pause);
        let count = user.count();
        // What is loaded after the last that counts keeps the others company.
        if !is_running || user.loaded.len() >= count {
            return Ok(());
        }
        if doing.visit().has_failed() {
            return Err(Error::Connection { what: "user", number, why: "a connection broke" });
        }
        user.loaded.push(doing.visit().transfer());
        user.played.extend(doing.played(run.world.now));
        self.unfinished -= usize::from(user.loaded.len() == count);
        Ok(())
    }
}

impl<'a> User<'a> {
    fn new(number: u32, workload: &'a Workload) -> User<'a> {
        let (connections, loaded, played) = Default::default();
        User { number, workload, connections, doing: None, loaded, played }
    }

    /// How many of its pages or videos count.
    fn count(&self) -> usize {
        match self.workload {
            Workload::Page(page) => page.count as usize,
            Workload::Video(video) => video.count as usize,
            Workload::Bulk(_) | Workload::Transfer(_) => 0,
        }
    }

    fn download(&mut self, run: &mut Run<'_>, bulk: &Bulk) -> Result<(), Error> {
        for flow in 0..bulk.flows as usize {
            let upload = bulk.direction == Direction::Upload;
            let (client, server) = application::flow(upload, bulk.greeting.as_bytes());
            let control = bulk.control_of(flow);
            self.connections.push(run.connect(self.number, client, server, control)?);
        }
        Ok(())
    }
}

impl Doing {
    fn visit(&self) -> &Visit {
        match self {
            Doing::Reading(visit) => visit,
            Doing::Watching(viewing) => viewing.visit(),
        }
    }

    fn take(&mut self, now: Time, dialogue: usize, event: DialogueEvent) {
        match self {
            Doing::Reading(visit) => visit.take(now, dialogue, event),
            Doing::Watching(viewing) => viewing.take(now, dialogue, event),
        }
    }

    fn turn(&mut self, run: &mut Run<'_>) -> Result<(), Error> {
        match self {
            Doing::Reading(visit) => visit.turn(run),
            Doing::Watching(viewing) => viewing.turn(run),
        }
    }

    fn wakeup(&self, now: Time) -> Option<Time> {
        match self {
            Doing::Reading(visit) => visit.wakeup(now),
            Doing::Watching(viewing) => viewing.wakeup(now),
        }
    }

    fn is_over(&self) -> bool {
        let is_done = match self {
            Doing::Reading(visit) => visit.is_done(),
            Doing::Watching(viewing) => viewing.is_done(),
        };
        is_done || self.visit().has_failed()
    }

    /// How it has played, if it is a video.
    fn played(&self, now: Time) -> Option<VideoRecord> {
        match self {
            Doing::Reading(_) => None,
            Doing::Watching(viewing) => Some(viewing.record(now)),
        }
    }
}

impl<'a> Run<'a> {
    /// Everything that runs in cells. Legs, and objects of pages, are left out of the measurement: there
    /// are too many.
    pub(crate) fn users(&mut self, cells: &'a Cells, seed: u64) -> Result<Measurement, Error> {
        let spec = self.spec;
        let mut crowd = Crowd::new(&spec.workload, cells, seed);
        match &spec.workload {
            Workload::Bulk(bulk) => self.users_download(&mut crowd, bulk),
            Workload::Page(page) => self.users_load(&mut crowd, page.limit),
            Workload::Video(video) => self.users_load(&mut crowd, video.limit),
            Workload::Transfer(_) => Err(Error::TransferInCells),
        }
    }

    fn users_download(&mut self, crowd: &mut Crowd<'_>, bulk: &Bulk) -> Result<Measurement, Error> {
        let upload = bulk.direction == Direction::Upload;
        crowd.run(self, Time::ZERO + bulk.warmup.max(BEGINNINGS))?;
        let flows: Vec<Connection> =
            crowd.running().iter().flat_map(|user| user.connections.iter().copied()).collect();
        let (before, links_before) = (self.look(&flows, upload), self.world.counters());
        self.world.restart_delays();
        let begin = self.world.now;
        crowd.run(self, Time::ZERO + bulk.time)?;
        let after = self.look(&flows, upload);
        Ok(Measurement {
            links: measure::links(&links_before, &self.world, bulk.percentiles),
            ..Look::measurement(&before, &after, self.world.now.since(begin), BulkRecord::default())
        })
    }

    fn users_load(&mut self, crowd: &mut Crowd<'_>, limit: Span) -> Result<Measurement, Error> {
        let before = self.world.counters();
        crowd.run(self, Time::ZERO + limit)?;
        // A video that is still being watched counts as it has played: one cannot wait for who is out of
        // reach of all cells.
        let now = self.world.now;
        let (cells, users) = (crowd.cells, &mut crowd.users);
        for user in &mut users[..cells.running() as usize] {
            if user.loaded.len() == user.count() {
                continue;
            }
            if let Some(played) = user.doing.as_ref().and_then(|doing| doing.played(now)) {
                user.played.push(played);
                continue;
            }
            let why = "it is not through by the workload's limit";
            return Err(Error::Connection { what: "user", number: user.number as usize, why });
        }
        let running = crowd.running().iter();
        let transfers = running.clone().flat_map(|user| user.loaded.iter().copied()).collect();
        let videos: Vec<VideoRecord> =
            running.flat_map(|user| user.played.iter().copied()).collect();
        let workload = match videos.is_empty() {
            true => WorkloadRecord::Transfers(transfers),
            false => WorkloadRecord::Videos { transfers, videos },
        };
        Ok(self.of_workload(workload, Vec::new(), false, &before))
    }
}
