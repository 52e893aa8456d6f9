use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use midspan_sys::netlink::Netlink;
use midspan_sys::tun;
use rustix::io::Errno;

use super::{Intake, Monitor, PortConfig, bring_up};
use crate::gro_batch::GroBatch;
use crate::vnet::{self, VnetHeader};

/// A TUN device that belongs to this descriptor: the kernel removes it when that closes.
#[derive(Debug)]
pub(crate) struct Tun {
    device: OwnedFd,
    buffer: Box<[u8]>,
}

/// Bytes that one read may yield: the virtio-net header and the longest IP packet.
const READ_BYTES: usize = 64 * 1024 + vnet::LEN;

impl Tun {
    pub(crate) fn open(config: &PortConfig) -> io::Result<(Tun, Monitor)> {
        config.netns.run(|| {
            // The interface appears in the namespace in which the device was opened.
            let device = tun::open_device()
                .map_err(|error| io::Error::new(error.kind(), format!("/dev/net/tun: {error}")))?;
            tun::make_interface(&device, &config.interface, tun::Unit::SuperPacket)?;
            let mut netlink = Netlink::open()?;
            bring_up(&mut netlink, &config.interface, config.mtu)?;
            let interfaces = Mutex::new(vec![(netlink, config.interface.clone())]);
            let buffer = vec![0; READ_BYTES].into();
            Ok((Tun { device, buffer }, Monitor { interfaces, socket: None }))
        })?
    }

    pub(crate) fn read(&mut self) -> io::Result<Intake<'_>> {
        let read = match rustix::io::read(&self.device, &mut *self.buffer) {
            Ok(read) => read,
            Err(Errno::AGAIN) => return Ok(Intake::Empty),
            Err(error) => return Err(error.into()),
        };
        let Some((header, packet)) = self.buffer[..read].split_first_chunk() else {
            return Ok(Intake::Unreadable);
        };
        Ok(match VnetHeader::parse(header) {
            Some(header) => Intake::Packet(header, packet),
            None => Intake::Unreadable,
        })
    }

    pub(crate) fn write(&self, batch: &mut GroBatch) -> io::Result<()> {
        let header = batch.header().encode(batch.head().is_ipv6(), batch.headers());
        batch.write(&header, |pieces| rustix::io::writev(&self.device, pieces))?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
