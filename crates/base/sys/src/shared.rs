//! Memory that somebody else writes.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a file, or of a BPF map that can be mapped, as they are at any time.
#[derive(Debug)]
pub struct SharedBytes {
    memory: NonNull<AtomicU8>,
    length: usize,
}

// SAFETY: of the memory nothing is ever done but to load single bytes of it, atomically.
#[allow(unsafe_code)]
unsafe impl Send for SharedBytes {}
// SAFETY: likewise.
#[allow(unsafe_code)]
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// The first `length` bytes, which must be there as long as this is.
    ///
    /// # Errors
    /// When it cannot be mapped to be read.
    #[allow(unsafe_code)]
    pub fn of(file: impl AsFd, length: usize) -> io::Result<SharedBytes> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let memory = unsafe {
            mmap(ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0)
        }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedBytes { memory, length })
    }

    /// What a byte is now; none if it is behind the last.
    #[allow(unsafe_code)]
    pub fn get(&self, index: usize) -> Option<u8> {
        // SAFETY: it is inside the mapping, which lives as long as this, and others write it a byte at a time.
        (index < self.length)
            .then(|| unsafe { self.memory.add(index).as_ref() }.load(Ordering::Acquire))
    }
}

impl Drop for SharedBytes {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping is our own, and nobody has a reference into it.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn what_others_write_is_seen() {
        let file = std::fs::File::from(memfd_create("shared", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(3).unwrap();
        let shared = SharedBytes::of(&file, 3).unwrap();
        assert_eq!(shared.get(1), Some(0));
        file.write_at(&[7], 1).unwrap();
        assert_eq!(
            (0..4).map(|at| shared.get(at)).collect::<Vec<_>>(),
            [Some(0), Some(7), Some(0), None]
        );
        assert!(SharedBytes::of(std::fs::File::open("/").unwrap(), 1).is_err());
    }
}
