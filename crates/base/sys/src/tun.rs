//! Interfaces whose packets a process reads and writes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// What a read takes and a write gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// An IP packet (TUN).
    Packet,
    /// An IP packet behind a virtio-net header, which may be a TCP super-packet not cut yet (TUN).
    SuperPacket,
    /// An Ethernet frame (TAP).
    Frame,
}

/// Opens the device from which interfaces are made, for calls that do not block.
///
/// # Errors
/// When the system has none, or not for this user.
pub fn open_device() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/net/tun", flags, Mode::empty())?)
}

/// Makes an open device the interface `name`, in the network namespace in which it was opened. The
/// kernel removes it when the descriptor closes.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over that namespace; when the name is taken, or none.
pub fn make_interface(device: impl AsFd, name: &str, unit: Unit) -> io::Result<()> {
    // SAFETY: `ifreq` is plain data, for which zeros are a value.
    #[allow(unsafe_code)]
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The bytes behind the name stay zero, and so end it.
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let flags = match unit {
        Unit::Packet => libc::IFF_TUN,
        Unit::SuperPacket => libc::IFF_TUN | libc::IFF_VNET_HDR,
        Unit::Frame => libc::IFF_TAP,
    };
    request.ifr_ifru.ifru_flags = (flags | libc::IFF_NO_PI) as libc::c_short;
    let fd = device.as_fd().as_raw_fd();
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
    #[allow(unsafe_code)]
    check(unsafe { libc::ioctl(fd, libc::TUNSETIFF, &raw mut request) })?;
    if unit == Unit::SuperPacket {
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        // SAFETY: TUNSETOFFLOAD takes its flags by value.
        #[allow(unsafe_code)]
        check(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, offloads as libc::c_ulong) })?;
    }
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
