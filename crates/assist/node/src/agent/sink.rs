use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use midspan_assist_proto::Entry;
use midspan_cc::Feedback;
use midspan_cc::feedback::{ENTRIES, KEY_SIZE, PIN, VALUE_SIZE, Value, key};
use midspan_ccload::{Controls, PREFIX, feedback_in, is_feedback};
use midspan_units::Span;

/// Where an agent leaves what its host's senders are to go by.
pub trait Sink: Send + fmt::Debug {
    /// From now on, for `timeout` after it was measured, this holds.
    ///
    /// # Errors
    /// When it cannot be left.
    fn write(&mut self, entry: &Entry, timeout: Span) -> io::Result<()>;

    /// Nothing holds for this UE any more.
    ///
    /// # Errors
    /// When it cannot be taken away.
    fn remove(&mut self, ue: IpAddr) -> io::Result<()>;

    /// Sees whether what is left is still read by whom it is for. Answers what has changed, if something
    /// has: then all is to be left again.
    fn refresh(&mut self) -> Option<String> {
        None
    }
}

/// The BPF map from which the congestion controls `natcp` and `nacubic` read ([`midspan_cc::feedback`]):
/// the pinned one, and whichever else the registered controls have, who may have come before it or
/// outlived it.
#[derive(Debug)]
pub struct FeedbackMap {
    controls: Option<Controls>,
    map: MapHandle,
    /// Maps of controls that read another, by identifier.
    others: BTreeMap<u32, MapHandle>,
}

impl FeedbackMap {
    /// As [`FeedbackMap::of`], for the machine's own controls, with their map pinned in `folder`.
    ///
    /// # Errors
    /// As there.
    pub fn pinned(folder: &Path) -> io::Result<FeedbackMap> {
        FeedbackMap::of(Controls::new(folder, PREFIX))
    }

    /// Opens the map that these controls have pinned, or makes and pins it there: whoever comes first
    /// does, this or the loader of the congestion controls.
    ///
    /// # Errors
    /// When the folder is not of a BPF file system, the user may not, or what is pinned there is
    /// another map.
    pub fn of(controls: Controls) -> io::Result<FeedbackMap> {
        if !controls.feedback().exists() {
            controls.make_folder().map_err(io::Error::other)?;
            pin(&mut create().map_err(io::Error::other)?, &controls.feedback())?;
        }
        let map = controls.feedback_map()?;
        let mut found = FeedbackMap { controls: Some(controls), map, others: BTreeMap::new() };
        found.refresh();
        Ok(found)
    }

    /// A map that nobody else knows, for controls that are held with it.
    ///
    /// # Errors
    /// When the user may not.
    pub fn private() -> io::Result<FeedbackMap> {
        let map = create().map_err(io::Error::other)?;
        Ok(FeedbackMap { controls: None, map, others: BTreeMap::new() })
    }

    /// The same map once more.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn try_clone(&self) -> io::Result<FeedbackMap> {
        let map = MapHandle::try_from(&self.map).map_err(io::Error::other)?;
        Ok(FeedbackMap { controls: self.controls.clone(), map, others: BTreeMap::new() })
    }

    fn all(&self) -> impl Iterator<Item = &MapHandle> {
        std::iter::once(&self.map).chain(self.others.values())
    }

    /// What the map has of `ue`.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn read(&self, ue: IpAddr) -> io::Result<Option<Value>> {
        feedback_in(&self.map, ue)
    }
}

impl AsFd for FeedbackMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// Unless somebody else has pinned theirs there in between: theirs holds.
fn pin(map: &mut MapHandle, path: &Path) -> io::Result<()> {
    match map.pin(path) {
        Err(error) if !path.exists() => {
            Err(io::Error::other(format!("{}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

fn create() -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let (key, value) = (KEY_SIZE as u32, VALUE_SIZE as u32);
    MapHandle::create(MapType::LruHash, Some(PIN), key, value, ENTRIES, &options)
}

impl Sink for FeedbackMap {
    fn write(&mut self, entry: &Entry, timeout: Span) -> io::Result<()> {
        let value = value(entry, timeout);
        for map in self.all() {
            map.update(&key(entry.ue), &value, MapFlags::ANY).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn remove(&mut self, ue: IpAddr) -> io::Result<()> {
        for map in self.all() {
            match map.delete(&key(ue)) {
                Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {}
                result => result.map_err(io::Error::other)?,
            }
        }
        Ok(())
    }

    fn refresh(&mut self) -> Option<String> {
        let controls = self.controls.as_ref()?;
        let mut said = None;
        let path = controls.feedback();
        if !path.exists() {
            // Who comes next would make another, and not hear what is left in this one.
            if controls.make_folder().is_ok() && pin(&mut self.map, &path).is_ok() {
                said = Some(format!("the pin {} was gone: it is there again", path.display()));
            }
        } else if let Ok(map) = controls.feedback_map()
            && id(&map) != id(&self.map)
        {
            said = Some(format!("another map is pinned at {} now: it is used", path.display()));
            self.map = map;
        }
        let mut in_use = controls.feedback_in_use();
        if let Some(own) = id(&self.map) {
            in_use.remove(&own);
        }
        self.others.retain(|id, _| in_use.contains(id));
        for id in in_use {
            if let btree_map::Entry::Vacant(place) = self.others.entry(id)
                && let Ok(map) = MapHandle::from_map_id(id)
                && is_feedback(&map)
            {
                place.insert(map);
                let pin = path.display();
                said = Some(format!(
                    "a congestion control reads map {id}, and not {pin}: both are used"
                ));
            }
        }
        said
    }
}

fn id(map: &MapHandle) -> Option<u32> {
    map.info().ok().map(|info| info.info.id)
}

fn value(entry: &Entry, timeout: Span) -> [u8; VALUE_SIZE] {
    let feedback = Feedback {
        bandwidth: entry.bandwidth,
        min_rtt: entry.min_rtt,
        fairness: entry.fairness.as_256ths(),
        queue: entry.queue,
        pace: entry.pace,
    };
    // As of the measurement, so that its age counts towards the timeout.
    let Entry { measured: updated, sequence, .. } = *entry;
    Value { feedback, updated, timeout, sequence }.to_bytes()
}

/// A sink in memory, for hosts without the congestion controls, and for tests: clones share it.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<Mutex<BTreeMap<IpAddr, (Entry, Span)>>>);

impl Memory {
    /// What was last written for `ue`, unless it was taken away, and its timeout.
    pub fn get(&self, ue: IpAddr) -> Option<(Entry, Span)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&ue).copied()
    }
}

impl Sink for Memory {
    fn write(&mut self, entry: &Entry, timeout: Span) -> io::Result<()> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(entry.ue, (*entry, timeout));
        Ok(())
    }

    fn remove(&mut self, ue: IpAddr) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&ue);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use midspan_assist_proto::fairness::Coefficient;
    use midspan_units::{ByteSize, Rate, Time};

    use std::fs;

    use super::*;
    use midspan_ccload::{Algorithm, Options, RegisteredControl};

    fn entry() -> Entry {
        Entry {
            ue: "10.45.0.2".parse().unwrap(),
            bandwidth: Rate::from_bps(12_000_000),
            min_rtt: Span::from_millis(11),
            fairness: Coefficient::of_flows(2).unwrap(),
            queue: ByteSize::from_bytes(60_000),
            pace: 320,
            measured: Time::from_nanos(123),
            sequence: 9,
        }
    }

    #[test]
    fn a_pinned_map_is_made_once_and_shared() {
        let folder = Path::new("/sys/fs/bpf").join(format!("midspan-test-{}", std::process::id()));
        struct Unpin<'a>(&'a Path);
        impl Drop for Unpin<'_> {
            fn drop(&mut self) {
                let _ = fs::remove_file(self.0.join(PIN));
                let _ = fs::remove_dir(self.0);
            }
        }
        let _unpin = Unpin(&folder);
        let mut first = match FeedbackMap::pinned(&folder) {
            Ok(map) => map,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let second = FeedbackMap::pinned(&folder).unwrap();
        first.write(&entry(), Span::from_millis(175)).unwrap();
        let read = second.read(entry().ue).unwrap().unwrap();
        assert_eq!(read.to_bytes(), value(&entry(), Span::from_millis(175)));
        first.remove(entry().ue).unwrap();
        first.remove(entry().ue).unwrap();
        assert_eq!(second.read(entry().ue).unwrap(), None);
        fs::remove_file(folder.join(PIN)).unwrap();
        assert!(first.refresh().is_some_and(|said| said.contains("was gone")));
        assert_eq!(first.refresh(), None);
        let mut third = FeedbackMap::pinned(&folder).unwrap();
        third.write(&entry(), Span::from_millis(175)).unwrap();
        assert!(first.read(entry().ue).unwrap().is_some());
    }

    /// What a machine's programs do with the control, in whatever order.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Step {
        /// A relay starts, which holds it.
        Relay,
        /// The same ends.
        RelayEnds,
        /// `midspan cc load`.
        Load,
        /// `midspan cc unload --all`.
        Unload,
        /// The agent starts, again.
        Agent,
    }

    /// After every step, and after every order of them: what the agent leaves is where the control that
    /// is registered reads it, once the agent has looked.
    #[test]
    fn what_is_left_is_read_whoever_came_first() {
        use Step::*;
        let letters: String = (0..4)
            .map(|place| char::from(b'a' + (std::process::id() / 26u32.pow(place) % 26) as u8))
            .collect();
        let folder = Path::new("/sys/fs/bpf").join(format!("midspan-test-{letters}"));
        let controls = Controls::new(&folder, letters);
        let natcp = Algorithm::named("natcp").unwrap();
        match controls.hold(natcp, &Options::default()) {
            Ok(held) => drop(held),
            Err(error) => return eprintln!("skipped: {error}"),
        }
        if !midspan_ccload::Kernel::running().unwrap().links {
            return eprintln!("skipped: before Linux 6.4 it cannot be seen who reads which map");
        }
        let mut orders = vec![vec![]];
        for _ in 0..3 {
            let steps = [Relay, RelayEnds, Load, Unload, Agent];
            let longer = |order: &Vec<Step>| {
                let order = order.clone();
                steps.map(move |step| [order.clone(), vec![step]].concat())
            };
            orders = orders.iter().flat_map(longer).collect();
        }
        for order in orders.iter().filter(|order| order.contains(&Agent)) {
            let (mut relay, mut agent): (Option<RegisteredControl>, Option<FeedbackMap>) =
                (None, None);
            for step in order {
                match step {
                    Relay if relay.is_none() => {
                        relay = Some(controls.hold(natcp, &Options::default()).unwrap());
                    }
                    Relay => {}
                    RelayEnds => relay = None,
                    Load => match controls.load(natcp, &Options::default()) {
                        Ok(_) => {}
                        Err(error) => {
                            let me = format!("held by process {}", std::process::id());
                            assert!(error.to_string().contains(&me), "{order:?}: {error}");
                        }
                    },
                    Unload => drop(controls.unload_all().unwrap()),
                    Agent => {
                        drop(agent.take());
                        agent = Some(FeedbackMap::of(controls.clone()).unwrap());
                    }
                }
                let Some(agent) = &mut agent else { continue };
                agent.refresh();
                agent.write(&entry(), Span::from_millis(175)).unwrap();
                for id in controls.feedback_in_use() {
                    // One that is going as this looks is nobody's loss.
                    let Ok(map) = MapHandle::from_map_id(id) else { continue };
                    let read = map.lookup(&key(entry().ue), MapFlags::ANY).unwrap();
                    let still = controls.feedback_in_use().contains(&id);
                    assert!(read.is_some() || !still, "{order:?} at {step:?}");
                }
                agent.remove(entry().ue).unwrap();
            }
            drop((relay, agent));
            controls.unload_all().unwrap();
            let _ = fs::remove_file(folder.join(PIN));
            let _ = fs::remove_dir(&folder);
        }
    }

    #[test]
    fn without_a_bpf_file_system_it_says_what_to_do() {
        let folder = std::env::temp_dir().join("midspan-no-bpffs");
        let error = FeedbackMap::pinned(&folder).unwrap_err().to_string();
        assert!(error.contains("mount -t bpf bpf /sys/fs/bpf"), "{error}");
    }
}
