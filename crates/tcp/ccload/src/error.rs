use std::io;
use std::path::PathBuf;

/// Why a control cannot be loaded, or unloaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such algorithm.
    #[error("no congestion control is called `{name}`: there are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The kernel does not describe its types.
    #[error(
        "this kernel does not describe its types (/sys/kernel/btf/vmlinux is missing): boot one built with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf,
    /// The kernel takes no congestion controls.
    #[error(
        "this kernel (Linux {release}) takes no congestion controls in BPF: boot Linux 6.1 or later, built with CONFIG_BPF_SYSCALL=y and CONFIG_BPF_JIT=y"
    )]
    NoStructOps {
        /// As `uname -r` has it.
        release: String,
    },
    /// There is nowhere to pin a control.
    #[error("{path} is not in a BPF file system: mount one with `mount -t bpf bpf /sys/fs/bpf`")]
    NoBpffs {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The user may not.
    #[error(
        "not permitted: loading congestion controls takes root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, in the initial user namespace"
    )]
    NotPermitted,
    /// Somebody else has registered the name.
    #[error(
        "a congestion control called `{name}` is registered already, {by}, and is not pinned in {folder}: end that, or unload it with whatever loaded it (`bpftool struct_ops list` shows it)"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// Where ours are pinned.
        folder: PathBuf,
        /// By whom it is held, as far as can be seen.
        by: String,
    },
    /// It is not loaded.
    #[error("`{name}` is not loaded: nothing is pinned at {path}")]
    NotLoaded {
        /// The name.
        name: String,
        /// Where it would be.
        path: PathBuf,
    },
    /// The kernel refused the program.
    #[error("Linux {release} does not take `{name}`: {error} (`MIDSPAN_LOG=debug` shows why)")]
    Refused {
        /// The name.
        name: String,
        /// As `uname -r` has it.
        release: String,
        /// What it says.
        error: io::Error,
    },
    /// The kernel refused the program of a user's own control, or it is none.
    #[error("{file}: {why}")]
    OwnRefused {
        /// The header that it was built from.
        file: String,
        /// What the kernel says.
        why: String,
    },
    /// There are no control groups to attach to.
    #[error(
        "no control groups (version 2) are mounted, at whose sockets the marks of the network are read: mount them with `mount -t cgroup2 none /sys/fs/cgroup`"
    )]
    NoCgroup,
    /// The kernel attaches nothing to control groups.
    #[error(
        "no program can be attached to the control groups at {cgroup}, to read the marks of the network: {error}; it takes a kernel built with CONFIG_CGROUP_BPF=y"
    )]
    Ingress {
        /// Where they are mounted.
        cgroup: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
    /// A file of the BPF file system cannot be had.
    #[error("{path}: {error}")]
    Pin {
        /// Which.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
    },
}
