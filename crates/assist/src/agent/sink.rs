use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use midspan_assist_proto::Entry;
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

/// The BPF map from which the congestion controls `natcp` and `nacubic` read (its layout is
/// `crates/cc/algo/feedback.h`).
#[derive(Debug)]
pub struct PinnedMap(MapHandle);

/// `FEEDBACK_ENTRIES`.
const ENTRIES: u32 = 65_536;
/// `struct feedback_key`.
const KEY: usize = 16;
/// `struct feedback_value`.
const VALUE: usize = 32;
const NAME: &str = "feedback";

impl PinnedMap {
    /// Opens the map that is pinned in `folder`, or makes and pins it there: whoever comes first
    /// does, this or the loader of the congestion controls.
    ///
    /// # Errors
    /// When the folder is not of a BPF file system, the user may not, or what is pinned there is
    /// another map.
    pub fn open(folder: &Path) -> io::Result<PinnedMap> {
        let path = folder.join(NAME);
        let in_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let other = |error: libbpf_rs::Error| in_path(io::Error::other(error));
        if !path.exists() {
            fs::create_dir_all(folder).map_err(in_path)?;
            let options = libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
                ..Default::default()
            };
            let (key, value) = (KEY as u32, VALUE as u32);
            let mut map =
                MapHandle::create(MapType::LruHash, Some(NAME), key, value, ENTRIES, &options)
                    .map_err(other)?;
            // Somebody else may have pinned theirs in between: theirs holds.
            if let Err(error) = map.pin(&path)
                && !path.exists()
            {
                return Err(other(error));
            }
        }
        let map = MapHandle::from_pinned_path(&path).map_err(other)?;
        let right = map.map_type() == MapType::LruHash
            && (map.key_size(), map.value_size()) == (KEY as u32, VALUE as u32);
        if !right {
            return Err(in_path(io::Error::other("another map than the one for feedback")));
        }
        Ok(PinnedMap(map))
    }

    /// What holds for `ue`, as it lies in the map.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn read(&self, ue: IpAddr) -> io::Result<Option<Vec<u8>>> {
        self.0.lookup(&key(ue), MapFlags::ANY).map_err(io::Error::other)
    }
}

impl Sink for PinnedMap {
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

fn key(ue: IpAddr) -> [u8; KEY] {
    match ue {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn value(entry: &Entry, timeout: Span) -> [u8; VALUE] {
    let micros = |span: Span| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
    let mut value = [0; VALUE];
    value[0..8].copy_from_slice(&entry.measured.as_nanos().to_ne_bytes());
    // Bytes: at least one, since zero is "not known".
    value[8..16].copy_from_slice(&(entry.bandwidth.as_bps() / 8).max(1).to_ne_bytes());
    value[16..20].copy_from_slice(&micros(entry.min_rtt).to_ne_bytes());
    value[20..24].copy_from_slice(&entry.fairness.as_256ths().to_ne_bytes());
    value[24..28].copy_from_slice(&(micros(timeout) / 1_000).to_ne_bytes());
    value[28..32].copy_from_slice(&entry.sequence.to_ne_bytes());
    value
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
    use midspan_units::{Rate, Time};

    use super::*;

    fn entry() -> Entry {
        Entry {
            ue: "10.45.0.2".parse().unwrap(),
            bandwidth: Rate::from_bps(12_000_000),
            min_rtt: Span::from_millis(11),
            fairness: Coefficient::of_flows(2).unwrap(),
            measured: Time::from_nanos(123),
            sequence: 9,
        }
    }

    #[test]
    fn the_value_is_laid_out_as_the_header_says() {
        let value = value(&entry(), Span::from_millis(175));
        let long = |at: usize| u64::from_ne_bytes(value[at..at + 8].try_into().unwrap());
        let short = |at: usize| u32::from_ne_bytes(value[at..at + 4].try_into().unwrap());
        assert_eq!((long(0), long(8)), (123, 1_500_000));
        assert_eq!([short(16), short(20), short(24), short(28)], [11_000, 512, 175, 9]);
        assert_eq!(&key(entry().ue)[8..], [0, 0, 0xff, 0xff, 10, 45, 0, 2]);
    }

    #[test]
    fn a_pinned_map_is_made_once_and_shared() {
        let folder = Path::new("/sys/fs/bpf").join(format!("midspan-test-{}", std::process::id()));
        struct Unpin<'a>(&'a Path);
        impl Drop for Unpin<'_> {
            fn drop(&mut self) {
                let _ = fs::remove_file(self.0.join(NAME));
                let _ = fs::remove_dir(self.0);
            }
        }
        let _unpin = Unpin(&folder);
        let mut first = match PinnedMap::open(&folder) {
            Ok(map) => map,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let second = PinnedMap::open(&folder).unwrap();
        first.write(&entry(), Span::from_millis(175)).unwrap();
        let read = second.read(entry().ue).unwrap();
        assert_eq!(read.as_deref(), Some(&value(&entry(), Span::from_millis(175))[..]));
        first.remove(entry().ue).unwrap();
        first.remove(entry().ue).unwrap();
        assert_eq!(second.read(entry().ue).unwrap(), None);
    }
}
