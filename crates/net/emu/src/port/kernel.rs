//! The kernel's calls that no crate offers safely. All `unsafe` of this crate is here.
#![allow(unsafe_code)]

mod ring;

pub(crate) use ring::Ring;

use std::ffi::c_int;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The Ethernet address of interface `name` in the namespace of `socket`.
pub(crate) fn ethernet_address(socket: BorrowedFd<'_>, name: &str) -> io::Result<[u8; 6]> {
    let mut request = interface_request(name)?;
    // SAFETY: SIOCGIFHWADDR reads and writes one `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) })?;
    // SAFETY: on success the kernel has filled in `ifru_hwaddr`.
    let data = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
    Ok(std::array::from_fn(|i| data[i] as u8))
}

/// Binds a packet socket to one interface and starts it.
pub(crate) fn bind_packet_socket(socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain data, for which zeros are a value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface as c_int;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is valid for `length` bytes.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })
}

/// Sets an option of packet sockets (`PACKET_VNET_HDR`, `PACKET_IGNORE_OUTGOING`, ...).
pub(crate) fn set_packet_option(
    socket: BorrowedFd<'_>,
    option: c_int,
    value: c_int,
) -> io::Result<()> {
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the value is valid for `length` bytes.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const value).cast(),
            length,
        )
    })
}

/// Packets that found no room in a packet socket's ring since the last call.
pub(crate) fn take_packet_drops(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `statistics` and the result to `length`.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut length,
        )
    })?;
    Ok(u64::from(statistics.tp_drops))
}

/// Puts the calling thread into SCHED_FIFO at `priority`: it runs before every ordinary thread.
pub(crate) fn set_fifo(priority: c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters are valid; thread 0 is the caller.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) })
}

/// Asks for a time slice of `nanos` for the calling ordinary thread (Linux 6.12): the shorter the
/// slice, the sooner the thread runs once it has woken.
pub(crate) fn set_slice(nanos: u64) -> io::Result<()> {
    let nice = rustix::process::nice(0)?;
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: nanos,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the attributes are valid for the size that they state; thread 0 is the caller.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(result as c_int)
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The bytes behind the name stay zero, and so end it.
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
