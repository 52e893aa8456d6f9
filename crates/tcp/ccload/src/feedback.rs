//! The map that NetAssist's agent writes and the congestion controls read, from user space.

use std::io;
use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use midspan_cc::feedback::{KEY_SIZE, VALUE_SIZE, Value, key};

use crate::{Algorithm, Controls, PREFIX};

/// Whether the congestion control that the kernel knows by this name is one of ours that goes by feedback.
pub fn goes_by_feedback(name: &str) -> bool {
    let algorithm = name.strip_prefix(PREFIX).and_then(|name| Algorithm::named(name).ok());
    algorithm.is_some_and(Algorithm::takes_feedback)
}

/// Whether this is a map for feedback.
pub fn is_feedback(map: &MapHandle) -> bool {
    map.map_type() == MapType::LruHash
        && (map.key_size(), map.value_size()) == (KEY_SIZE as u32, VALUE_SIZE as u32)
}

/// What such a map has of a UE, whether or not it still holds.
///
/// # Errors
/// When it cannot be read.
pub fn feedback_in(map: &MapHandle, ue: IpAddr) -> io::Result<Option<Value>> {
    let bytes = map.lookup(&key(ue), MapFlags::ANY).map_err(io::Error::other)?;
    Ok(bytes.and_then(|bytes| Value::from_bytes(&bytes)))
}

impl Controls {
    /// The map of feedback that is pinned.
    ///
    /// # Errors
    /// When there is none, the user may not, or it is another map.
    pub fn feedback_map(&self) -> io::Result<MapHandle> {
        let path = self.feedback();
        let in_path = |error| io::Error::other(format!("{}: {error}", path.display()));
        let map = MapHandle::from_pinned_path(&path).map_err(|error| in_path(error.to_string()))?;
        if !is_feedback(&map) {
            return Err(in_path("another map than the one for feedback".into()));
        }
        Ok(map)
    }
}
