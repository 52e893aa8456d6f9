use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use midspan_assist_proto::Entry;
use midspan_cc::Feedback;
use midspan_cc::feedback::{ENTRIES, KEY_SIZE, PIN, VALUE_SIZE, Value, key};
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
}

/// The BPF map from which the congestion controls `natcp` and `nacubic` read ([`midspan_cc::feedback`]).
#[derive(Debug)]
pub struct FeedbackMap(MapHandle);

impl FeedbackMap {
    /// Opens the map that is pinned in `folder`, or makes and pins it there: whoever comes first
    /// does, this or the loader of the congestion controls.
    ///
    /// # Errors
    /// When the folder is not of a BPF file system, the user may not, or what is pinned there is
    /// another map.
    pub fn pinned(folder: &Path) -> io::Result<FeedbackMap> {
        let path = folder.join(PIN);
        let in_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let other = |error: libbpf_rs::Error| in_path(io::Error::other(error));
        if !path.exists() {
            fs::create_dir_all(folder).map_err(in_path)?;
            let mut map = create().map_err(other)?;
            // Somebody else may have pinned theirs in between: theirs holds.
            if let Err(error) = map.pin(&path)
                && !path.exists()
            {
                return Err(other(error));
            }
        }
        let map = MapHandle::from_pinned_path(&path).map_err(other)?;
        let right = map.map_type() == MapType::LruHash
            && (map.key_size(), map.value_size()) == (KEY_SIZE as u32, VALUE_SIZE as u32);
        if !right {
            return Err(in_path(io::Error::other("another map than the one for feedback")));
        }
        Ok(FeedbackMap(map))
    }

    /// A map that nobody else knows, for controls that are held with it.
    ///
    /// # Errors
    /// When the user may not.
    pub fn private() -> io::Result<FeedbackMap> {
        create().map(FeedbackMap).map_err(io::Error::other)
    }

    /// The same map once more.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn try_clone(&self) -> io::Result<FeedbackMap> {
        MapHandle::try_from(&self.0).map(FeedbackMap).map_err(io::Error::other)
    }

    /// What holds for `ue`, as it lies in the map.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn read(&self, ue: IpAddr) -> io::Result<Option<Vec<u8>>> {
        self.0.lookup(&key(ue), MapFlags::ANY).map_err(io::Error::other)
    }
}

impl AsFd for FeedbackMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
        self.0.update(&key(entry.ue), &value, MapFlags::ANY).map_err(io::Error::other)
    }

    fn remove(&mut self, ue: IpAddr) -> io::Result<()> {
        match self.0.delete(&key(ue)) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            result => result.map_err(io::Error::other),
        }
    }
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

    use super::*;

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
        let read = second.read(entry().ue).unwrap();
        assert_eq!(read.as_deref(), Some(&value(&entry(), Span::from_millis(175))[..]));
        first.remove(entry().ue).unwrap();
        first.remove(entry().ue).unwrap();
        assert_eq!(second.read(entry().ue).unwrap(), None);
    }
}
