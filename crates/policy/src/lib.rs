//! Decisions of Sidelane, as policies without side effects.
//!
//! A policy gets an observation and its time, and answers with actions. It does no I/O, reads no clock and allocates
//! nothing. So the same code runs in the agent, inside instrumented batch programs and in the simulator, and a test can
//! drive it through any history.
//!
//! # Invariants
//!
//! - Time is an argument; there is no I/O, clock, allocation or unsafe code: guarded by the compiler (no-std, unsafe
//!   code forbidden).
//! - `borrow`: no hold lasts until the kernel throttles it (`src/borrow/lane/tests.rs`:
//!   `no_hold_lasts_until_the_kernel_throttles_it`).
//! - `borrow`: if requests that waited are spared, batch delays a request by one budget at most
//!   (`src/borrow/queue.rs`: `batch_delays_no_request_by_more_than_one_budget`).
//! - `borrow`: under every policy a delay is at most the contention cost of what ran in the busy period
//!   (`src/borrow/queue.rs`: `delay_is_at_most_the_cost_in_the_busy_period`).
//! - `borrow`: noise in one pair of windows is no slowdown (`src/borrow/slowdown.rs`:
//!   `noise_in_one_pair_of_windows_is_undecided`).
//! - `borrow`: a short run gives no verdict on overlap (`src/borrow/promise.rs`:
//!   `too_short_run_gives_no_verdict_on_overlap`).
//! - `cpus`: a CPU has one role, and batch never runs on a reserved CPU (`tests/cpus/properties.rs`:
//!   `holmes_gives_each_cpu_one_role`).
//! - `cpus`: batch leaves a disturbed core at once and returns after calm (`tests/cpus/properties.rs`:
//!   `batch_leaves_disturbed_core_and_returns_after_calm_time`).
//! - `cpus`: constant input leads to a constant result (`tests/cpus/properties.rs`: `holmes_stops_acting_on_constant_input`).
//! - `cpus`: the policy asks only for what is possible (`tests/cpus/properties.rs`:
//!   `holmes_actions_are_always_possible`).
//! - `hedge`: the active server has no lasting hazard while a backup has none (`tests/hedge/properties.rs`:
//!   `active_server_has_no_lasting_hazard_if_a_backup_has_none`).
//! - `hedge`: requests return to a server only after a passing hazard, and when it is well
//!   (`tests/hedge/properties.rs`: `swaps_go_to_the_best_and_only_backup_requests_are_resent`).
//! - `hedge`: hedges cost no more than successes paid for (`tests/hedge/properties.rs`:
//!   `hedges_never_exceed_initial_and_added_budget`).
//! - `hedge`: without a backup the policy only observes (`tests/hedge/properties.rs`:
//!   `without_a_backup_the_policy_takes_no_action`).
//! - `hedge`: one server always stays in service (`tests/hedge/outliers.rs`:
//!   `all_servers_but_one_may_be_ejected_for_30_to_300_s`).
//! - `hedge`: a server that answers more than half of its requests is not ejected (`tests/hedge/outliers.rs`:
//!   `server_that_answers_most_requests_is_not_ejected`).
//! - `hedge`: one server that can be used always has its full share (`tests/hedge/drains.rs`:
//!   `a_usable_server_always_has_its_full_share`).
//! - `hedge`: at most half of the servers are drained for pauses (`tests/hedge/drains.rs`:
//!   `at_most_half_of_the_servers_are_drained_for_pauses`).
//! - `hedge`: after hazards and warm-ups all servers have their full shares (`tests/hedge/drains.rs`:
//!   `all_shares_are_full_when_all_hazards_are_over`).
//! - `hurryup`: each thread has CPUs that it had before, and a big core changes its thread once a round
//!   (`tests/hurryup/properties.rs`: `threads_keep_allowed_cpus_and_big_cores_change_once`).
//! - `hurryup`: no thread moves for a shorter request (`tests/hurryup/properties.rs`:
//!   `no_thread_moves_for_a_shorter_request`).
//! - `hurryup`: a thread that is placed ahead is idle and goes to an idle big core (`tests/hurryup/preplace.rs`:
//!   `thread_placed_ahead_is_idle_and_goes_to_idle_big_core`).
//! - `offer`: a saturated service or a missed objective withdraws a lane within 10 s, and the lane is lent within 30 s
//!   after that (`src/offer.rs`: `trouble_withdraws_in_10_s_and_its_end_lends_in_30_s`).
//! - `offer`: no lane is lent twice within 15 s (`src/offer.rs`: `lane_is_lent_at_most_once_in_15_s`).

#![warn(missing_docs)]
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;

pub mod borrow;
pub mod cpus;
pub mod hedge;
pub mod histogram;
pub mod holmes;
pub mod hurryup;
pub mod offer;
pub mod own_cpus;
pub mod perfiso;
pub mod unmanaged;

/// Nanoseconds on a monotonic clock. Only differences have a meaning.
pub type Nanos = u64;

/// Reason why a policy last acted, or did not act: a closed list for each family of policies. The audit log contains
/// its displayed form.
pub trait PolicyReason: Copy + Eq + fmt::Debug + fmt::Display {}

/// Actions of one observation, in order. The list has room for `MAX`, the most that one observation can cause.
#[derive(Clone, Copy, Debug)]
pub struct ActionList<A, const MAX: usize> {
    list: [Option<A>; MAX],
    len: usize,
}

impl<A: Copy, const MAX: usize> Default for ActionList<A, MAX> {
    fn default() -> Self {
        Self { list: [None; MAX], len: 0 }
    }
}

impl<A: Copy, const MAX: usize> ActionList<A, MAX> {
    /// Largest number of actions of one observation.
    pub const MAX: usize = MAX;

    /// Removes all actions, so that the list can be used again.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends an action to the list.
    ///
    /// # Panics
    /// Panics if there are `MAX` actions already: a policy that does so has a bug.
    pub fn push(&mut self, action: A) {
        self.list[self.len] = Some(action);
        self.len += 1;
    }

    /// Appends several actions, under the conditions of [`ActionList::push`].
    pub fn extend(&mut self, actions: impl IntoIterator<Item = A>) {
        actions.into_iter().for_each(|action| self.push(action));
    }

    /// Returns the actions, first to last.
    pub fn iter(&self) -> impl Iterator<Item = A> + '_ {
        self.list[..self.len].iter().flatten().copied()
    }
}

/// Decision maker. Each family has its own observations, actions and reasons; all policies are driven in the same way.
///
/// The caller observes at least once at or after each [`Policy::next_wakeup`], and carries out every action, in order,
/// before it observes again.
pub trait Policy {
    /// Input of the policy.
    type Observation;
    /// Answer of the policy to one observation: the [`ActionList`] of its family.
    type Actions;
    /// Reason of an answer.
    type Reason: PolicyReason;

    /// Processes the observation of `now` and appends actions to `out`. `now` never decreases from one call to the
    /// next.
    fn observe(&mut self, now: Nanos, seen: &Self::Observation, out: &mut Self::Actions);

    /// Returns when the policy wants to observe again even if nothing changes; `None`: only on a change. The time is
    /// always later than the `now` of the last observation. During a hold, or while batch uses a budget, an early
    /// observation never postpones it.
    fn next_wakeup(&self) -> Option<Nanos>;

    /// Returns the reason of the present state.
    fn why(&self) -> Self::Reason;
}
