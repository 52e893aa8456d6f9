//! What some controls have at the ingress of their sockets: a program of a control group, which sees
//! what a socket receives before TCP does.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use libbpf_rs::{Link, Object, ProgramMut, ProgramType};

use crate::Error;
use crate::controls::io_error;

/// Attaches the program that `object` has for its sockets' ingress, if it has one, to the root of the
/// control groups: so to every socket of the machine, in whatever network namespace, those of controls
/// that are loaded later included. It goes with the answer.
///
/// # Errors
/// Without a hierarchy of control groups (version 2), or when the kernel or the user's rights do not
/// suffice.
pub(crate) fn attach(object: &mut Object) -> Result<Option<Link>, Error> {
    let Some(program) = program(object) else { return Ok(None) };
    let root = cgroup_root()?;
    let failed = |error| Error::Ingress { cgroup: root.clone(), error };
    let group = File::open(&root).map_err(failed)?;
    let link = program.attach_cgroup(group.as_raw_fd()).map_err(|error| io_error(&error));
    link.map(Some).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Error::NotPermitted,
        _ => failed(error),
    })
}

/// The same for as long as it is pinned at `pin`. What is pinned there already has its program exchanged
/// without a gap.
pub(crate) fn pin(object: &mut Object, pin: &Path) -> Result<(), Error> {
    let failed =
        |error: &libbpf_rs::Error| Error::Pin { path: pin.to_owned(), error: io_error(error) };
    let Some(program) = program(object) else { return Ok(()) };
    if pin.exists() {
        let mut link = Link::open(pin).map_err(|error| failed(&error))?;
        return link.update_prog(&program).map_err(|error| failed(&error));
    }
    match attach(object)? {
        Some(mut link) => link.pin(pin).map_err(|error| failed(&error)),
        None => Ok(()),
    }
}

fn program(object: &mut Object) -> Option<ProgramMut<'_>> {
    object.progs_mut().find(|program| program.prog_type() == ProgramType::CgroupSkb)
}

/// Where the root of the control groups is mounted that this process sees.
fn cgroup_root() -> Result<PathBuf, Error> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mount_of("cgroup2", &mounts).ok_or(Error::NoCgroup)
}

/// The mount point of the first file system of a kind that is mounted from its root (proc(5),
/// `/proc/pid/mountinfo`).
fn mount_of(kind: &str, mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (after.split(' ').next() == Some(kind) && root == "/").then(|| PathBuf::from(point))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_where_it_is_mounted() {
        let mountinfo = "\
            24 30 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
            33 24 0:28 / /sys/fs/cgroup/cpu rw shared:10 - cgroup cgroup rw,cpu\n\
            34 24 0:29 /part /mnt/part rw - cgroup2 cgroup2 rw\n\
            35 24 0:29 / /sys/fs/cgroup/unified rw,relatime shared:11 master:1 - cgroup2 cgroup2 rw\n";
        let found = mount_of("cgroup2", mountinfo);
        assert_eq!(found.unwrap(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(mount_of("bpf", mountinfo), None);
        assert_eq!(mount_of("cgroup2", "half a line"), None);
    }
}
