//! Search for the service's processes, on a separate thread.
//!
//! A search reads all of `/proc`, which can take 100 ms. The mapper's thread runs on a core of the service with a
//! higher priority than the service. So another thread searches, in the ordinary scheduling class.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use sidelane_host::procfs::is_alive;
use sidelane_host::service::Service;

use sidelane_host::background::Background;

/// Interval at which the finder checks whether the known processes still exist.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Number of checks between two searches for processes that no known process forked, for example after a restart.
const LOOKS_A_SEARCH: u32 = 10;

/// Thread that searches for processes. Dropping it asks the thread to end, and does not wait.
pub struct Finder(Background<Service, ()>);

impl Finder {
    /// Starts the search for a service with the function `find_service`. `known_pids` are the processes found so far.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start(
        known_pids: &BTreeSet<u32>,
        mut find_service: impl FnMut() -> Option<Service> + Send + 'static,
    ) -> Result<Self> {
        let mut known = known_pids.clone();
        Background::start("sidelane-finder", move |until, told| {
            let mut looks = 0_u32;
            while until.wait(LOOK_EVERY)? {
                looks = looks.wrapping_add(1);
                let is_time = looks.is_multiple_of(LOOKS_A_SEARCH) || !known.iter().any(|pid| is_alive(*pid));
                let Some(service) = is_time.then(&mut find_service).flatten() else { continue };
                known.clone_from(&service.pids);
                // Ignore an error: the receiver is gone when the mapper has ended.
                let _ = told.send(service);
            }
            Ok(())
        })
        .map(Self)
    }

    /// Returns the newest result since the last call; `None` if there is none.
    pub fn take_newest(&self) -> Option<Service> {
        self.0.events().last()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use sidelane_host::priority::{HOLDER_PRIORITY, ThreadClass, make_only_this_thread_fifo};

    use super::*;

    /// Process id that no process has: it is above the kernel's maximum.
    const NO_THREAD: u32 = u32::MAX >> 1;

    #[test]
    fn lost_service_is_searched_at_once_in_sched_other() {
        let (tell, told) = channel();
        // The test changes the scheduling class of its own thread, which ends with the test.
        if make_only_this_thread_fifo(HOLDER_PRIORITY).is_err() {
            return sidelane_testing::skip("needs to be root".to_owned());
        }
        let find = move || {
            // SAFETY: plain system call.
            let class = ThreadClass::of_thread(unsafe { libc::gettid() } as u32);
            tell.send(class.map(|class| class.policy)).unwrap();
            Some(Service::of_process(std::process::id()))
        };
        let finder = Finder::start(&BTreeSet::from([NO_THREAD]), find).unwrap();
        assert_eq!(told.recv().unwrap(), Some(libc::SCHED_OTHER));
        let found = std::iter::repeat_with(|| finder.take_newest()).flatten().next();
        assert_eq!(found, Some(Service::of_process(std::process::id())));
    }
}
