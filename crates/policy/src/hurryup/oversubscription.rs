//! Mapping for more threads than cores: no thread is bound to a single core, and long requests run on big cores only.
//!
//! Problem. The paper binds each thread to one core (§III-C), for as many threads as cores. A pool of 200 threads on 8
//! cores would have 25 threads on each. Two threads that work at the same moment often share a core while another core
//! is idle, and a short request waits behind a long one. The kernel would move one of the two, but the binding forbids
//! it.
//!
//! Approach. While there are more threads than cores, the kernel places them: each may use all CPUs that it had
//! originally. A thread whose request has been under way for longer than the threshold may use only big cores, any of
//! them, until the request ends. At most one such thread for each big core does so at once, those with the oldest
//! requests first. Age counts from the start of the request, since it is unknown where an unbound thread ran.
//!
//! A pool is oversubscribed as soon as it has one thread too many. It stays so at least until the next
//! [`HurryEvent::Reconsider`](super::HurryEvent). So threads that come and go do not bind and release all others each
//! time.
//!
//! With [`Options::one_by_one`](super::Options) the size of a lane depends on its siblings. The sizes are unknown while
//! threads have no core, so the kernel places all threads, and none moves.

use super::action::HurryAction;
use super::event::{BigLittleCores, Thread};
use super::swap::Outcome;
use super::table::ThreadRequestTable;
use super::thread_placement::ThreadPlacement;
use crate::Nanos;

/// Releases threads whose requests are no longer long, and restricts the threads with the oldest long requests to big
/// cores.
pub(super) fn restrict_long_to_big(
    now: Nanos,
    threshold_ns: Nanos,
    table: &ThreadRequestTable,
    placement: &mut ThreadPlacement,
    cores: &BigLittleCores,
    mut emit: impl FnMut(HurryAction),
) -> Outcome {
    let long = || table.iter().filter(|entry| now.saturating_sub(entry.since) > threshold_ns);
    for placed in placement.iter_mut().filter(|placed| placed.on_big) {
        if !long().any(|entry| entry.thread == placed.thread) {
            placed.on_big = false;
            emit(HurryAction::Restore { thread: placed.thread });
        }
    }
    let waiting = |placement: &ThreadPlacement| -> Option<(Thread, usize)> {
        let may_go = |thread| {
            placement.placed_thread(thread).is_some_and(|placed| !placed.on_big && placed.may_be_on_any(&cores.big))
        };
        let all = || long().filter(|entry| may_go(entry.thread));
        Some((all().min_by_key(|entry| (entry.since, entry.thread))?.thread, all().count()))
    };
    let open = cores.big.len().saturating_sub(placement.iter().filter(|placed| placed.on_big).count());
    let mut outcome = Outcome::default();
    while outcome.moved < open
        && let Some((thread, _)) = waiting(placement)
        && let Some(placed) = placement.placed_thread_mut(thread)
    {
        placed.on_big = true;
        outcome.moved += 1;
        emit(HurryAction::Hurry { thread });
    }
    outcome.left = waiting(placement).map_or(0, |(_, count)| count);
    outcome
}
