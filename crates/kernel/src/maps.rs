//! The maps of the loaded object, by name.

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, Object};

use crate::mapped::MappedArray;
use crate::tracker::error::TrackerError;

/// The map `name`.
///
/// # Panics
/// When the embedded program has none of this name.
pub fn find_map<'object>(object: &'object Object, name: &str) -> libbpf_rs::Map<'object> {
    let matches = |map: &libbpf_rs::Map<'_>| {
        let found = map.name().to_string_lossy();
        // The compiler's own sections carry the object's name in front: "lanes_bp.bss".
        found == name || (name.starts_with('.') && found.ends_with(name))
    };
    object.maps().find(matches).expect("the embedded program has this map")
}

/// The array `name` as memory.
pub fn map_array<T>(object: &Object, name: &'static str, len: usize) -> Result<MappedArray<T>, TrackerError> {
    let map = find_map(object, name);
    MappedArray::new(map.as_fd(), len).map_err(|source| TrackerError::Map { name, source })
}
