//! Control groups of version 2.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The folder of the calling process's own group.
///
/// # Errors
/// Where there is none, or it cannot be opened.
pub fn own() -> io::Result<File> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let path = path(&groups, &mounts)
        .ok_or_else(|| io::Error::other("no control groups of version 2 are mounted"))?;
    File::open(path)
}

/// That of the group in `groups` (cgroups(7)), below the place in `mounts` (proc_pid_mountinfo(5)) where it can be seen.
fn path(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, at) = (place.next()?, place.next()?);
        let below = Path::new(group).strip_prefix(root).ok()?;
        (kind.split(' ').next() == Some("cgroup2")).then(|| Path::new(at).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_where_it_is_mounted() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let at =
            |groups: &str, mounts: &str| path(groups, mounts).map(|it| it.display().to_string());
        let unified = "/sys/fs/cgroup/unified/".to_owned();
        assert_eq!(at("5:devices:/\n0::/\n", mounts), Some(unified.clone()));
        let service = "0::/system.slice/midspan.service\n";
        assert_eq!(at(service, mounts), Some(format!("{unified}system.slice/midspan.service")));
        // A container sees a part of the tree.
        let part = "9 8 0:38 /system.slice /cg ro shared:4 - cgroup2 none ro\n";
        assert_eq!(at(service, part), Some("/cg/midspan.service".to_owned()));
        assert_eq!(at("0::/user.slice\n", part), None);
        assert_eq!(at("5:devices:/\n", mounts), None);
        assert_eq!(at(service, ""), None);
    }
}
