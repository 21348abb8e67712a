//! Requests of keepers for evictions: the keepers of lanes ask for them, and the agent carries them out.
//!
//! A keeper that holds a lane for long wants batch on other CPUs. The policy decides on which, and for the policy such
//! a lane
//! is a CPU that does not exist. So the keeper notifies the agent, and waits until the agent has acted.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use sidelane_host::cpulist::CpuSet;
use sidelane_host::eventfd::EventFd;
use sidelane_lanes::holder::Evictor;

/// Limit of a keeper's wait. The agent acts within some 100 µs, or between two steps of a slow check. A keeper without
/// an answer keeps holding its lane.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Time in which a freeze takes effect: batch in user mode freezes a few microseconds after it runs again.
const FREEZE_TIMEOUT: Duration = Duration::from_millis(1);

/// Requests for evictions, shared by the agent and the lanes' keepers.
pub struct Evictions {
    state: Mutex<State>,
    acted: Condvar,
    changed: EventFd,
}

#[derive(Default)]
struct State {
    evicted: BTreeSet<u32>,
    /// Lanes whose keepers are about to end, and so do not wait for the agent.
    forsaken: BTreeSet<u32>,
    /// Number of requests for evictions that keepers have made so far.
    asked: u64,
    /// Number of the last request on which the agent has acted; `failed` says whether it could not carry out that
    /// request.
    done: u64,
    failed: bool,
    /// Whether paused batch may still run, because its freeze has not taken effect yet.
    leaving: bool,
    closed: bool,
}

/// Requests for evictions up to some moment.
#[derive(Clone, Debug)]
pub struct EvictionRequests {
    /// Lanes that batch has to leave.
    pub lanes: CpuSet,
    number: u64,
}

impl Evictions {
    /// Makes an empty list of requests.
    pub fn new() -> io::Result<Self> {
        Ok(Self { state: Mutex::default(), acted: Condvar::new(), changed: EventFd::new()? })
    }

    /// Returns a descriptor that becomes readable when a keeper makes a request.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.changed.as_fd()
    }

    /// Returns the lanes that batch has to leave now.
    pub fn take_requests(&self) -> EvictionRequests {
        self.changed.clear();
        let state = self.state();
        EvictionRequests { lanes: state.evicted.iter().copied().collect(), number: state.asked }
    }

    /// Records that the agent has carried out `requests`, or has failed to, and wakes the keepers. `leaving` says
    /// whether paused batch still runs.
    pub fn complete_requests(&self, requests: &EvictionRequests, failed: bool, leaving: bool) {
        let mut state = self.state();
        (state.done, state.failed, state.leaving) = (requests.number, failed, leaving);
        self.acted.notify_all();
    }

    /// Notes whether paused batch still runs, as a task in a long system call does.
    pub fn note_leaving(&self, leaving: bool) {
        self.state().leaving = leaving;
        self.acted.notify_all();
    }

    /// Returns whether keepers were last told that batch is still leaving.
    pub fn is_leaving(&self) -> bool {
        self.state().leaving
    }

    /// Returns whether a keeper waits for an answer.
    pub fn has_request(&self) -> bool {
        let state = self.state();
        state.asked > state.done
    }

    /// Calls `work`, during which the keepers of these lanes end. The agent does not act for them during this call, so
    /// they do not wait.
    pub fn run_without_keepers<T>(&self, lanes: &CpuSet, work: impl FnOnce() -> T) -> T {
        self.state().forsaken = lanes.iter().collect();
        self.acted.notify_all();
        let done = work();
        self.state().forsaken.clear();
        done
    }

    /// Notes that the agent does not act any more, so that no keeper waits for it.
    pub fn close(&self) {
        self.state().closed = true;
        self.acted.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no keeper panics")
    }

    fn add_request(&self, state: &mut State) -> u64 {
        state.asked += 1;
        self.changed.notify();
        state.asked
    }
}

impl Evictor for Evictions {
    fn evict(&self, cpu: u32) -> io::Result<()> {
        let mut state = self.state();
        state.evicted.insert(cpu);
        let number = self.add_request(&mut state);
        let waits = |state: &mut State| state.done < number && !state.closed && !state.forsaken.contains(&cpu);
        let (mut state, _) = self.acted.wait_timeout_while(state, ANSWER_TIMEOUT, waits).expect("no keeper panics");
        if state.done >= number && !state.failed {
            return Ok(());
        }
        state.evicted.remove(&cpu);
        self.add_request(&mut state);
        Err(io::Error::other("cannot move batch away from its lane"))
    }

    fn restore(&self, cpu: u32) -> io::Result<()> {
        let mut state = self.state();
        if state.evicted.remove(&cpu) {
            self.add_request(&mut state);
        }
        Ok(())
    }

    fn has_batch_left(&self, cpu: u32) -> bool {
        let waits = |state: &mut State| state.leaving && !state.closed && !state.forsaken.contains(&cpu);
        let waited = self.acted.wait_timeout_while(self.state(), FREEZE_TIMEOUT, waits);
        !waited.expect("no keeper panics").0.leaving
    }

    fn is_batch_leaving(&self, _cpu: u32) -> bool {
        Evictions::is_leaving(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_keeper_waits_until_batch_has_left() {
        let evictions = Arc::new(Evictions::new().unwrap());
        let keeper = {
            thread::spawn({
                let evictions = Arc::clone(&evictions);
                move || evictions.evict(3)
            })
        };
        let asked = loop {
            let asked = evictions.take_requests();
            if asked.lanes.contains(3) {
                break asked;
            }
            thread::yield_now();
        };
        evictions.complete_requests(&asked, false, true);
        assert!(keeper.join().unwrap().is_ok());
        assert!(!evictions.has_batch_left(3), "a task is in a long system call");
        evictions.note_leaving(false);
        assert!(evictions.has_batch_left(3));
        evictions.restore(3).unwrap();
        assert!(evictions.take_requests().lanes.is_empty());
    }

    #[test]
    fn keeper_about_to_end_stops_waiting_at_once() {
        let evictions = Arc::new(Evictions::new().unwrap());
        let keeper = thread::spawn({
            let evictions = Arc::clone(&evictions);
            move || evictions.evict(3)
        });
        while !evictions.has_request() {
            thread::yield_now();
        }
        let began = Instant::now();
        evictions.run_without_keepers(&"3".parse().unwrap(), || assert!(keeper.join().unwrap().is_err()));
        assert!(began.elapsed() < ANSWER_TIMEOUT, "no thread waited for an answer");
        assert!(evictions.take_requests().lanes.is_empty());
    }

    #[test]
    fn eviction_fails_once_the_agent_has_closed() {
        let evictions = Evictions::new().unwrap();
        evictions.close();
        assert!(evictions.evict(3).is_err());
        assert!(evictions.take_requests().lanes.is_empty());
    }
}
