//! What accounts and decisions cost, by leaving them out for a while.

use std::fs;
use std::io;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::io_error;
use crate::intf::settings;

/// Has the steering program of a running relay leave out its accounts, and what is decided by them, and take them up again. For
/// measurements inside one relay: between two, machines differ by more than that costs. Meanwhile connections that are open are lost
/// to the accounts.
#[derive(Debug)]
pub struct Bare {
    settings: MapHandle,
}

impl Bare {
    /// Of the program that this process has loaded.
    ///
    /// # Errors
    /// When it has none, or its maps may not be opened.
    pub fn of(process: u32) -> io::Result<Bare> {
        for descriptor in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
            let said = fs::read_to_string(descriptor?.path()).unwrap_or_default();
            let id =
                said.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok());
            let Some(id) = id else { continue };
            let map = MapHandle::from_map_id(id).map_err(|error| io_error(&error))?;
            if map.name() == "settings" && map.value_size() as usize == size_of::<settings>() {
                return Ok(Bare { settings: map });
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "the process steers nothing"))
    }

    /// Leaves accounts and decisions out, or takes them up.
    ///
    /// # Errors
    /// When the settings cannot be read or written.
    pub fn set(&self, bare: bool) -> io::Result<()> {
        let key = 0u32.to_ne_bytes();
        let before = self.settings.lookup(&key, MapFlags::ANY).map_err(|error| io_error(&error))?;
        let mut now = before
            .and_then(|bytes| settings::read_from_bytes(&bytes).ok())
            .ok_or_else(|| io::Error::other("the settings are of another version"))?;
        now.bare = bare.into();
        let written = self.settings.update(&key, now.as_bytes(), MapFlags::ANY);
        written.map_err(|error| io_error(&error))
    }
}
