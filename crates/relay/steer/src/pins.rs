//! What outlives the process, in the BPF file system: the maps, and the links that hold the programs
//! in their places. A new relay takes them over, from one that runs or from one that died.
//!
//! ```text
//! /sys/fs/bpf/midspan/net-INODE/LAYOUT/  a network namespace, and what its maps look like
//!     settings, syn_records, ...         maps
//!     link-INDEX, exit-INDEX             the program at an interface's ingress and egress
//!     reopen                             the program at the namespace
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::Link;
use libbpf_rs::query::LinkTypeInfo;
use midspan_sys::netns::Netns;
use rustix::fs::statfs;

use crate::error::Error;

const FILE_SYSTEM: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC`.
const MAGIC: i64 = 0xcafe_4a11;
const ROOT: &str = "/sys/fs/bpf/midspan";
/// Longer than a relay takes to put its links beside its maps.
const UNFINISHED: Duration = Duration::from_secs(60);

/// A folder of pins.
#[derive(Debug)]
pub(crate) struct Pins {
    namespace: PathBuf,
    folder: PathBuf,
}

impl Pins {
    /// Those of the calling thread's network namespace, which may not be there yet. What others,
    /// that are gone, have left is removed.
    pub(crate) fn here() -> Result<Pins, Error> {
        let fails = |path: &Path, error| Error::Pin { path: path.display().to_string(), error };
        let mounted = statfs(FILE_SYSTEM).is_ok_and(|found| found.f_type == MAGIC);
        if !mounted {
            let error = io::Error::other("the BPF file system is not mounted there");
            return Err(fails(Path::new(FILE_SYSTEM), error));
        }
        let inode = Netns::current().and_then(|netns| netns.inode());
        let inode = inode.map_err(|error| fails(Path::new("network namespace"), error))?;
        sweep(Path::new(ROOT));
        let namespace = Path::new(ROOT).join(format!("net-{inode}"));
        let folder = namespace.join(format!("{:08x}", LAYOUT));
        let pins = Pins { namespace, folder };
        // A number that was another namespace's, or what was left unfinished.
        if pins.folder.exists() && namespace_of(&pins.reopen()) != Some(inode as u32) {
            remove(&pins.folder);
        }
        fs::create_dir_all(&pins.folder).map_err(|error| fails(&pins.folder, error))?;
        Ok(pins)
    }

    pub(crate) fn map(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn link(&self, interface: u32) -> PathBuf {
        self.folder.join(format!("link-{interface}"))
    }

    pub(crate) fn exit(&self, interface: u32) -> PathBuf {
        self.folder.join(format!("exit-{interface}"))
    }

    pub(crate) fn reopen(&self) -> PathBuf {
        self.folder.join("reopen")
    }

    /// Removes those of other layouts, whose relay has been taken over from.
    pub(crate) fn remove_others(&self) {
        for other in entries(&self.namespace).filter(|other| *other != self.folder) {
            remove(&other);
        }
    }

    /// Removes all.
    pub(crate) fn remove(&self) {
        remove(&self.namespace);
    }
}

/// The link that is pinned at `path`, if it is still in its place: `index` tells which.
pub(crate) fn open_link(path: &Path, index: u32) -> Option<Link> {
    let link = Link::open(path).ok()?;
    let place = match link.info().ok()?.info {
        LinkTypeInfo::Tcx(tcx) => tcx.ifindex,
        LinkTypeInfo::NetNs(netns) => netns.ino,
        _ => 0,
    };
    if place == index {
        return Some(link);
    }
    let _ = fs::remove_file(path);
    None
}

/// Removes what relays have left in namespaces that are no more.
fn sweep(root: &Path) {
    for namespace in entries(root).filter(|folder| is_of_a_namespace(folder)) {
        let age = fs::metadata(&namespace).and_then(|found| found.modified());
        let is_old = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNFINISHED));
        let is_gone = |folder: PathBuf| match folder.join("reopen") {
            link if link.exists() => namespace_of(&link).is_none_or(|inode| inode == 0),
            _ => is_old,
        };
        if entries(&namespace).all(is_gone) && (is_old || entries(&namespace).next().is_some()) {
            remove(&namespace);
        }
    }
}

/// Whether it is a namespace's. Others keep pins there too: congestion controls and NetAssist's feedback (`cc`).
fn is_of_a_namespace(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_prefix("net-"))
        .is_some_and(|inode| inode.parse::<u64>().is_ok())
}

/// The number of the namespace that the link at `path` is in; 0 if that is gone.
fn namespace_of(path: &Path) -> Option<u32> {
    match Link::open(path).ok()?.info().ok()?.info {
        LinkTypeInfo::NetNs(netns) => Some(netns.ino),
        _ => None,
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "{} could not be removed", folder.display());
    }
}

/// A sum over the headers that say what the maps hold (FNV-1a), so that no program meets maps of another
/// layout.
const LAYOUT: u32 = {
    let headers = [
        include_str!("../bpf/intf.h"),
        include_str!("../bpf/maps.h"),
        include_str!("../bpf/packet.h"),
        include_str!("../../../tcp/reordering/algo/reordering.h"),
    ];
    let (mut sum, mut header) = (0x811c_9dc5_u32, 0);
    while header < headers.len() {
        let bytes = headers[header].as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            sum = (sum ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        header += 1;
    }
    sum
};

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_what_is_a_namespaces_is_swept() {
        let root = std::env::temp_dir().join(format!("midspan-pins-{}", std::process::id()));
        for folder in ["cc/feedback", "net-4026531840/00000001"] {
            let folder = root.join(folder);
            fs::create_dir_all(&folder).unwrap();
            for old in [folder.as_path(), folder.parent().unwrap()] {
                let long_ago = SystemTime::now() - 2 * UNFINISHED;
                fs::File::open(old).unwrap().set_modified(long_ago).unwrap();
            }
        }
        sweep(&root);
        let left: Vec<_> = entries(&root).collect();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(left, [root.join("cc")]);
    }
}
