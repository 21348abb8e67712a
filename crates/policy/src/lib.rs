//! Sidelane's decisions.
//!
//! A policy is told what was seen and when, and answers with actions. It does no I/O, reads
//! no clock and allocates nothing, so the same code runs in the agent, inside instrumented
//! batch programs and in the simulator, and a test can drive it through any history.

#![warn(missing_docs)]
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;

pub mod borrow;
pub mod cpus;
pub mod hedge;
pub mod holmes;
pub mod hurryup;
pub mod own_cpus;
pub mod perfiso;
pub mod unmanaged;

/// Nanoseconds on a monotonic clock. Only differences mean anything.
pub type Nanos = u64;

/// Why a policy last did, or did not do, something: a closed list for each family of policies. Goes into the audit
/// log as it is displayed.
pub trait Reason: Copy + Eq + fmt::Debug + fmt::Display {}

/// The actions of one observation, in order. Room for `MAX`, which is all that one observation can cause.
#[derive(Clone, Copy, Debug)]
pub struct Actions<A, const MAX: usize = 2> {
    list: [Option<A>; MAX],
    len: usize,
}

impl<A: Copy, const MAX: usize> Default for Actions<A, MAX> {
    fn default() -> Self {
        Self { list: [None; MAX], len: 0 }
    }
}

impl<A: Copy, const MAX: usize> Actions<A, MAX> {
    /// The most actions that one observation causes.
    pub const MAX: usize = MAX;

    /// Forgets all actions, so that the value can be used again.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds an action.
    ///
    /// # Panics
    /// When there are `MAX` already: a policy that does so has a bug.
    pub fn push(&mut self, action: A) {
        self.list[self.len] = Some(action);
        self.len += 1;
    }

    /// Adds some actions, as [`Actions::push`] does.
    pub fn extend(&mut self, actions: impl IntoIterator<Item = A>) {
        actions.into_iter().for_each(|action| self.push(action));
    }

    /// The actions, first to last.
    pub fn iter(&self) -> impl Iterator<Item = A> + '_ {
        self.list[..self.len].iter().flatten().copied()
    }
}

/// A decision maker. What it is told, what it can do, and the reasons that it can have are its own; how it is
/// driven is the same for all.
///
/// The caller observes at least once at or after each [`Policy::next_wakeup`], and carries
/// out every action, in order, before it observes again.
pub trait Policy {
    /// What it is told.
    type Observation;
    /// What it can ask for in answer to one observation: [`Actions`] of its family.
    type Actions;
    /// Why it did so.
    type Reason: Reason;

    /// Takes in what was seen at `now` and appends what is to be done to `out`.
    /// `now` never goes back from one call to the next.
    fn observe(&mut self, now: Nanos, seen: &Self::Observation, out: &mut Self::Actions);

    /// When the policy wants to look again even if nothing changes; `None`: only on a change.
    /// Always later than the last `now`. While a hold goes on, or batch is on a budget, looking again
    /// early never puts it off.
    fn next_wakeup(&self) -> Option<Nanos>;

    /// The reason of the present state.
    fn why(&self) -> Self::Reason;
}
