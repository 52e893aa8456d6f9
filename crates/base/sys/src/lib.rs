//! Safe, small wrappers of the Linux calls that more than one of Midspan's shells needs: network
//! namespaces, routing netlink, socket diagnostics, TUN and TAP interfaces, children that do not
//! outlive their parent.
//!
//! All `unsafe` of this crate stands in the few blocks that call the kernel where no library
//! offers a safe function.

pub mod cgroup;
pub mod changes;
pub mod checksum;
pub mod clock;
pub mod conntrack;
pub mod foreign;
pub mod netlink;
pub mod netns;
pub mod pidns;
pub mod process;
pub mod ring;
pub mod ruleset;
pub mod shared;
pub mod sockdiag;
pub mod socket;
pub mod sysctl;
pub mod terminal;
pub mod tun;
pub mod unix;
pub mod userns;
