//! What a thread did while another one waited for it, followed from thread to thread.

use crate::builder::fact::{Fact, State};
use crate::builder::thread::Thread;
use crate::builder::world::World;
use crate::cause::Cause;
use crate::record::Task;
use crate::wait::Doing;

/// A chain of threads that wait for each other is followed so far.
const THREADS_MAX: usize = 8;
/// States of one thread that are looked at.
const STATES_MAX: usize = 4_096;

/// What the thread that `by` names did most of the time, or the last one that it waited for in turn; and that thread,
/// if it is another one.
pub fn follow(world: &World, by: Task, from_ns: u64, to_ns: u64) -> (Doing, Task) {
    let (mut task, mut times) = (by, (from_ns, to_ns));
    let mut doing = Doing::Unknown;
    for _ in 0..THREADS_MAX {
        let Some(thread) = world.threads.get(&task.tid) else { break };
        let Some((most, longest)) = most_of(thread, times) else { break };
        doing = most;
        let goes_on = most == Doing::Waited && longest.by.tid != 0 && longest.by.tid != task.tid;
        if !goes_on || longest.by == by {
            break;
        }
        task = longest.by;
        times = (longest.from_ns.max(times.0), longest.to_ns.min(times.1));
        doing = Doing::Unknown;
    }
    (doing, if task == by { Task::default() } else { task })
}

/// What more than half of the time went to, with the longest state of that kind.
fn most_of(thread: &Thread, (from_ns, to_ns): (u64, u64)) -> Option<(Doing, Fact)> {
    const KINDS: [Doing; 6] =
        [Doing::Ran, Doing::WaitedForCpu, Doing::Slept, Doing::WaitedForDisk, Doing::Asked, Doing::Waited];
    let first = thread.states.first_after(from_ns);
    let known = (first..first + STATES_MAX).map_while(|index| thread.states.get(index)).copied();
    let present = Fact { to_ns: u64::MAX, ..thread.state };
    let mut sums: [(u64, Option<Fact>); KINDS.len()] = [(0, None); KINDS.len()];
    for state in known.chain([present]).take_while(|state| state.from_ns < to_ns) {
        let length_ns = state.to_ns.min(to_ns).saturating_sub(state.from_ns.max(from_ns));
        let Some(place) = doing(&state).and_then(|doing| KINDS.iter().position(|kind| *kind == doing)) else {
            continue;
        };
        let (sum_ns, longest) = &mut sums[place];
        *sum_ns += length_ns;
        if longest.is_none_or(|other| other.to_ns - other.from_ns < state.to_ns - state.from_ns) {
            *longest = Some(state);
        }
    }
    let (place, (sum_ns, longest)) = sums.into_iter().enumerate().max_by_key(|(_, (sum_ns, _))| *sum_ns)?;
    (sum_ns * 2 > to_ns.saturating_sub(from_ns)).then_some((KINDS[place], longest?))
}

fn doing(state: &Fact) -> Option<Doing> {
    match (state.state, state.cause) {
        (State::Running, _) => Some(Doing::Ran),
        (State::Ready, _) => Some(Doing::WaitedForCpu),
        (State::Unknown, _) => None,
        (State::Asleep, Cause::Timer) => Some(Doing::Slept),
        (State::Asleep, Cause::Disk) => Some(Doing::WaitedForDisk),
        (State::Asleep, Cause::Downstream | Cause::Connect | Cause::NoAnswer) => Some(Doing::Asked),
        (State::Asleep, _) => Some(Doing::Waited),
    }
}
