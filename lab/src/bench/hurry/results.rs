//! The results of the hurry bench: figures of each variant and load, the checks, the rows and the pictures.

use std::collections::{BTreeMap, BTreeSet};

use super::cost::RequestTimes;
use super::plan::{Load, SWEEP_LOAD};
use super::variant::{MachineMeasures, Variant};
use crate::experiment::comparison;
use crate::experiment::load::{Latencies, percent_above_limit};
use sidelane_report::chart::{Limit, Line, Multiples, Panel, ScaleKind};
use sidelane_report::{Check, Interval, Row, Unit};
use sidelane_requests::at_socket::latency_at_percentile_us;
use sidelane_stats::interval::median_interval;
use sidelane_stats::ranks::median;

const MEDIAN_OVER_STATIC: f64 = 0.75;
const ANY_OVER_STATIC: f64 = 1.05;
const LEARNT_OVER_BEST: f64 = 1.05;
const OWN_PERCENT: f64 = 1.0;
const REQUEST_US: f64 = 1.0;
/// Percentiles that the chart like Hurry-up's Figure 6 shows.
const PERCENTILES: [f64; 8] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0];

/// Runs under one mapper, and the mapper's figures. A round may have several mappers of a variant, at different loads.
#[derive(Clone, Debug)]
pub(super) struct MapperTurn {
    pub(super) runs: Vec<Run>,
    pub(super) mapper: MapperFigures,
}

/// Figures of a run at one load.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) load: Load,
    /// Latencies that the client measured.
    pub(super) seen: Latencies,
    /// Energy that all CPUs used during the run, in joules; `None` if it is not measured.
    pub(super) joules: Option<f64>,
}

/// Report of the mapper at the end of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MapperFigures {
    /// CPU time of the mapper, in percent of one CPU.
    pub(super) own_percent: Option<f64>,
    /// Share of the answered requests that moved to the big core, in percent.
    pub(super) moved_percent: Option<f64>,
    pub(super) threshold_us: Option<f64>,
}

impl MapperTurn {
    fn run_at(&self, load: Load) -> Option<&Run> {
        self.runs.iter().find(|run| run.load == load)
    }
}

pub(super) type Samples = comparison::Samples<Variant, MapperTurn>;
type Sample = comparison::Sample<Variant, MapperTurn>;

/// Samples of the bench, selected by variant and load.
#[derive(Clone, Copy)]
pub(super) struct HurrySamples<'a>(pub(super) &'a Samples);

impl<'a> HurrySamples<'a> {
    /// Returns the turns of a variant.
    pub(super) fn turns_of(self, variant: Variant) -> impl Iterator<Item = &'a MapperTurn> {
        self.0.of_variant(variant).map(|sample| &sample.figures)
    }

    /// Returns the runs of a variant at a load.
    pub(super) fn runs_at(self, variant: Variant, load: Load) -> impl Iterator<Item = &'a Run> {
        self.0.of_variant(variant).filter_map(move |turn| turn.figures.run_at(load))
    }

    /// Returns the loads at which a variant was measured, the lowest first.
    pub(super) fn loads_of(self, variant: Variant) -> BTreeSet<Load> {
        self.0.of_variant(variant).flat_map(|turn| turn.figures.runs.iter().map(|run| run.load)).collect()
    }

    /// Returns the variants that were measured.
    pub(super) fn variants(self) -> BTreeSet<Variant> {
        self.0.0.iter().map(|turn| turn.variant).collect()
    }

    /// Returns the CPU time of a variant's mappers, in percent of one CPU: for each round the maximum over the
    /// variant's mappers.
    pub(super) fn mapper_cpu_percent(self, variant: Variant) -> Vec<f64> {
        let mut rounds = BTreeMap::new();
        for (round, percent) in
            self.0.of_variant(variant).filter_map(|turn| Some((turn.round, turn.figures.mapper.own_percent?)))
        {
            rounds.entry(round).and_modify(|most: &mut f64| *most = most.max(percent)).or_insert(percent);
        }
        rounds.into_values().collect()
    }

    /// Returns the median of a figure over the rounds.
    pub(super) fn median(
        self,
        variant: Variant,
        load: Load,
        figure: impl Fn(&Latencies) -> Option<f64>,
    ) -> Option<f64> {
        median(self.runs_at(variant, load).filter_map(|run| figure(&run.seen)))
    }

    /// Returns the p90 of `variant` divided by the p90 of `baseline` in the same round, with the round's number.
    pub(super) fn p90_ratios(self, variant: Variant, baseline: Variant, load: Load) -> Vec<(u64, f64)> {
        self.compare_rounds(variant, baseline, load, |one, other| Some(one.seen.p90_us / other.seen.p90_us))
    }

    /// Returns the median share of requests that took longer than the p90 of the static mapping in the same round, in
    /// percent. For the static mapping itself the share is 10 %.
    pub(super) fn beyond_static_p90_percent(self, variant: Variant, load: Load) -> Option<f64> {
        let beyond = |one: &Run, other: &Run| percent_above_limit(&one.seen.curve, other.seen.p90_us);
        median(self.compare_rounds(variant, Variant::Static, load, beyond).into_iter().map(|(_, percent)| percent))
    }

    /// Returns the energy of a run divided by the energy under the static mapping in the same round, as the median over
    /// rounds.
    pub(super) fn median_energy_over_static(self, variant: Variant, load: Load) -> Option<f64> {
        let over = |one: &Run, other: &Run| Some(one.joules? / other.joules?);
        median(self.compare_rounds(variant, Variant::Static, load, over).into_iter().map(|(_, over)| over))
    }

    fn compare_rounds(
        self,
        variant: Variant,
        baseline: Variant,
        load: Load,
        figure: impl Fn(&Run, &Run) -> Option<f64>,
    ) -> Vec<(u64, f64)> {
        let pair = |turn: &Sample| {
            let other = self.0.of_variant(baseline).filter(|other| other.round == turn.round);
            let other = other.filter_map(|other| other.figures.run_at(load)).next()?;
            let value = figure(turn.figures.run_at(load)?, other).filter(|value| value.is_finite())?;
            Some((turn.round, value))
        };
        self.0.of_variant(variant).filter_map(pair).collect()
    }
}

/// Returns the checks on the figures of clients and mappers.
pub(super) fn checks(compared: HurrySamples<'_>) -> Vec<Check> {
    let loads = compared.loads_of(Variant::Hurry);
    let mut checks = vec![Check::interval_at_most(
        "p90 over static, median of the loads",
        median_interval(median_p90_over_static(compared, &loads)),
        MEDIAN_OVER_STATIC,
        Unit::Ratio,
    )];
    checks.extend(loads.into_iter().map(|load| {
        let title = format!("p90 over static at {:.0} % load", load.percent());
        Check::interval_at_most(title, hurry_p90_ratio(compared, Variant::Static, load), ANY_OVER_STATIC, Unit::Ratio)
    }));
    checks.push(Check::interval_at_most(
        "p90 with the learnt threshold over the best of the sweep",
        best_given_threshold(compared).and_then(|best| hurry_p90_ratio(compared, best, SWEEP_LOAD)),
        LEARNT_OVER_BEST,
        Unit::Ratio,
    ));
    let own = median_interval(compared.mapper_cpu_percent(Variant::Hurry));
    checks.push(Check::interval_at_most("own CPU, at the load where it is highest", own, OWN_PERCENT, Unit::Percent));
    checks
}

/// Returns the check on the mapper's cost to the service, from the differences of pairs.
pub(super) fn check_of_cost(added_us: &[f64]) -> Check {
    let added = median_interval(added_us.iter().copied());
    Check::interval_at_most("CPU for a request, added", added, REQUEST_US, Unit::Us)
}

/// Returns the ratio of the p90 under Hurry-up to the p90 under the static mapping: for each round the median over the
/// loads.
fn median_p90_over_static(compared: HurrySamples<'_>, loads: &BTreeSet<Load>) -> Vec<f64> {
    let mut rounds: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for load in loads {
        for (round, ratio) in compared.p90_ratios(Variant::Hurry, Variant::Static, *load) {
            rounds.entry(round).or_default().push(ratio);
        }
    }
    rounds.into_values().filter(|ratios| ratios.len() == loads.len()).filter_map(median).collect()
}

fn hurry_p90_ratio(compared: HurrySamples<'_>, baseline: Variant, load: Load) -> Option<Interval> {
    median_interval(compared.p90_ratios(Variant::Hurry, baseline, load).into_iter().map(|(_, ratio)| ratio))
}

/// Returns the variant whose threshold is given, not learnt, and whose p90 is the lowest of those.
pub(super) fn best_given_threshold(compared: HurrySamples<'_>) -> Option<Variant> {
    let given = compared.variants().into_iter().filter(|variant| matches!(variant, Variant::Given(_)));
    let with_p90 =
        given.filter_map(|variant| Some((variant, compared.median(variant, SWEEP_LOAD, |seen| Some(seen.p90_us))?)));
    with_p90.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(variant, _)| variant)
}

/// Returns all rows; the last one is the mapper's cost to the service.
pub(super) fn rows(compared: HurrySamples<'_>, cost: &RequestTimes, measures: MachineMeasures) -> Vec<Row> {
    let of_way = |variant: Variant| {
        let loads = compared.loads_of(variant).into_iter().map(move |load| row(compared, variant, load, measures));
        loads.chain(row_of_all_loads(compared, variant))
    };
    compared.variants().into_iter().flat_map(of_way).chain([cost.row()]).collect()
}

/// Returns one row, such as `hurry_up/43%`: medians over the rounds. Ratios are computed within a round first.
fn row(compared: HurrySamples<'_>, variant: Variant, load: Load, measures: MachineMeasures) -> Row {
    let latency = |figure: fn(&Latencies) -> f64| compared.median(variant, load, |seen| Some(figure(seen)));
    let turns: Vec<&MapperTurn> = compared.turns_of(variant).filter(|turn| turn.run_at(load).is_some()).collect();
    let mut row = Row::new(format!("{}/{:.0}%", variant.name(), load.percent()));
    row.put("rate_per_s", load.rate_per_s(measures));
    row.put("p50_us", latency(|seen| seen.p50_us));
    row.put("p90_us", latency(|seen| seen.p90_us));
    row.put("p99_us", latency(|seen| seen.p99_us));
    row.put(
        "p90_over_static_ratio",
        median(compared.p90_ratios(variant, Variant::Static, load).into_iter().map(|(_, over)| over)),
    );
    row.put("beyond_static_p90_percent", compared.beyond_static_p90_percent(variant, load));
    row.put("energy_over_static_ratio", compared.median_energy_over_static(variant, load));
    row.put("threshold_us", median_mapper_figure(&turns, |told| told.threshold_us));
    if turns.iter().all(|turn| turn.runs.len() == 1) {
        put_mapper_figures(&mut row, &turns);
    }
    row.put("requests_count", compared.runs_at(variant, load).map(|run| run.seen.requests as f64).sum::<f64>());
    row.put("rounds_count", turns.len() as f64);
    row
}

/// Returns a row such as `paper/all`; `None` unless one mapper ran at several loads.
fn row_of_all_loads(compared: HurrySamples<'_>, variant: Variant) -> Option<Row> {
    let turns: Vec<&MapperTurn> = compared.turns_of(variant).filter(|turn| turn.runs.len() > 1).collect();
    let mut row = Row::new(format!("{}/all", variant.name()));
    put_mapper_figures(&mut row, &turns);
    row.put("rounds_count", turns.len() as f64);
    (!turns.is_empty()).then_some(row)
}

fn put_mapper_figures(row: &mut Row, turns: &[&MapperTurn]) {
    row.put("moved_percent", median_mapper_figure(turns, |told| told.moved_percent));
    row.put("own_cpu_percent", median_mapper_figure(turns, |told| told.own_percent));
}

fn median_mapper_figure(turns: &[&MapperTurn], figure: impl Fn(&MapperFigures) -> Option<f64>) -> Option<f64> {
    median(turns.iter().filter_map(|turn| figure(&turn.mapper)))
}

/// Returns the latency charts for the HTML page; none if nothing was measured.
pub(super) fn latency_charts(compared: HurrySamples<'_>, measures: MachineMeasures) -> Vec<Multiples> {
    if compared.0.0.is_empty() {
        return Vec::new();
    }
    vec![tail_latency_chart(compared), latency_percentile_chart(compared), threshold_chart(compared, measures)]
}

/// Returns the picture of the paper's Figure 8: tail latency by load.
fn tail_latency_chart(compared: HurrySamples<'_>) -> Multiples {
    let p90_us = |seen: &Latencies| Some(seen.p90_us);
    let line = |variant: Variant| {
        let at = |load: Load| Some((load.percent(), compared.median(variant, load, p90_us)?));
        Line { setting: variant.title(), points: compared.loads_of(variant).into_iter().filter_map(at).collect() }
    };
    Multiples {
        title: "Tail latency by load".to_owned(),
        caption:
            "p90, on a logarithmic axis; lower is better. Medians over the rounds. As Hurry-up's Figure 8; the load \
                  is a share of what both cores can do."
                .to_owned(),
        across: "load".to_owned(),
        across_unit: Unit::Percent,
        panels: vec![panel(
            "p90",
            compared.variants().into_iter().map(line).filter(|line| line.points.len() > 1).collect(),
        )],
        columns: 1,
    }
}

/// Returns the picture of the paper's Figure 6: latency by percentile.
fn latency_percentile_chart(compared: HurrySamples<'_>) -> Multiples {
    let variants = || compared.variants().into_iter().filter(|variant| !matches!(variant, Variant::Given(_)));
    let line = |variant: Variant, load: Load| {
        let at = |percentile: f64| {
            Some((
                percentile,
                compared.median(variant, load, |seen| latency_at_percentile_us(&seen.curve, percentile))?,
            ))
        };
        Line { setting: variant.title(), points: PERCENTILES.into_iter().filter_map(at).collect() }
    };
    let of_load = |load: Load| {
        let lines = variants().map(|variant| line(variant, load)).filter(|line| !line.points.is_empty());
        panel(&format!("{:.0} % load", load.percent()), lines.collect())
    };
    Multiples {
        title: "Latency of the searches".to_owned(),
        caption:
            "By percentile, on a logarithmic axis; lower is better. Medians over the rounds. As Hurry-up's Figure 6."
                .to_owned(),
        across: "percentile".to_owned(),
        across_unit: Unit::Percent,
        panels: compared.loads_of(Variant::Static).into_iter().map(of_load).collect(),
        columns: 2,
    }
}

/// Returns the picture of the paper's Figure 9: tail latency by threshold, at one load.
fn threshold_chart(compared: HurrySamples<'_>, measures: MachineMeasures) -> Multiples {
    let p90_us = |variant: Variant| compared.median(variant, SWEEP_LOAD, |seen| Some(seen.p90_us));
    let given = compared.variants().into_iter().filter_map(|variant| match variant {
        Variant::Given(ms) => Some((measures.scaled_ns(ms) as f64 / 1e6, p90_us(variant)?)),
        _ => None,
    });
    let learnt = p90_us(Variant::Hurry).map(|value| Limit { name: "learnt".to_owned(), value });
    let line = Line { setting: "given threshold".to_owned(), points: given.collect() };
    Multiples {
        title: format!("Tail latency by threshold, at {:.0} % load", SWEEP_LOAD.percent()),
        caption: "p90 with given thresholds, and with the learnt one; lower is better. Medians over the rounds. As \
                  Hurry-up's Figure 9."
            .to_owned(),
        across: "threshold".to_owned(),
        across_unit: Unit::Ms,
        panels: vec![Panel { scale: ScaleKind::Linear, limit: learnt, ..panel("p90", vec![line]) }],
        columns: 1,
    }
}

fn panel(title: &str, lines: Vec<Line>) -> Panel {
    Panel { title: title.to_owned(), unit: Unit::Us, scale: ScaleKind::Log, up_to: None, limit: None, lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidelane_report::{Percentile, Verdict};

    const LOADS: [Load; 3] = [Load(10), SWEEP_LOAD, Load(30)];

    fn turn_with_p90s(runs: &[(Load, f64)]) -> MapperTurn {
        let seen = |p90_us: f64| {
            let curve = [(0.0, 0.0), (90.0, p90_us), (100.0, 2.0 * p90_us)];
            let curve = curve.map(|(percentile, us)| Percentile { percentile, us }).to_vec();
            Latencies { p90_us, curve, ..Latencies::default() }
        };
        let run = |(load, p90_us): &(Load, f64)| Run { load: *load, seen: seen(*p90_us), joules: Some(*p90_us) };
        let mapper = MapperFigures { own_percent: Some(0.5), ..MapperFigures::default() };
        MapperTurn { runs: runs.iter().map(run).collect(), mapper }
    }

    /// Turn of a test: the round, the variant, and the p90 of each load in µs.
    type Turn<'a> = (u64, Variant, &'a [(Load, f64)]);

    fn samples(turns: &[Turn<'_>]) -> Samples {
        let mut samples = Samples::default();
        turns.iter().for_each(|(round, variant, runs)| samples.add(*round, *variant, turn_with_p90s(runs)));
        samples
    }

    #[test]
    fn pairs_are_of_the_same_round_and_load() {
        let (one, two) = (Load(10), Load(20));
        let samples = samples(&[
            (0, Variant::Static, &[(one, 100.0), (two, 200.0)]),
            (1, Variant::Hurry, &[(one, 60.0), (two, 180.0)]),
            (1, Variant::Static, &[(one, 120.0), (two, 200.0)]),
            (0, Variant::Hurry, &[(one, 70.0)]),
        ]);
        let compared = HurrySamples(&samples);
        assert_eq!(compared.p90_ratios(Variant::Hurry, Variant::Static, one), [(1, 0.5), (0, 0.7)]);
        assert_eq!(compared.p90_ratios(Variant::Hurry, Variant::Static, two), [(1, 0.9)]);
        assert_eq!(compared.median(Variant::Static, one, |seen| Some(seen.p90_us)), Some(110.0));
        assert_eq!(compared.variants().into_iter().collect::<Vec<_>>(), [Variant::Static, Variant::Hurry]);
        assert_eq!(compared.loads_of(Variant::Hurry).into_iter().collect::<Vec<_>>(), [one, two]);
    }

    #[test]
    fn costliest_mapper_of_a_round_counts() {
        let mut samples = samples(&[(0, Variant::Hurry, &[]), (0, Variant::Hurry, &[]), (1, Variant::Hurry, &[])]);
        samples.0[1].figures.mapper.own_percent = Some(2.0);
        assert_eq!(HurrySamples(&samples).mapper_cpu_percent(Variant::Hurry), [2.0, 0.5]);
    }

    #[test]
    fn tenth_of_static_requests_is_beyond_its_own_p90() {
        let load = Load(10);
        let samples = samples(&[(0, Variant::Static, &[(load, 100.0)]), (0, Variant::Hurry, &[(load, 50.0)])]);
        let compared = HurrySamples(&samples);
        assert_eq!(compared.beyond_static_p90_percent(Variant::Static, load), Some(10.0));
        assert_eq!(compared.beyond_static_p90_percent(Variant::Hurry, load), Some(0.0));
        assert_eq!(compared.median_energy_over_static(Variant::Hurry, load), Some(0.5));
    }

    /// Returns the verdicts of the checks on six rounds with these p90s under Hurry-up. The p90 is 100 µs under the
    /// static mapping at each load, and 60 and 80 µs under two given thresholds.
    fn verdicts(hurry_p90s_us: [f64; 3]) -> Vec<Verdict> {
        let runs = |us: [f64; 3]| LOADS.into_iter().zip(us).collect::<Vec<_>>();
        let (alike, hurry) = (runs([100.0; 3]), runs(hurry_p90s_us));
        let mut samples = Samples::default();
        for round in 0..6 {
            samples.add(round, Variant::Static, turn_with_p90s(&alike));
            samples.add(round, Variant::Hurry, turn_with_p90s(&hurry));
            samples.add(round, Variant::Given(25), turn_with_p90s(&[(SWEEP_LOAD, 60.0)]));
            samples.add(round, Variant::Given(50), turn_with_p90s(&[(SWEEP_LOAD, 80.0)]));
        }
        checks(HurrySamples(&samples)).iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn checks_hold_or_miss_by_their_bounds() {
        let (holds, missed) = (Verdict::Holds, Verdict::Missed);
        assert_eq!(verdicts([50.0, 60.0, 90.0]), [holds; 6]);
        assert_eq!(verdicts([50.0, 80.0, 90.0]), [missed, holds, holds, holds, missed, holds]);
        assert_eq!(verdicts([50.0, 60.0, 110.0]), [holds, holds, holds, missed, holds, holds]);
    }

    #[test]
    fn unmeasured_checks_do_not_hold() {
        assert!(checks(HurrySamples(&Samples::default())).iter().all(|check| check.verdict != Verdict::Holds));
        assert_eq!(check_of_cost(&[]).verdict, checks(HurrySamples(&Samples::default()))[0].verdict);
    }

    #[test]
    fn cost_check_allows_a_microsecond_per_request() {
        assert_eq!(
            (check_of_cost(&[0.8; 6]).verdict, check_of_cost(&[1.2; 6]).verdict),
            (Verdict::Holds, Verdict::Missed)
        );
    }

    #[test]
    fn mapper_of_several_loads_is_reported_once() {
        let (one, two) = (Load(10), Load(20));
        let samples = samples(&[(0, Variant::Paper, &[(one, 9.0), (two, 9.0)]), (0, Variant::Hurry, &[(one, 9.0)])]);
        let cost = RequestTimes { without_us: vec![40.0], added_us: vec![1.0] };
        let rows = rows(HurrySamples(&samples), &cost, MachineMeasures { mean_us: 4_000.0, speed: 0.31 });
        let told: Vec<_> = rows.iter().map(|row| (row.setting(), row.get("own_cpu_percent").is_some())).collect();
        let expected =
            [("paper/22%", false), ("paper/43%", false), ("paper/all", true), ("hurry_up/22%", true), ("cost", false)];
        assert_eq!(told, expected);
    }
}
