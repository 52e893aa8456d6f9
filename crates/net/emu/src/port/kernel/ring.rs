use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{check, set_packet_option};
use crate::vnet;

/// A packet socket's receive ring (TPACKET_V2): frames that the kernel fills and we empty, in
/// memory shared with it. It is not charged to the socket's receive buffer, which ordinary users
/// may not make large enough for a few super-packets, and reading it takes no system call.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: NonNull<u8>,
    /// The frame to be filled next.
    next: usize,
    /// Whether the frame before `next` is still ours.
    holding: bool,
}

/// Room for the longest packet behind the kernel's headers (76 bytes) and Ethernet's.
const FRAME: usize = 66 * 1024;
/// Frames do not cross blocks. A block is one piece of kernel memory.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 64;
const FRAMES_PER_BLOCK: usize = BLOCK / FRAME;
/// 960: more than 20 ms of the acknowledgements of 1 Gbit/s, or 60 MB in super-packets.
const FRAMES: usize = BLOCKS * FRAMES_PER_BLOCK;

impl Ring {
    /// Gives the socket, which must not be bound yet, a ring.
    pub(crate) fn new(socket: BorrowedFd<'_>) -> io::Result<Ring> {
        set_packet_option(socket, libc::PACKET_VERSION, TPACKET_V2)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: FRAME as u32,
            tp_frame_nr: FRAMES as u32,
        };
        // SAFETY: the request is valid for the length given.
        check(unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_RX_RING,
                (&raw const request).cast(),
                size_of::<libc::tpacket_req>() as libc::socklen_t,
            )
        })?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                BLOCK * BLOCKS,
                protection,
                MapFlags::SHARED,
                socket.as_fd(),
                0,
            )
        }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { memory, next: 0, holding: false })
    }

    /// The oldest packet that was not yet taken: its virtio-net header and frame, or `Some(None)`
    /// for one that did not fit a frame of the ring. Gives the one taken before back.
    pub(crate) fn take(&mut self) -> Option<Option<&[u8]>> {
        if self.holding {
            let taken = (self.next + FRAMES - 1) % FRAMES;
            self.status(taken).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.holding = false;
        }
        let status = self.status(self.next).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let frame = self.frame(self.next);
        self.next = (self.next + 1) % FRAMES;
        self.holding = true;
        // SAFETY: the frame begins with a `tpacket2_hdr`, aligned, which the kernel wrote before it
        // handed the frame over (the load above) and leaves alone until it gets it back.
        let header = unsafe { frame.cast::<libc::tpacket2_hdr>().read() };
        let (start, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let whole = header.tp_snaplen == header.tp_len;
        if !whole || start < vnet::LEN || start + length > FRAME {
            return Some(None);
        }
        // SAFETY: the bytes are inside the frame, as just checked, which is inside the mapping.
        // They are ours as the header is, until `take` is called again, which the borrow of
        // `self` excludes.
        let bytes = unsafe {
            slice::from_raw_parts(frame.add(start - vnet::LEN).as_ptr(), length + vnet::LEN)
        };
        Some(Some(bytes))
    }

    fn frame(&self, index: usize) -> NonNull<u8> {
        let offset = index / FRAMES_PER_BLOCK * BLOCK + index % FRAMES_PER_BLOCK * FRAME;
        // SAFETY: `index` is below FRAMES, so the offset is inside the mapping.
        unsafe { self.memory.add(offset) }
    }

    /// Who owns a frame: the word that kernel and program hand it over with.
    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: a frame's first word, aligned and inside the mapping, is its status, which both
        // sides access atomically.
        unsafe { AtomicU32::from_ptr(self.frame(index).cast().as_ptr()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it any more. That a mapping cannot
        // be undone would be a bug, with a leak its worst consequence.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), BLOCK * BLOCKS) };
    }
}

// SAFETY: the mapping belongs to this value alone and to no thread in particular.
unsafe impl Send for Ring {}

/// `enum tpacket_versions`.
const TPACKET_V2: libc::c_int = 1;
