//! What no crate wraps: taking hold of a link, and replacing what one has registered.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_rs::libbpf_sys::{bpf_link_get_fd_by_id, bpf_link_update, bpf_map_delete_elem};

/// The link with an identifier, whoever made it: it stays for as long as the answer does.
pub(crate) fn link(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: any number may be asked for, and the descriptor that comes is this function's own.
    #[allow(unsafe_code)]
    unsafe {
        let fd = bpf_link_get_fd_by_id(id);
        status(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Makes the link register the operations of another map, of the same name. Sockets keep what they
/// have; new ones get the new.
pub(crate) fn replace(link: BorrowedFd<'_>, with: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open for the call, and no options is a valid choice.
    #[allow(unsafe_code)]
    let result = unsafe { bpf_link_update(link.as_raw_fd(), with.as_raw_fd(), ptr::null()) };
    status(result)
}

/// Takes back a registration without a link: that of the map itself (Linux before 6.4).
pub(crate) fn unregister(map: BorrowedFd<'_>) -> io::Result<()> {
    let zero = 0u32;
    // SAFETY: the descriptor is open for the call, and the key is as long as such a map's keys are.
    #[allow(unsafe_code)]
    let result = unsafe { bpf_map_delete_elem(map.as_raw_fd(), ptr::from_ref(&zero).cast()) };
    status(result)
}

/// libbpf answers with a negative errno.
fn status(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}
