use libbpf_rs::btf::types::{FuncProto, Ptr, Struct};
use libbpf_rs::btf::{Btf, BtfType, ReferencesType};

use crate::Error;

/// What the running kernel offers to congestion controls in BPF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// As `uname -r` has it.
    pub release: String,
    /// Registrations are links (Linux 6.4): one in use can be replaced without a gap.
    pub links: bool,
    /// How many arguments `cong_control` is called with: 2, or 4 since Linux 6.10.
    pub cong_control_arguments: u32,
}

impl Kernel {
    /// Asks the running kernel.
    ///
    /// # Errors
    /// When it does not say, or takes no congestion controls at all.
    pub fn running() -> Result<Kernel, Error> {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let btf = Btf::from_vmlinux().map_err(|_| Error::NoBtf)?;
        let missing = || Error::NoStructOps { release: release.clone() };
        let ops: Struct<'_> = btf.type_by_name("tcp_congestion_ops").ok_or_else(missing)?;
        // What the kernel wraps the operations in, where it takes them from BPF.
        let _: Struct<'_> =
            btf.type_by_name("bpf_struct_ops_tcp_congestion_ops").ok_or_else(missing)?;
        let link: Option<Struct<'_>> = btf.type_by_name("bpf_struct_ops_link");
        let cong_control_arguments = arguments(&btf, &ops, "cong_control").ok_or_else(missing)?;
        Ok(Kernel { links: link.is_some(), cong_control_arguments, release })
    }

    /// What this kernel lacks, each with what follows from it. Nothing that keeps a control from
    /// working.
    pub fn lacks(&self) -> Vec<&'static str> {
        let mut lacks = Vec::new();
        if !self.links {
            lacks.push(
                "links for congestion controls (Linux 6.4): while one is replaced there is a moment in which new connections do not find its name",
            );
        }
        if self.cong_control_arguments < 4 {
            lacks.push(
                "the four-argument cong_control (Linux 6.10): those that set window and rate themselves use that with two",
            );
        }
        lacks
    }
}

/// How many arguments the function has that a member points to.
pub(crate) fn arguments(btf: &Btf<'_>, of: &Struct<'_>, member: &str) -> Option<u32> {
    let member = of.iter().find(|field| field.name.is_some_and(|name| name == member))?;
    let pointer: BtfType<'_> = btf.type_by_id(member.ty)?;
    let pointer = Ptr::try_from(pointer.skip_mods_and_typedefs()).ok()?;
    let function = FuncProto::try_from(pointer.referenced_type()).ok()?;
    u32::try_from(function.iter().count()).ok()
}
