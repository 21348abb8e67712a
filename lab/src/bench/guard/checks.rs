//! The checks: what each way of sharing must keep.

use super::agent::Heard;
use super::cells::{Cells, Figures};
use super::measured::Measured;
use super::reaction::{Reactions, percentile_us};
use super::way::Way;
use sidelane_report::{Check, Interval, Unit};
use sidelane_stats::interval::{of_all, of_median};

/// From here on batch disturbs a store so much that it can be judged whether somebody prevents that.
pub(super) const DISTURBED: f64 = 1.5;
const P99_OVER_ALONE: f64 = 1.1;
const AGENT_IDLE_PERCENT: f64 = 0.3;
const AGENT_BUSY_PERCENT: f64 = 3.0;
const AGENT_MIB: f64 = 30.0;
const REACTION_US: f64 = 200.0;

/// All checks.
pub(super) fn of(measured: &Measured) -> Vec<Check> {
    let mut checks: Vec<Check> = measured.groups.iter().flat_map(of_group).collect();
    let idle = measured.idle;
    let used = idle.map(|idle| idle.cpu_percent);
    checks
        .extend(used.map(|used| Check::at_most("agent's CPU, nothing to do", used, AGENT_IDLE_PERCENT, Unit::Percent)));
    let most = |figure: fn(&Figures) -> Option<f64>| {
        let runs = measured.groups.iter().flat_map(|cells| &cells.runs);
        runs.filter_map(|run| figure(&run.figures)).reduce(f64::max)
    };
    let memory = [most(|run| run.agent_memory_mib), idle.and_then(|idle| idle.memory_mib)];
    let memory = memory.into_iter().flatten().reduce(f64::max);
    checks.extend(memory.map(|memory| Check::at_most("agent's memory, MiB", memory, AGENT_MIB, Unit::Count)));
    checks.extend(measured.reactions.iter().flat_map(of_reactions));
    checks
}

/// The check on how fast batch leaves, in the way in which agents hear of interference unless told otherwise.
pub(super) fn of_reactions(reactions: &Reactions) -> Option<Check> {
    let title = "onset of interference to batch off, p99";
    let check = || Check::interval_at_most(title, p99_of(&reactions.sorted_ns), REACTION_US, Unit::Us);
    (reactions.heard == Heard::Bell).then(check)
}

/// In microseconds, over all reactions: each begins after batch is back, so they are independent.
fn p99_of(reactions_ns: &[u64]) -> Option<Interval> {
    of_all(reactions_ns, |drawn| {
        let mut sorted: Vec<u64> = drawn.iter().map(|ns| **ns).collect();
        sorted.sort_unstable();
        percentile_us(&sorted, 99.0)
    })
}

/// The checks on one group of stores.
///
/// Ways that were left out are not judged.
pub(super) fn of_group(cells: &Cells) -> Vec<Check> {
    let was_run = |way: Way| cells.at(way).next().is_some();
    let mut checks = Vec::new();
    for (store, name) in names(cells).iter().enumerate() {
        if !is_disturbed(cells, store) {
            continue;
        }
        for way in [Way::Holmes, Way::HolmesGate].into_iter().filter(|way| was_run(*way)) {
            let title = format!("{name}: p99 over alone, {}", way.title());
            let over = of_median(cells.p99_over(store, way, Way::Alone));
            checks.push(Check::interval_at_most(title, over, P99_OVER_ALONE, Unit::OverAlone));
        }
    }
    let group = cells.group.name();
    if was_run(Way::Holmes) && was_run(Way::HolmesGate) {
        checks.push(Check::interval_at_least(
            format!("{group}: batch's work, Holmes + lane gate over Holmes"),
            work_over(cells, Way::HolmesGate, Way::Holmes),
            1.0,
            Unit::Ratio,
        ));
    }
    let busy = of_median(cells.at(Way::Holmes).filter_map(|run| run.figures.agent_cpu_percent));
    let title = format!("{group}: agent's CPU, Holmes");
    checks.extend(busy.map(|busy| Check::interval_at_most(title, busy, AGENT_BUSY_PERCENT, Unit::Percent)));
    checks
}

/// Each store with its mix.
pub(super) fn names(cells: &Cells) -> Vec<String> {
    cells.group.stores.iter().map(|store| format!("{} {}", store.name(), cells.group.mix.name)).collect()
}

/// How much longer batch makes the p99 of a store if nobody prevents it.
pub(super) fn harm(cells: &Cells, store: usize) -> Option<Interval> {
    of_median(cells.p99_over(store, Way::Unmanaged, Way::Alone))
}

/// Whether that is enough to judge others by.
pub(super) fn is_disturbed(cells: &Cells, store: usize) -> bool {
    harm(cells, store).is_some_and(|over| over.measured >= DISTURBED)
}

/// A way in which batch is always paused has done no work at all; then nothing is a multiple of it.
fn work_over(cells: &Cells, way: Way, other: Way) -> Option<Interval> {
    of_median(
        cells.pairs(way, other, |one, other| Some(one.batch_work? / other.batch_work.filter(|work| *work > 0.0)?)),
    )
}

#[cfg(test)]
mod tests {
    use super::super::cells::tests::{cells, run};
    use super::*;
    use sidelane_report::Verdict;

    /// Six rounds with p99 and batch's work under each way.
    fn measured(ways: [(Way, f64, f64); 4]) -> Cells {
        let mut runs = Vec::new();
        for round in 0..6 {
            runs.push(run(round, Way::Alone, 100.0, 0.0));
            runs.extend(ways.map(|(way, p99_us, work)| run(round, way, p99_us, work)));
        }
        runs.iter_mut().filter(|run| run.way.has_agent()).for_each(|run| run.figures.agent_cpu_percent = Some(1.0));
        cells(runs)
    }

    const GOOD: [(Way, f64, f64); 4] = [
        (Way::Unmanaged, 300.0, 1.0),
        (Way::PerfIso, 200.0, 0.4),
        (Way::Holmes, 105.0, 0.2),
        (Way::HolmesGate, 108.0, 0.6),
    ];

    fn verdicts(ways: [(Way, f64, f64); 4]) -> Vec<Verdict> {
        of_group(&measured(ways)).iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn ways_that_do_what_they_should_pass() {
        assert_eq!(verdicts(GOOD), [Verdict::Holds; 4]);
    }

    #[test]
    fn what_a_way_does_not_keep_is_missed() {
        let mut ways = GOOD;
        ways[2].1 = 150.0;
        ways[3].2 = 0.1;
        assert_eq!(verdicts(ways), [Verdict::Missed, Verdict::Holds, Verdict::Missed, Verdict::Holds]);
    }

    #[test]
    fn nobody_is_judged_where_batch_disturbs_nobody() {
        let mut ways = GOOD;
        ways[0].1 = 120.0;
        assert_eq!(verdicts(ways), [Verdict::Holds; 2], "batch's work and the agent's CPU are left");
    }
}
