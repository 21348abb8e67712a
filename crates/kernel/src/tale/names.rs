//! Names of the threads that records speak of.

use std::collections::HashMap;

use sidelane_host::procfs::command_name;

use super::memory::TaleThread;
use crate::mapped::MappedArray;

/// Threads that are looked for without a search, by the lowest bits of their ids.
pub const SEEN: usize = 4096;
/// More names are not kept: a machine that starts threads all the time has no end of them.
const NAMES_MAX: usize = 1 << 16;

/// Names by thread.
pub struct Names {
    /// Who was seen last, of all with the same lowest bits.
    seen: Vec<u32>,
    names: HashMap<u32, String>,
}

impl Names {
    /// None yet.
    pub fn new() -> Self {
        Self { seen: vec![0; SEEN], names: HashMap::new() }
    }

    /// The thread is in a record: learns its name, from the system while it lives, else from the kernel program.
    pub fn see(&mut self, tid: u32, threads: &MappedArray<TaleThread>) {
        let place = tid as usize % SEEN;
        if self.seen[place] == tid || tid == 0 {
            return;
        }
        self.seen[place] = tid;
        if self.names.len() < NAMES_MAX && !self.names.contains_key(&tid) {
            let name = command_name(tid).or_else(|| threads.get(place).name_of(tid));
            self.names.extend(name.map(|name| (tid, name)));
        }
    }

    /// The name of a thread, if it is known.
    pub fn get(&self, tid: u32) -> Option<&str> {
        self.names.get(&tid).map(String::as_str)
    }

    /// All that are known.
    pub fn all(&self) -> impl Iterator<Item = (u32, &str)> {
        self.names.iter().map(|(tid, name)| (*tid, name.as_str()))
    }
}
