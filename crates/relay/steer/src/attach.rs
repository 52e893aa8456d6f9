//! Attaching the program to a link: by a tcx link where the kernel has it (6.6), which goes
//! with its owner, and by a filter of the `clsact` queueing discipline where not.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::{self, NonNull};

use libbpf_rs::libbpf_sys::bpf_program__attach_tcx;
use libbpf_rs::{
    AsRawLibbpf, Link, ProgramMut, TC_EGRESS, TC_INGRESS, TcAttachPoint, TcHook, TcHookBuilder,
};

use crate::steering::hold;

/// The filter's place, which tells it from anybody else's. A relay that was killed leaves its filter
/// behind, without a listener to steer to, and the next one replaces it.
const PRIORITY: u32 = 0x4d53;

/// Where at a link. Which it is by tcx, the program says by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Ingress,
    Egress,
}

/// An attachment, undone when dropped.
#[derive(Debug)]
pub(crate) enum Attachment {
    /// Held by being owned.
    #[expect(dead_code, reason = "held for its end")]
    Tcx(Link),
    Filter(TcHook),
    /// Somebody else's now.
    Left,
}

impl Attachment {
    /// Attaches `program` at a side of interface `index`, in the place of the one that is pinned
    /// there, or else pinned there. A filter holds by itself.
    pub(crate) fn new(
        program: &ProgramMut<'_>,
        side: Side,
        index: u32,
        pin: Option<&Path>,
    ) -> io::Result<Attachment> {
        match hold(pin, index, program, || tcx(program, index)) {
            Ok(link) => Ok(Attachment::Tcx(link)),
            // A kernel that does not know tcx refuses the kind of link.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                filter(program, side, index).map(Attachment::Filter).map_err(io::Error::other)
            }
            Err(error) => Err(error),
        }
    }

    /// Leaves it to another process.
    pub(crate) fn leave(&mut self) {
        let held = std::mem::replace(self, Attachment::Left);
        // A link is held by its pin, a filter by not being removed.
        if matches!(held, Attachment::Filter(_)) {
            std::mem::forget(held);
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Attachment::Filter(hook) = self
            && let Err(error) = hook.detach()
        {
            tracing::error!(%error, "a steering filter could not be removed");
        }
    }
}

fn tcx(program: &ProgramMut<'_>, index: u32) -> io::Result<Link> {
    // SAFETY: the program is loaded and outlives the call, and no options is a valid choice.
    #[allow(unsafe_code)]
    let link = unsafe {
        bpf_program__attach_tcx(program.as_libbpf_object().as_ptr(), index as i32, ptr::null())
    };
    let link = NonNull::new(link).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: libbpf has made the link just now, and nobody else has it.
    #[allow(unsafe_code)]
    Ok(unsafe { Link::from_ptr(link) })
}

fn filter(program: &ProgramMut<'_>, side: Side, index: u32) -> libbpf_rs::Result<TcHook> {
    let point: TcAttachPoint = match side {
        Side::Ingress => TC_INGRESS,
        Side::Egress => TC_EGRESS,
    };
    let mut hook = TcHookBuilder::new(program.as_fd())
        .ifindex(index as i32)
        .replace(true)
        .handle(1)
        .priority(PRIORITY)
        .hook(point);
    hook.create()?;
    hook.attach()
}
