//! Activities of other threads while a thread waited for them, followed back from waker to waker.

use crate::builder::fact::{Fact, State};
use crate::builder::thread::Thread;
use crate::builder::world::World;
use crate::cause::Cause;
use crate::record::Task;
use crate::wait::{Activity, Purpose};

/// The most thread states that one search examines, of all threads together.
const STATES_MAX: usize = 4_096;
/// The most pairs of thread and activity that one search counts separately.
const PARTS_MAX: usize = 64;

/// Returns the activity that took most of a wait, and the thread of that activity. `by` woke the waiting thread at
/// `to_ns`.
///
/// The search goes back in time. A thread that another thread woke had waited for it: the search leaves out its sleep
/// and counts the time of its waker.
pub fn longest_activity_in_wait(world: &World, waker_task: Task, from_ns: u64, to_ns: u64) -> Option<(Activity, Task)> {
    let mut parts: Vec<(Activity, Task, u64)> = Vec::new();
    let (mut task, mut at_ns) = (waker_task, to_ns);
    for _ in 0..STATES_MAX {
        let Some(thread) = world.threads.get(&task.tid) else { break };
        let Some(state) = thread.state_before(at_ns) else { break };
        if let Some(waker) = waker_of(&state, task) {
            at_ns = at_ns.min(state.to_ns);
            task = waker;
            continue;
        }
        let since_ns = state.from_ns.max(from_ns);
        if let Some(doing) = activity_in_state(thread, &state) {
            add_activity_time(&mut parts, doing, task, at_ns - since_ns);
        }
        at_ns = since_ns;
        if at_ns == from_ns {
            break;
        }
    }
    let (doing, task, most_ns) = parts.into_iter().max_by_key(|(.., sum_ns)| *sum_ns)?;
    (most_ns * 2 > to_ns.saturating_sub(from_ns)).then_some((doing, task))
}

fn add_activity_time(parts: &mut Vec<(Activity, Task, u64)>, activity: Activity, task: Task, time_ns: u64) {
    if let Some((.., sum_ns)) = parts.iter_mut().find(|(known, of, _)| (*known, of.tid) == (activity, task.tid)) {
        *sum_ns += time_ns;
    } else if parts.len() < PARTS_MAX {
        parts.push((activity, task, time_ns));
    }
}

/// Returns the thread that ended the sleep of `task` in `state`.
fn waker_of(state: &Fact, task: Task) -> Option<Task> {
    use Cause::{Full, HandOver, Lock};
    let is_for_thread = state.state == State::Asleep && matches!(state.cause, Lock | HandOver | Full);
    (is_for_thread && state.by.tid != 0 && state.by.tid != task.tid).then_some(state.by)
}

fn activity_in_state(thread: &Thread, state: &Fact) -> Option<Activity> {
    let waits_for_request = || {
        let purpose = thread.wait_of(state).map(|wait| wait.purpose());
        state.request == 0 && matches!(purpose, Some(Purpose::Poll | Purpose::Receive))
    };
    match (state.state, state.cause) {
        (State::Running, _) => Some(Activity::Ran),
        (State::Ready, _) => Some(Activity::WaitedForCpu),
        (State::Unknown, _) => None,
        (State::Asleep, Cause::Timer) => Some(Activity::Slept),
        (State::Asleep, Cause::Disk) => Some(Activity::WaitedForDisk),
        (State::Asleep, Cause::Downstream | Cause::Connect | Cause::NoAnswer) => Some(Activity::Asked),
        (State::Asleep, Cause::NotExplained | Cause::NetworkReceive) if waits_for_request() => {
            Some(Activity::WaitedForRequest)
        }
        (State::Asleep, _) => Some(Activity::Waited),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_on_lock_or_hand_over_follows_its_waker() {
        let own = Task { tid: 5, pid: 4 };
        let other = Task { tid: 6, pid: 4 };
        let waker = |state, cause, by| waker_of(&Fact { state, by, ..Fact::new(cause, 1, 2, 0) }, own);
        for cause in [Cause::Full, Cause::HandOver, Cause::Lock] {
            assert_eq!(waker(State::Asleep, cause, other), Some(other));
            assert_eq!(waker(State::Asleep, cause, own), None, "it ended the wait itself");
            assert_eq!(waker(State::Asleep, cause, Task::default()), None, "an interrupt ended it");
            assert_eq!(waker(State::Ready, cause, other), None);
        }
        assert_eq!(waker(State::Asleep, Cause::Disk, other), None);
    }
}
