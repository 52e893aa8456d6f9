//! The users of a mobile network, all at once: who runs what, and what counts of it.

use midspan_path::lte::CELLS;
use midspan_scenario::record::{TransferRecord, VideoRecord, WorkloadRecord};
use midspan_scenario::{Cells, Workload};
use midspan_units::{Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::Activity;

/// Users begin at times spread over so long, so that they are not in step; those beside the workload over
/// a pause, if that is longer.
pub const BEGINNINGS: Span = Span::from_secs(1);

/// All users: those who run the workload, and then those beside them.
#[derive(Debug)]
pub struct Crowd<'a> {
    cells: &'a Cells,
    users: Vec<User<'a>>,
    /// How many are still to do what is measured.
    unfinished: usize,
}

#[derive(Debug)]
struct User<'a> {
    workload: &'a Workload,
    doing: Option<Activity>,
    /// What it has loaded, up to as much as counts, and how the videos of it played.
    loaded: Vec<TransferRecord>,
    played: Vec<VideoRecord>,
}

/// What speaks against a user's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// The user.
    pub number: usize,
    /// What is the matter.
    pub why: &'static str,
}

impl<'a> Crowd<'a> {
    /// Those of whom each runs `workload`, and the others of `cells`.
    pub fn new(workload: &'a Workload, cells: &'a Cells) -> Crowd<'a> {
        let mut workloads = vec![workload; cells.running() as usize];
        for others in &cells.others {
            let count = others.users as usize * CELLS;
            workloads.extend(std::iter::repeat_n(&others.workload, count));
        }
        let user = |workload| {
            let (loaded, played) = Default::default();
            User { workload, doing: None, loaded, played }
        };
        let users = workloads.into_iter().map(user).collect();
        Crowd { cells, users, unfinished: cells.running() as usize }
    }

    /// When each begins.
    pub fn beginnings(&self, seed: u64) -> impl Iterator<Item = Time> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let running = self.cells.running() as usize;
        let pause = self.cells.pause;
        (0..self.users.len()).map(move |number| {
            let spread = if number < running { BEGINNINGS } else { BEGINNINGS.max(pause) };
            Time::from_nanos(random.next_u64() % spread.as_nanos())
        })
    }

    /// What a user runs.
    pub fn workload(&self, number: usize) -> &'a Workload {
        self.users[number].workload
    }

    /// Whether a user's workload is measured.
    pub fn is_running(&self, number: usize) -> bool {
        number < self.cells.running() as usize
    }

    /// Whether all are through whose workload ends.
    pub fn is_through(&self) -> bool {
        self.unfinished == 0
    }

    /// What a user is doing, if it is doing something that ends.
    pub fn doing(&mut self, number: usize) -> Option<&mut Activity> {
        self.users[number].doing.as_mut()
    }

    /// The same; it begins its next page or video at `now` if it has none. None where its workload does not end.
    pub fn begin(&mut self, number: usize, now: Time) -> Option<&mut Activity> {
        let user = &mut self.users[number];
        if user.doing.is_none() {
            user.doing = match user.workload {
                Workload::Page(page) => Some(Activity::reading(page, now)),
                Workload::Video(video) => Some(Activity::watching(video, now)),
                Workload::Bulk(_) | Workload::Transfer(_) => None,
            };
        }
        user.doing.as_mut()
    }

    /// A user has loaded its page or seen its video, or could not. Answers when it goes on.
    ///
    /// # Errors
    /// When one that counts could not be loaded.
    pub fn finish(&mut self, number: usize, now: Time) -> Result<Time, Trouble> {
        let is_running = self.is_running(number);
        let user = &mut self.users[number];
        let next = now + self.cells.pause;
        let Some(doing) = user.doing.take() else { return Ok(next) };
        let count = user.count();
        // What is loaded after the last that counts keeps the others company.
        if !is_running || user.loaded.len() >= count {
            return Ok(next);
        }
        if doing.has_failed() {
            return Err(Trouble { number, why: "a connection broke" });
        }
        user.loaded.push(doing.transfer());
        user.played.extend(doing.video(now));
        self.unfinished -= usize::from(user.loaded.len() == count);
        Ok(next)
    }

    /// What pages or videos came to by `now`. A video that is still being watched counts as it has played: one
    /// cannot wait for who is out of reach of all cells.
    ///
    /// # Errors
    /// When a page is not there.
    pub fn record(&self, now: Time) -> Result<WorkloadRecord, Trouble> {
        let (mut transfers, mut videos) = (Vec::new(), Vec::new());
        for number in 0..self.cells.running() as usize {
            let user = &self.users[number];
            transfers.extend_from_slice(&user.loaded);
            videos.extend_from_slice(&user.played);
            if user.loaded.len() < user.count() {
                let playing = user.doing.as_ref().and_then(|doing| doing.video(now));
                let why = "it is not through by the workload's limit";
                videos.push(playing.ok_or(Trouble { number, why })?);
            }
        }
        Ok(match videos.is_empty() {
            true => WorkloadRecord::Transfers(transfers),
            false => WorkloadRecord::Videos { transfers, videos },
        })
    }
}

impl User<'_> {
    /// How many of its pages or videos count.
    fn count(&self) -> usize {
        match self.workload {
            Workload::Page(page) => page.count as usize,
            Workload::Video(video) => video.count as usize,
            Workload::Bulk(_) | Workload::Transfer(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use midspan_scenario::{Page, Scenario, Video};

    use super::*;
    use crate::{Event, Order};

    /// A user in each cell with `workload`, one beside it who downloads, and a pause of 3 s.
    fn cell(workload: &str) -> midspan_scenario::CellSpec {
        let text = format!(
            r#"
            name = "crowd"
            title = "Crowd"
            variants = ["none"]
            [cells]
            users = 1
            pause = "3 s"
            others = [{{ users = 1, workload = {{ kind = "bulk", direction = "download", time = "2 s" }} }}]
            [path.access]
            [path.wide]
            [workload]
            {workload}
            "#
        );
        Scenario::parse(&text, "test.toml").unwrap().cells()[0].spec.clone()
    }

    const PAGE: &str = "kind = 'page'\ndocument = '1 KB'\ncount = 2";
    const VIDEO: &str = "kind = 'video'\nrate = '8 kbit/s'\nduration = '2 s'\nstart = '1 s'";

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// Loads all that the user's first connection asks for, at once.
    fn load(crowd: &mut Crowd<'_>, user: usize, now: Time) {
        let activity = crowd.begin(user, now).unwrap();
        assert_eq!(activity.poll(now), Some(Order::Open));
        activity.take(now, 0, Event { connected: true, ..Event::default() });
        let Some(Order::Ask { answer, .. }) = activity.poll(now) else { panic!("it asks") };
        activity.take(now, 0, Event { fresh: answer, ..Event::default() });
    }

    #[test]
    fn users_begin_within_a_second_and_others_within_the_pause() {
        let spec = cell(PAGE);
        let crowd = Crowd::new(&spec.workload, spec.cells.as_ref().unwrap());
        let begin: Vec<Time> = crowd.beginnings(1).collect();
        assert_eq!(begin.len(), 14);
        assert!(begin[..7].iter().all(|begin| *begin < at(1000)), "{begin:?}");
        assert!(begin[7..].iter().any(|begin| *begin > at(1000)), "{begin:?}");
        assert!(begin[7..].iter().all(|begin| *begin < at(3000)), "{begin:?}");
        assert_eq!(begin, crowd.beginnings(1).collect::<Vec<_>>());
        assert!(matches!(crowd.workload(6), Workload::Page(Page { .. })));
        assert!(matches!(crowd.workload(7), Workload::Bulk(_)) && !crowd.is_running(7));
    }

    #[test]
    fn all_are_through_when_each_has_loaded_what_counts() {
        let spec = cell(PAGE);
        let mut crowd = Crowd::new(&spec.workload, spec.cells.as_ref().unwrap());
        assert!(crowd.begin(7, at(0)).is_none(), "a download does not end");
        for page in 0..2 {
            assert!(!crowd.is_through());
            // One who is through goes on, and that does not count.
            for _ in 0..2 {
                load(&mut crowd, 0, at(page));
                assert_eq!(crowd.finish(0, at(page)), Ok(at(page + 3000)));
            }
            for user in 1..7 {
                load(&mut crowd, user, at(page));
                assert!(crowd.doing(user).unwrap().is_done());
                crowd.finish(user, at(page)).unwrap();
            }
        }
        assert!(crowd.is_through());
        assert_eq!(crowd.record(at(2)).unwrap().transfers().len(), 14);
    }

    #[test]
    fn a_page_must_be_there_and_a_video_counts_as_it_has_played() {
        let spec = cell(PAGE);
        let mut crowd = Crowd::new(&spec.workload, spec.cells.as_ref().unwrap());
        assert_eq!(crowd.record(at(0)).unwrap_err().number, 0);
        crowd.begin(3, at(0)).unwrap().take(at(1), 0, Event { failed: true, ..Event::default() });
        assert_eq!(crowd.finish(3, at(1)).unwrap_err().number, 3);
        let spec = cell(VIDEO);
        assert!(matches!(&spec.workload, Workload::Video(Video { .. })));
        let mut crowd = Crowd::new(&spec.workload, spec.cells.as_ref().unwrap());
        (0..7).for_each(|user| load(&mut crowd, user, at(0)));
        let WorkloadRecord::Videos { transfers, videos } = crowd.record(at(500)).unwrap() else {
            panic!("these are videos")
        };
        assert_eq!((transfers.len(), videos.len()), (0, 7));
        assert!(videos.iter().all(|video| video.start_s == Some(0.0) && video.stalls == 0));
    }
}
