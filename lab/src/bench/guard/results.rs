//! The results of the guard bench: comparisons of variants, the checks, the rows and the pictures.

use std::collections::BTreeSet;

use super::agent::NotificationMode;
use super::environment::{Figures, Latency};
use super::idle::IdleAgentFigures;
use super::plan::{Group, GuardVariant};
use super::reaction::{Reactions, percentile_us};
use crate::experiment::comparison::Samples;
use crate::experiment::load::percent_above_limit;
use crate::experiment::sibling::SiblingDescription;
use sidelane_diagnostics::note::Note;
use sidelane_report::chart::{Line, Multiples, Panel, ScaleKind};
use sidelane_report::{Check, Interval, Row, Unit};
use sidelane_requests::at_socket::latency_at_percentile_us;
use sidelane_stats::interval::{bootstrap_interval, median_interval};
use sidelane_stats::ranks::median;

/// Percentile of the latency without batch that Holmes' paper takes as its SLO.
const SLO_PERCENTILE: f64 = 90.0;
/// Smallest slowdown by unmanaged batch at which the bench can judge whether a policy prevents it.
pub(super) const DISTURBED: f64 = 1.5;
const P99_OVER_ALONE: f64 = 1.1;
const AGENT_IDLE_PERCENT: f64 = 0.3;
const AGENT_BUSY_PERCENT: f64 = 3.0;
const AGENT_MIB: f64 = 30.0;
const REACTION_US: f64 = 200.0;
/// Percentiles that the latency charts show; the figures of Holmes' paper end at the 99th, too.
const PERCENTILES: [f64; 8] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0];

/// Group of stores, and its samples.
#[derive(Clone, Copy)]
pub(super) struct GroupSamples<'a> {
    pub(super) group: &'a Group,
    pub(super) samples: &'a Samples<GuardVariant, Figures>,
}

impl GroupSamples<'_> {
    /// Returns, for each round, a store's p99 under `variant` divided by its p99 under `baseline`.
    pub(super) fn p99_ratios(&self, store_index: usize, variant: GuardVariant, baseline: GuardVariant) -> Vec<f64> {
        self.samples.compare_by_round(variant, baseline, |one, other| {
            Some(one.stores.get(store_index)?.p99_us / other.stores.get(store_index)?.p99_us)
        })
    }

    /// Returns the share of a store's requests beyond the SLO, in percent, for each round. The SLO is the store's p90
    /// without batch in the same round (Holmes §6.1).
    pub(super) fn violations_percent(&self, store_index: usize, variant: GuardVariant) -> Vec<f64> {
        self.samples.compare_by_round(variant, GuardVariant::Alone, |one, alone| {
            let slo_us = latency_at_percentile_us(&alone.stores.get(store_index)?.curve, SLO_PERCENTILE)?;
            percent_above_limit(&one.stores.get(store_index)?.curve, slo_us)
        })
    }
}

/// All measurements of the guard bench.
pub(super) struct GuardMeasurements {
    pub(super) emulated: Option<SiblingDescription>,
    pub(super) groups: Vec<(Group, Samples<GuardVariant, Figures>)>,
    pub(super) idle: Option<IdleAgentFigures>,
    /// Reaction times for each measured notification mode.
    pub(super) reactions: Vec<Reactions>,
    pub(super) notes: BTreeSet<Note>,
}

impl GuardMeasurements {
    pub(super) fn sample_groups(&self) -> impl Iterator<Item = GroupSamples<'_>> {
        self.groups.iter().map(|(group, samples)| GroupSamples { group, samples })
    }

    /// Returns the figures of all samples of all groups, with their variants.
    pub(super) fn figures(&self) -> impl Iterator<Item = (GuardVariant, &Figures)> {
        self.groups.iter().flat_map(|(_, samples)| &samples.0).map(|sample| (sample.variant, &sample.figures))
    }
}

/// Returns all checks of the bench.
pub(super) fn checks(measured: &GuardMeasurements) -> Vec<Check> {
    let mut checks: Vec<Check> = measured.sample_groups().flat_map(checks_of_group).collect();
    let idle = measured.idle;
    let used = idle.map(|idle| idle.cpu_percent);
    checks
        .extend(used.map(|used| Check::at_most("agent's CPU, nothing to do", used, AGENT_IDLE_PERCENT, Unit::Percent)));
    let most = |figure: fn(&Figures) -> Option<f64>| {
        measured.figures().filter_map(|(_, figures)| figure(figures)).reduce(f64::max)
    };
    let memory = [most(|run| run.agent_memory_mib), idle.and_then(|idle| idle.memory_mib)];
    let memory = memory.into_iter().flatten().reduce(f64::max);
    checks.extend(memory.map(|memory| Check::at_most("agent's memory, MiB", memory, AGENT_MIB, Unit::Count)));
    checks.extend(measured.reactions.iter().flat_map(check_of_reactions));
    checks
}

/// Returns the check on how fast batch leaves; `None` for notification modes other than the default.
pub(super) fn check_of_reactions(reactions: &Reactions) -> Option<Check> {
    let title = "onset of interference to batch off, p99";
    let check = || Check::interval_at_most(title, p99_interval_us(&reactions.sorted_ns), REACTION_US, Unit::Us);
    (reactions.notification == NotificationMode::Wakeup).then(check)
}

/// Returns the p99 of all reactions in microseconds. Each reaction begins after batch is back, so reactions are
/// independent samples.
fn p99_interval_us(reactions_ns: &[u64]) -> Option<Interval> {
    bootstrap_interval(reactions_ns, |drawn| {
        let mut sorted: Vec<u64> = drawn.iter().map(|ns| **ns).collect();
        sorted.sort_unstable();
        percentile_us(&sorted, 99.0)
    })
}

/// Returns the checks on one group of stores.
///
/// Variants that were not measured are not judged.
pub(super) fn checks_of_group(compared: GroupSamples<'_>) -> Vec<Check> {
    let was_run = |variant: GuardVariant| compared.samples.has(variant);
    let mut checks = Vec::new();
    for (store, name) in store_names(compared).iter().enumerate() {
        if !is_disturbed(compared, store) {
            continue;
        }
        for variant in [GuardVariant::Holmes, GuardVariant::HolmesGate].into_iter().filter(|variant| was_run(*variant))
        {
            let title = format!("{name}: p99 over alone, {}", variant.title());
            let over = median_interval(compared.p99_ratios(store, variant, GuardVariant::Alone));
            checks.push(Check::interval_at_most(title, over, P99_OVER_ALONE, Unit::OverAlone));
        }
    }
    let group = compared.group.name();
    if was_run(GuardVariant::Holmes) && was_run(GuardVariant::HolmesGate) {
        checks.push(Check::interval_at_least(
            format!("{group}: batch's work, Holmes + lane gate over Holmes"),
            batch_work_ratio(compared, GuardVariant::HolmesGate, GuardVariant::Holmes),
            1.0,
            Unit::Ratio,
        ));
    }
    let busy = median_interval(
        compared.samples.of_variant(GuardVariant::Holmes).filter_map(|run| run.figures.agent_cpu_percent),
    );
    let title = format!("{group}: agent's CPU, Holmes");
    checks.extend(busy.map(|busy| Check::interval_at_most(title, busy, AGENT_BUSY_PERCENT, Unit::Percent)));
    checks
}

/// Returns the name of each store with its mix.
pub(super) fn store_names(compared: GroupSamples<'_>) -> Vec<String> {
    compared.group.stores.iter().map(|store| format!("{} {}", store.name(), compared.group.mix.name)).collect()
}

/// Returns the p99 of a store beside batch without a policy, divided by its p99 alone.
pub(super) fn unmanaged_slowdown(compared: GroupSamples<'_>, store_index: usize) -> Option<Interval> {
    median_interval(compared.p99_ratios(store_index, GuardVariant::Unmanaged, GuardVariant::Alone))
}

/// Returns whether unmanaged batch disturbs a store enough to judge policies by it.
pub(super) fn is_disturbed(compared: GroupSamples<'_>, store_index: usize) -> bool {
    unmanaged_slowdown(compared, store_index).is_some_and(|over| over.measured >= DISTURBED)
}

/// Returns batch's work under `variant` divided by its work under `baseline`. Rounds in which batch did no work under
/// `baseline` are omitted.
fn batch_work_ratio(compared: GroupSamples<'_>, variant: GuardVariant, baseline: GuardVariant) -> Option<Interval> {
    median_interval(compared.samples.compare_by_round(variant, baseline, |one, other| {
        Some(one.batch_work? / other.batch_work.filter(|work| *work > 0.0)?)
    }))
}

/// Returns all rows; the last ones are about the idle agent and the agent's reactions.
pub(super) fn rows(measured: &GuardMeasurements) -> Vec<Row> {
    let mut rows: Vec<Row> = measured.sample_groups().flat_map(rows_of_group).collect();
    rows.extend(measured.idle.map(|idle| {
        let mut row = Row::new("agent/idle");
        row.put("agent_cpu_percent", idle.cpu_percent);
        row.put("agent_memory_mib_count", idle.memory_mib);
        row
    }));
    rows.extend(measured.reactions.iter().map(|reactions| {
        let mut row = Row::new(format!("onset_to_off/{}", reactions.notification.name()));
        row.put("agent_cpu_percent", reactions.agent_cpu_percent());
        row.put("reaction_p50_us", reactions.percentile_us(50.0));
        row.put("reaction_p99_us", reactions.percentile_us(99.0));
        row.put("reaction_max_us", reactions.percentile_us(100.0));
        row.put("reactions_count", reactions.sorted_ns.len() as f64);
        row.put("left_out_percent", reactions.left_out_percent());
        row
    }));
    rows
}

fn rows_of_group(compared: GroupSamples<'_>) -> Vec<Row> {
    let stores = 0..compared.group.stores.len();
    stores
        .flat_map(|store| {
            GuardVariant::ALL
                .into_iter()
                .filter(|variant| compared.samples.has(*variant))
                .map(move |variant| row(compared, store, variant))
        })
        .collect()
}

/// Returns one row, such as `redis_a/holmes`: medians over the rounds. Ratios are computed within a round first.
fn row(compared: GroupSamples<'_>, store_index: usize, variant: GuardVariant) -> Row {
    let name = format!("{}_{}/{}", compared.group.stores[store_index].name(), compared.group.mix.name, variant.name());
    let latency =
        |figure: fn(&Latency) -> f64| compared.samples.median(variant, |run| run.stores.get(store_index).map(figure));
    let mut row = Row::new(name);
    row.put("mean_us", latency(|seen| seen.mean_us));
    row.put("p99_us", latency(|seen| seen.p99_us));
    row.put("p99_over_alone", median(compared.p99_ratios(store_index, variant, GuardVariant::Alone)));
    row.put("slo_violations_percent", median(compared.violations_percent(store_index, variant)));
    row.put("utilisation_ratio", compared.samples.median(variant, |run| run.utilisation));
    row.put("batch_work_ratio", compared.samples.median(variant, |run| run.batch_work));
    row.put("agent_cpu_percent", compared.samples.median(variant, |run| run.agent_cpu_percent));
    row.put("agent_memory_mib_count", compared.samples.median(variant, |run: &Figures| run.agent_memory_mib));
    let requests = |run: &Figures| run.stores.get(store_index).map_or(0.0, |seen| seen.requests as f64);
    row.put("requests_count", compared.samples.sum(variant, requests));
    row.put(
        "left_out_percent",
        compared.samples.median(variant, |run| run.stores.get(store_index).and_then(|seen| seen.left_out_percent)),
    );
    row.put("rounds_count", compared.samples.of_variant(variant).count() as f64);
    row
}

/// Returns the latency charts for the HTML page; none if nothing was measured.
pub(super) fn latency_charts(measured: &GuardMeasurements) -> Vec<Multiples> {
    let panels: Vec<Panel> = measured.sample_groups().flat_map(panels).collect();
    let pictures = Multiples {
        title: "Latency under each way of sharing the machine".to_owned(),
        caption: "Latency by percentile, on a logarithmic axis; lower is better. Medians over the rounds. As Holmes' \
                  Figs. 7 to 10."
            .to_owned(),
        across: "percentile".to_owned(),
        across_unit: Unit::Percent,
        panels,
        columns: 2,
    };
    Some(pictures).filter(|pictures| !pictures.panels.is_empty()).into_iter().collect()
}

fn panels(compared: GroupSamples<'_>) -> Vec<Panel> {
    let panel = |(store, name): (usize, String)| Panel {
        title: name,
        unit: Unit::Us,
        scale: ScaleKind::Log,
        up_to: None,
        limit: None,
        lines: GuardVariant::ALL
            .map(|variant| line(compared, store, variant))
            .into_iter()
            .filter(|line| !line.points.is_empty())
            .collect(),
    };
    store_names(compared).into_iter().enumerate().map(panel).collect()
}

fn line(compared: GroupSamples<'_>, store_index: usize, variant: GuardVariant) -> Line {
    let at = |percentile: f64| {
        Some((
            percentile,
            compared
                .samples
                .median(variant, |run| latency_at_percentile_us(&run.stores.get(store_index)?.curve, percentile))?,
        ))
    };
    Line { setting: variant.title().to_owned(), points: PERCENTILES.into_iter().filter_map(at).collect() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiment::store::{Mix, Store};
    use sidelane_report::{Percentile, Verdict};

    fn curve(points: &[(f64, f64)]) -> Vec<Percentile> {
        points.iter().map(|(percentile, us)| Percentile { percentile: *percentile, us: *us }).collect()
    }

    /// Returns the figures of a run of one store with this p99; 90 % of the requests take at most half of the p99.
    fn figures_with_p99(variant: GuardVariant, p99_us: f64, batch_work: f64) -> Figures {
        let curve = curve(&[(0.0, 1.0), (50.0, p99_us / 4.0), (90.0, p99_us / 2.0), (99.0, p99_us)]);
        let store = Latency { requests: 1000, mean_us: p99_us / 4.0, p99_us, curve, left_out_percent: None };
        let batch_work = variant.has_batch().then_some(batch_work);
        let agent_cpu_percent = variant.has_agent().then_some(1.0);
        Figures { stores: vec![store], batch_work, agent_cpu_percent, ..Figures::default() }
    }

    /// Calls `evaluate` on runs of one store; `runs` has the round, variant, p99 and batch work of each.
    fn with_group_samples<T>(runs: &[(u64, GuardVariant, f64, f64)], evaluate: impl Fn(GroupSamples<'_>) -> T) -> T {
        let group = Group { stores: vec![Store::Redis], mix: Mix { name: "a", records: 10 } };
        let mut samples = Samples::default();
        for (round, variant, p99_us, work) in runs {
            samples.add(*round, *variant, figures_with_p99(*variant, *p99_us, *work));
        }
        evaluate(GroupSamples { group: &group, samples: &samples })
    }

    #[test]
    fn p99s_are_compared_within_a_round_by_store() {
        let runs = [
            (0, GuardVariant::Alone, 100.0, 0.0),
            (1, GuardVariant::Alone, 200.0, 0.0),
            (1, GuardVariant::Holmes, 220.0, 0.5),
            (0, GuardVariant::Holmes, 120.0, 0.5),
            (2, GuardVariant::Holmes, 999.0, 0.5),
        ];
        let over = |store| {
            with_group_samples(&runs, |compared| compared.p99_ratios(store, GuardVariant::Holmes, GuardVariant::Alone))
        };
        assert_eq!(over(0), [1.1, 1.2]);
        assert_eq!(over(1), [0.0; 0], "there is no second store");
    }

    #[test]
    fn violations_count_against_the_p90_alone() {
        let runs = [(0, GuardVariant::Alone, 100.0, 0.0), (0, GuardVariant::Unmanaged, 200.0, 0.5)];
        let percent = |variant| with_group_samples(&runs, |compared| compared.violations_percent(0, variant));
        assert_eq!(percent(GuardVariant::Alone), [10.0]);
        assert_eq!(percent(GuardVariant::Unmanaged), [50.0]);
    }

    const GOOD: [(GuardVariant, f64, f64); 4] = [
        (GuardVariant::Unmanaged, 300.0, 1.0),
        (GuardVariant::PerfIso, 200.0, 0.4),
        (GuardVariant::Holmes, 105.0, 0.2),
        (GuardVariant::HolmesGate, 108.0, 0.6),
    ];

    /// Returns the verdicts of the checks on six rounds; `variants` has the p99 and the batch work of each variant.
    fn verdicts(variants: [(GuardVariant, f64, f64); 4]) -> Vec<Verdict> {
        let round = |round| {
            let alone = (round, GuardVariant::Alone, 100.0, 0.0);
            variants.map(|(variant, p99_us, work)| (round, variant, p99_us, work)).into_iter().chain([alone])
        };
        let runs: Vec<_> = (0..6).flat_map(round).collect();
        with_group_samples(&runs, checks_of_group).iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn variants_within_their_bounds_pass() {
        assert_eq!(verdicts(GOOD), [Verdict::Holds; 4]);
    }

    #[test]
    fn variant_over_its_bounds_is_missed() {
        let mut variants = GOOD;
        variants[2].1 = 150.0;
        variants[3].2 = 0.1;
        assert_eq!(verdicts(variants), [Verdict::Missed, Verdict::Holds, Verdict::Missed, Verdict::Holds]);
    }

    #[test]
    fn harmless_batch_leaves_only_checks_of_work_and_cpu() {
        let mut variants = GOOD;
        variants[0].1 = 120.0;
        assert_eq!(verdicts(variants), [Verdict::Holds; 2], "batch's work and the agent's CPU are left");
    }
}
