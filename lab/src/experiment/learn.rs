//! Load before a run, until the session has learned the costs of its service.
//!
//! A session learns from requests how much batch slows them, and how long the service works on them. A real service
//! runs for hours, so a policy should be measured with this knowledge, which a run of a second cannot gain. Each
//! session of an experiment therefore takes over the knowledge of the previous session. The first session gets load
//! until it has learned the limits.

use std::time::{Duration, Instant};

use anyhow::Result;
use sidelane_policy::borrow::contention_cost::ContentionCostEstimate;
use sidelane_policy::borrow::{Budget, Lending, PolicyKind};

use super::load::{LoadPattern, RunningClient};
use super::run::{RunSpec, SUPERVISE_EVERY};
use super::setting::Setting;
use crate::note::LabNote;
use sidelane_lanes::lending_limits::LearnedLimits;
use sidelane_lanes::session::Session;

/// Limits that a session knows when it starts, and the time that it has to learn them.
#[derive(Clone, Copy, Debug, Default)]
pub struct LearningOptions {
    /// Limits learned by an earlier session with the same service and batch; `None` for the first session.
    pub taken_over: Option<LearnedLimits>,
    /// Longest time of load before the run; then the run starts even if the session has not learned its limits.
    pub learning: Duration,
}

/// Largest safety margin, as a fraction, that the estimate of the contention cost may have to count as learned.
const MARGIN: f64 = 0.2;
/// Number of requests after which the mean cost of a queued request counts as learned.
const REQUESTS_MIN: u64 = 100;
/// Length of one piece of load. The session's knowledge is checked between pieces.
const PIECE: Duration = Duration::from_secs(2);
/// First seed of the load that a session learns from; no run uses the same seeds.
const SEED: u64 = 1_000_000;

/// Sends load until `session` has learned its limits, if its policy learns any. Returns a note if the time did not
/// suffice.
pub(super) fn learn_limits(task: RunSpec<'_>, setting: &Setting, session: &mut Session) -> Result<Option<LabNote>> {
    let Some(lending) = setting.beside.and_then(|limits| limits.hold).filter(is_learning) else { return Ok(None) };
    let LearningOptions { taken_over, learning } = task.experience;
    taken_over.iter().for_each(|learned| session.restore_learned(learned));
    let began = Instant::now();
    let mut piece = 0;
    while !session.learned().is_some_and(|learned| has_learned(lending.policy, &learned)) {
        if began.elapsed() + PIECE > learning {
            return Ok((!learning.is_zero()).then(|| unlearned_limits_note(setting, learning, session.learned())));
        }
        let rhythm = LoadPattern { run: PIECE, warm_up: Duration::ZERO, seed: SEED + piece, ..task.rhythm };
        let load = RunningClient::start(task.fixture, rhythm)?;
        while !load.wait_for_exit(SUPERVISE_EVERY)? {
            session.supervise()?;
        }
        load.finish()?;
        piece += 1;
    }
    Ok(None)
}

/// Returns whether the policy learns limits, and has a budget: without one it never lends lanes and cannot learn.
fn is_learning(lending: &Lending) -> bool {
    let learns = lending.policy.needs_contention_cost() || lending.policy.limits_by_age();
    learns && lending.budget != Budget::Given(0)
}

fn has_learned(policy: PolicyKind, learned: &LearnedLimits) -> bool {
    match policy.needs_contention_cost() {
        true => learned.contention_cost().is_some_and(|contention_cost| contention_cost.margin() <= MARGIN),
        false => learned.requests >= REQUESTS_MIN,
    }
}

fn unlearned_limits_note(setting: &Setting, learning: Duration, learned: Option<LearnedLimits>) -> LabNote {
    let (setting, load_s) = (setting.title, learning.as_secs());
    let percent = |part: f64| (100.0 * part).round() as i64;
    match learned.and_then(|learned| learned.contention_cost()) {
        Some(ContentionCostEstimate { mean, error }) => {
            LabNote::LimitsVague { setting, load_s, contention_cost: percent(mean), error: percent(2.0 * error) }
        }
        None => LabNote::LimitsUnknown { setting, load_s },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lending(policy: PolicyKind, budget_ns: u64) -> Lending {
        Setting::with_budget(policy, Budget::Given(budget_ns)).beside.unwrap().hold.unwrap()
    }

    #[test]
    fn only_dynamic_refresh_and_deadline_learn_limits() {
        let learns = |policy| is_learning(&lending(policy, 5));
        assert!(learns(PolicyKind::DynamicRefresh) && learns(PolicyKind::Deadline));
        assert!(!learns(PolicyKind::BorrowIdle) && !learns(PolicyKind::FixedBudget));
        assert!(!is_learning(&lending(PolicyKind::DynamicRefresh, 0)), "batch is beside no request");
    }

    #[test]
    fn session_without_learned_limits_gets_a_note() {
        let setting = Setting::with_budget(PolicyKind::DynamicRefresh, Budget::Given(5));
        let note = unlearned_limits_note(&setting, Duration::from_secs(30), None);
        assert_eq!(note, LabNote::LimitsUnknown { setting: "dynamic refresh", load_s: 30 });
    }
}
