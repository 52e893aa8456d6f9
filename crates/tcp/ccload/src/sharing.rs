//! Registrations that another process made, or that are pinned: kept for as long as this one wants them too.
//!
//! Since Linux 6.4 a registration is a link, which lasts as long as anybody has hold of it. A name belongs
//! to the whole machine, so whoever wants one that is there takes hold of the link of whoever came first,
//! and neither can take it from the other. Finding it takes CAP_SYS_ADMIN.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::query::{
    LinkInfo, LinkInfoIter, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use midspan_cc::feedback::PIN;

use crate::intf::NAME_SIZE;
use crate::registration;

/// The map that a program at the ingress of a control's sockets shares with it (bpf/marks.h).
const MARKS: &str = "marks";

/// Takes hold of what is registered as `name`: of its link, and of that of the program at its sockets'
/// ingress, where it has one. They last at least as long as the answer. None where there is no such link,
/// or it may not be looked for.
pub(crate) fn keep(name: &str) -> Option<Vec<OwnedFd>> {
    let operations = Operations::of_this_kernel()?;
    let (link, value) = LinkInfoIter::default().find_map(|info| {
        let value = operations.read(&info).filter(|value| operations.name(value) == Some(name))?;
        Some((registration::link(info.id).ok()?, value))
    })?;
    let programs = programs();
    let ids = operations.programs(&value);
    let mut maps = programs
        .iter()
        .filter(|program| ids.contains(&program.id))
        .flat_map(|program| &program.map_ids);
    let marks = maps.find(|&&map| MapHandle::from_map_id(map).is_ok_and(|map| map.name() == MARKS));
    let Some(marks) = marks else { return Some(vec![link]) };
    // One that is going has let go of this already: then so does the caller, and tries again.
    let ingress = LinkInfoIter::default().find(|info| {
        let writes =
            |program: &ProgramInfo| program.id == info.prog_id && program.map_ids.contains(marks);
        matches!(info.info, LinkTypeInfo::Cgroup(_)) && programs.iter().any(writes)
    })?;
    Some(vec![link, registration::link(ingress.id).ok()?])
}

/// The maps of feedback that the control registered as `name` reads, by identifier: one, or none.
pub(crate) fn feedback_of(name: &str) -> Option<u32> {
    let operations = Operations::of_this_kernel()?;
    let value = LinkInfoIter::default().find_map(|info| {
        operations.read(&info).filter(|value| operations.name(value) == Some(name))
    })?;
    let ids = operations.programs(&value);
    let programs = programs();
    let mut maps = programs
        .iter()
        .filter(|program| ids.contains(&program.id))
        .flat_map(|program| &program.map_ids);
    let is_feedback = |id: &&u32| MapHandle::from_map_id(**id).is_ok_and(|it| it.name() == PIN);
    maps.find(is_feedback).copied()
}

/// Who has hold of what is registered as `name`, as people look for it: processes by number and
/// name.
pub(crate) fn holders(name: &str) -> Vec<String> {
    let Some(operations) = Operations::of_this_kernel() else { return Vec::new() };
    let mut links = LinkInfoIter::default();
    let link = links.find_map(|info| {
        let value = operations.read(&info)?;
        (operations.name(&value) == Some(name)).then_some(info.id)
    });
    let Some(link) = link else { return Vec::new() };
    let wanted = format!("link_id:\t{link}\n");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let holds = |process: &Path| {
        let files = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
        let mut texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        texts.any(|text| text.contains(&wanted))
    };
    let named = |process: &fs::DirEntry| {
        let number: u32 = process.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(process.path().join("comm")).ok()?;
        holds(&process.path()).then(|| format!("process {number} ({})", name.trim_end()))
    };
    processes.filter_map(|process| named(&process)).collect()
}

fn programs() -> Vec<ProgramInfo> {
    let maps = ProgInfoQueryOptions::default().include_map_ids(true);
    ProgInfoIter::with_query_opts(maps).collect()
}

/// Where the kernel has what in the value of a map of congestion control operations.
struct Operations {
    /// The type of such values.
    type_id: u32,
    /// From the value's start, in bytes.
    name: usize,
    /// Of every operation: read back it is the identifier of its program.
    members: Vec<usize>,
}

impl Operations {
    /// Read once: a kernel's types stay as they are.
    fn of_this_kernel() -> Option<&'static Operations> {
        static OPERATIONS: OnceLock<Option<Operations>> = OnceLock::new();
        OPERATIONS.get_or_init(Operations::read_types).as_ref()
    }

    fn read_types() -> Option<Operations> {
        let btf = Btf::from_vmlinux().ok()?;
        let value: Struct<'_> = btf.type_by_name("bpf_struct_ops_tcp_congestion_ops")?;
        let ops: Struct<'_> = btf.type_by_name("tcp_congestion_ops")?;
        let start = offset(&value, "data")?;
        let is_function = |member: &&str| crate::kernel::arguments(&btf, &ops, member).is_some();
        let names: Vec<&str> = ops.iter().filter_map(|member| member.name?.to_str()).collect();
        let functions = names.iter().copied().filter(is_function);
        Some(Operations {
            type_id: value.type_id().into(),
            name: start + offset(&ops, "name")?,
            members: functions.filter_map(|member| Some(start + offset(&ops, member)?)).collect(),
        })
    }

    /// The value that a link has registered, if it is one of these.
    fn read(&self, link: &LinkInfo) -> Option<Vec<u8>> {
        let LinkTypeInfo::StructOps(registered) = &link.info else { return None };
        let map = MapHandle::from_map_id(registered.map_id).ok()?;
        let of_this_type = map.info().ok()?.info.btf_vmlinux_value_type_id == self.type_id;
        if !of_this_type {
            return None;
        }
        map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?
    }

    fn name<'v>(&self, value: &'v [u8]) -> Option<&'v str> {
        let field = value.get(self.name..self.name + NAME_SIZE)?;
        let end = field.iter().position(|&byte| byte == 0)?;
        str::from_utf8(&field[..end]).ok()
    }

    fn programs(&self, value: &[u8]) -> Vec<u32> {
        let word = |&at: &usize| value.get(at..at + 8)?.first_chunk().copied();
        let ids = self.members.iter().filter_map(word).map(u64::from_ne_bytes);
        ids.filter_map(|id| u32::try_from(id).ok()).filter(|&id| id != 0).collect()
    }
}

/// In bytes, from the structure's start.
fn offset(of: &Struct<'_>, member: &str) -> Option<usize> {
    let member = of.iter().find(|field| field.name.is_some_and(|name| name == member))?;
    match member.attr {
        MemberAttr::Normal { offset } => Some(offset as usize / 8),
        MemberAttr::BitField { .. } => None,
    }
}
