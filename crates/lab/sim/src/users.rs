//! The users of a mobile network, all at once, each with what it runs.

use midspan_apps::{BEGINNINGS, Crowd, Trouble};
use midspan_scenario::record::{BulkRecord, Measurement};
use midspan_scenario::{Bulk, Cells, Direction, Workload};
use midspan_units::{Span, Time};

use crate::agenda::Agenda;
use crate::application;
use crate::error::Error;
use crate::measure;
use crate::run::{Connection, Look, Run};
use crate::visit::Visit;

/// All users, what they have open, and when each next does something of its own accord.
struct Users<'a> {
    crowd: Crowd<'a>,
    users: Vec<User>,
    agenda: Agenda,
    /// Whose each dialogue is.
    owners: Vec<usize>,
}

#[derive(Default)]
struct User {
    /// Of its downloads.
    connections: Vec<Connection>,
    /// Of what it is doing that ends.
    visit: Option<Visit>,
}

impl<'a> Users<'a> {
    fn new(workload: &'a Workload, cells: &'a Cells, seed: u64) -> Users<'a> {
        let crowd = Crowd::new(workload, cells);
        let mut agenda = Agenda::new();
        crowd.beginnings(seed).enumerate().for_each(|(number, begin)| agenda.set(number, begin));
        let users = (0..cells.total()).map(|_| User::default()).collect();
        Users { crowd, users, agenda, owners: Vec::new() }
    }

    /// Lets everything happen until `until`, or until all are finished whose workload ends.
    fn run(&mut self, run: &mut Run<'_>, until: Time) -> Result<(), Error> {
        while !self.crowd.is_through() {
            let next = self.agenda.first().map_or(Time::MAX, |(at, _)| at).min(until);
            let has_events = run.advance(next, |world| world.dialogues.has_events());
            while let Some((dialogue, event)) = run.world.dialogues.next_event() {
                let number = self.owners[dialogue];
                if let Some(activity) = self.crowd.doing(number)
                    && let Some(visit) = &self.users[number].visit
                {
                    visit.take(activity, run.world.now, dialogue, event);
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
        let now = run.world.now;
        let user = &mut self.users[number];
        let Some(activity) = self.crowd.begin(number, now) else {
            return match self.crowd.workload(number) {
                Workload::Bulk(bulk) => user.download(run, number as u32, bulk),
                _ => Err(Error::TransferInCells),
            };
        };
        let visit = user.visit.get_or_insert_with(|| Visit::new(number as u32));
        let before = visit.dialogues().len();
        visit.turn(activity, run)?;
        for dialogue in visit.dialogues().skip(before) {
            if self.owners.len() <= dialogue {
                self.owners.resize(dialogue + 1, 0);
            }
            self.owners[dialogue] = number;
        }
        if !activity.is_done() && !activity.has_failed() {
            self.agenda.set(number, activity.wakeup(now).unwrap_or(Time::MAX));
            return Ok(());
        }
        if let Some(visit) = user.visit.take() {
            visit.drop_all(run);
        }
        self.agenda.set(number, self.crowd.finish(number, now).map_err(of_user)?);
        Ok(())
    }
}

fn of_user(trouble: Trouble) -> Error {
    Error::Connection { what: "user", number: trouble.number, why: trouble.why }
}

impl User {
    fn download(&mut self, run: &mut Run<'_>, number: u32, bulk: &Bulk) -> Result<(), Error> {
        for flow in 0..bulk.flows as usize {
            let upload = bulk.direction == Direction::Upload;
            let (client, server) = application::flow(upload, bulk.greeting.as_bytes());
            let control = bulk.control_of(flow);
            self.connections.push(run.connect(number, client, server, control)?);
        }
        Ok(())
    }
}

impl<'a> Run<'a> {
    /// Everything that runs in cells. Legs, and objects of pages, are left out of the measurement: there
    /// are too many.
    pub(crate) fn users(&mut self, cells: &'a Cells, seed: u64) -> Result<Measurement, Error> {
        let spec = self.spec;
        let mut users = Users::new(&spec.workload, cells, seed);
        match &spec.workload {
            Workload::Bulk(bulk) => self.users_download(&mut users, cells, bulk),
            Workload::Page(page) => self.users_load(&mut users, page.limit),
            Workload::Video(video) => self.users_load(&mut users, video.limit),
            Workload::Transfer(_) => Err(Error::TransferInCells),
        }
    }

    fn users_download(
        &mut self,
        users: &mut Users<'_>,
        cells: &Cells,
        bulk: &Bulk,
    ) -> Result<Measurement, Error> {
        let upload = bulk.direction == Direction::Upload;
        users.run(self, Time::ZERO + bulk.warmup.max(BEGINNINGS))?;
        let running = &users.users[..cells.running() as usize];
        let flows: Vec<Connection> =
            running.iter().flat_map(|user| user.connections.iter().copied()).collect();
        let (before, links_before) = (self.look(&flows, upload), self.world.counters());
        self.world.restart_delays();
        let begin = self.world.now;
        users.run(self, Time::ZERO + bulk.time)?;
        let after = self.look(&flows, upload);
        Ok(Measurement {
            links: measure::links(&links_before, &self.world, bulk.percentiles),
            ..Look::measurement(&before, &after, self.world.now.since(begin), BulkRecord::default())
        })
    }

    fn users_load(&mut self, users: &mut Users<'_>, limit: Span) -> Result<Measurement, Error> {
        let before = self.world.counters();
        users.run(self, Time::ZERO + limit)?;
        let workload = users.crowd.record(self.world.now).map_err(of_user)?;
        Ok(self.of_workload(workload, Vec::new(), false, &before))
    }
}
