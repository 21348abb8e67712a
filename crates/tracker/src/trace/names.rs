//! Names of the threads in records.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sidelane_host::procfs::command_name;

/// Number of entries of the table of threads seen last, which is indexed by the lowest bits of thread ids.
pub const SEEN: usize = 4096;
/// Limit of the number of names, for a machine that starts threads all the time.
const NAMES_MAX: usize = 1 << 16;
/// Age from which a thread's name is read again when the thread is seen. Threads change their names, and the kernel
/// reuses the ids of threads that have ended.
const READ_EVERY: Duration = Duration::from_secs(5);

/// Names of threads, by thread id.
pub struct ThreadNames {
    /// Thread seen last since names were last read again, for each value of the lowest bits of ids.
    seen: Vec<u32>,
    /// Names by thread id, each with the value of `turn` when it was read.
    names: HashMap<u32, (String, u32)>,
    turn: u32,
    turned: Instant,
}

impl ThreadNames {
    /// Makes an empty table.
    pub fn new() -> Self {
        Self { seen: vec![0; SEEN], names: HashMap::new(), turn: 0, turned: Instant::now() }
    }

    /// Begins to read names again, if the last time was some seconds ago.
    pub fn refresh_if_due(&mut self) {
        if self.turned.elapsed() >= READ_EVERY {
            self.expire_all();
        }
    }

    fn expire_all(&mut self) {
        (self.turned, self.turn) = (Instant::now(), self.turn.wrapping_add(1));
        self.seen.fill(0);
    }

    /// Reads the name of a thread that is in a record. A living thread's name comes from the system. Otherwise the
    /// kernel program has it, at the thread's index.
    pub fn read_name(&mut self, tid: u32, kernel_name: impl FnOnce(usize) -> Option<String>) {
        let place = tid as usize % SEEN;
        if self.seen[place] == tid || tid == 0 {
            return;
        }
        self.seen[place] = tid;
        let known = self.names.get(&tid);
        if known.is_some_and(|(_, turn)| *turn == self.turn) {
            return;
        }
        if let Some(name) = command_name(tid).or_else(|| kernel_name(place)) {
            self.drop_oldest_if_full();
            self.names.insert(tid, (name, self.turn));
        }
    }

    /// Removes the names that were read longest ago, if there is no room for another one.
    fn drop_oldest_if_full(&mut self) {
        while self.names.len() >= NAMES_MAX {
            let oldest = self.names.values().map(|(_, turn)| self.turn.wrapping_sub(*turn)).max().unwrap_or(0);
            self.names.retain(|_, (_, turn)| self.turn.wrapping_sub(*turn) < oldest);
        }
    }

    /// Returns the name of a thread; `None` if it is unknown.
    pub fn get(&self, tid: u32) -> Option<&str> {
        self.names.get(&tid).map(|(name, _)| name.as_str())
    }

    /// Returns all known names of threads, by thread id.
    pub fn all(&self) -> impl Iterator<Item = (u32, &str)> {
        self.names.iter().map(|(tid, (name, _))| (*tid, name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Gives the calling thread the name `name`, and returns its id.
    fn name_this_thread(name: &std::ffi::CStr) -> u32 {
        rustix::thread::set_name(name).unwrap();
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    #[test]
    fn new_name_of_a_thread_is_read_at_the_next_refresh() {
        let mut names = ThreadNames::new();
        let see = |names: &mut ThreadNames, tid| {
            names.read_name(tid, |_| None);
            names.get(tid).map(str::to_owned)
        };
        let tid = name_this_thread(c"before");
        assert_eq!(see(&mut names, tid).as_deref(), Some("before"));
        name_this_thread(c"after");
        assert_eq!(see(&mut names, tid).as_deref(), Some("before"), "it is not read each time");
        names.expire_all();
        assert_eq!(see(&mut names, tid).as_deref(), Some("after"));
    }

    #[test]
    fn a_thread_that_has_ended_keeps_its_name() {
        let mut names = ThreadNames::new();
        let tid = thread::spawn(|| name_this_thread(c"short")).join().unwrap();
        names.read_name(tid, |_| Some("short".to_owned()));
        names.expire_all();
        names.read_name(tid, |_| None);
        assert_eq!(names.get(tid), Some("short"));
    }

    #[test]
    fn oldest_of_too_many_names_are_dropped() {
        let mut names = ThreadNames::new();
        let first = u32::MAX - 2 * NAMES_MAX as u32;
        (first..first + NAMES_MAX as u32).for_each(|tid| names.read_name(tid, |_| Some("old".to_owned())));
        names.expire_all();
        names.read_name(u32::MAX - 1, |_| Some("new".to_owned()));
        assert_eq!((names.get(first), names.get(u32::MAX - 1)), (None, Some("new")));
    }
}
