//! What was measured: figures of each run, medians over the rounds, and ratios within rounds.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::Load;
use super::way::Way;
use crate::experiment::load::{Latencies, above_percent};
use sidelane_host::median::median;

/// One way in one round: a mapper that was started once, and the loads that it saw. A round may have several turns of a
/// way, at other loads.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) round: u64,
    pub(super) way: Way,
    pub(super) runs: Vec<Run>,
    pub(super) mapper: MapperFigures,
}

/// One load.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) load: Load,
    /// What the client saw.
    pub(super) seen: Latencies,
    /// What all CPUs used meanwhile, where that is measured.
    pub(super) joules: Option<f64>,
}

/// What the mapper told at the end of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MapperFigures {
    /// What it took of one CPU.
    pub(super) own_percent: Option<f64>,
    /// Requests that moved to the big core, of those that were answered.
    pub(super) moved_percent: Option<f64>,
    pub(super) threshold_us: Option<f64>,
}

/// All turns.
#[derive(Default)]
pub(super) struct Cells {
    pub(super) turns: Vec<Turn>,
}

impl Turn {
    pub(super) fn at(&self, load: Load) -> Option<&Run> {
        self.runs.iter().find(|run| run.load == load)
    }
}

impl Cells {
    /// The turns of a way.
    pub(super) fn of(&self, way: Way) -> impl Iterator<Item = &Turn> {
        self.turns.iter().filter(move |turn| turn.way == way)
    }

    /// The runs of a way at a load.
    pub(super) fn at(&self, way: Way, load: Load) -> impl Iterator<Item = &Run> {
        self.of(way).filter_map(move |turn| turn.at(load))
    }

    /// The loads that a way was measured at, the lowest first.
    pub(super) fn loads(&self, way: Way) -> BTreeSet<Load> {
        self.of(way).flat_map(|turn| turn.runs.iter().map(|run| run.load)).collect()
    }

    /// The ways that were measured.
    pub(super) fn ways(&self) -> BTreeSet<Way> {
        self.turns.iter().map(|turn| turn.way).collect()
    }

    /// What a way's mappers took of one CPU, by round that of the one that took most.
    pub(super) fn own_percent(&self, way: Way) -> Vec<f64> {
        let mut rounds = BTreeMap::new();
        for (round, percent) in self.of(way).filter_map(|turn| Some((turn.round, turn.mapper.own_percent?))) {
            rounds.entry(round).and_modify(|most: &mut f64| *most = most.max(percent)).or_insert(percent);
        }
        rounds.into_values().collect()
    }

    /// The median of a figure over the rounds.
    pub(super) fn median(&self, way: Way, load: Load, figure: impl Fn(&Latencies) -> Option<f64>) -> Option<f64> {
        median(self.at(way, load).filter_map(|run| figure(&run.seen)))
    }

    /// p90 over that of `other` in the same round, by round.
    pub(super) fn p90_over(&self, way: Way, other: Way, load: Load) -> Vec<(u64, f64)> {
        self.pairs(way, other, load, |one, other| Some(one.seen.p90_us / other.seen.p90_us))
    }

    /// The share of requests that took longer than the p90 of the static mapping in the same round, in percent: 10 for
    /// itself.
    pub(super) fn beyond_percent(&self, way: Way, load: Load) -> Option<f64> {
        let beyond = |one: &Run, other: &Run| above_percent(&one.seen.curve, other.seen.p90_us);
        median(self.pairs(way, Way::Static, load, beyond).into_iter().map(|(_, percent)| percent))
    }

    /// The energy of a run over that of the static mapping in the same round.
    pub(super) fn energy_over_static(&self, way: Way, load: Load) -> Option<f64> {
        let over = |one: &Run, other: &Run| Some(one.joules? / other.joules?);
        median(self.pairs(way, Way::Static, load, over).into_iter().map(|(_, over)| over))
    }

    fn pairs(&self, way: Way, other: Way, load: Load, figure: impl Fn(&Run, &Run) -> Option<f64>) -> Vec<(u64, f64)> {
        let pair = |turn: &Turn| {
            let other = self.of(other).filter(|other| other.round == turn.round).find_map(|other| other.at(load))?;
            let value = figure(turn.at(load)?, other).filter(|value| value.is_finite())?;
            Some((turn.round, value))
        };
        self.of(way).filter_map(pair).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use sidelane_report::Percentile;

    pub(in crate::bench::hurry) fn turn(round: u64, way: Way, runs: &[(Load, f64)]) -> Turn {
        let seen = |p90_us: f64| {
            let curve = [(0.0, 0.0), (90.0, p90_us), (100.0, 2.0 * p90_us)];
            let curve = curve.map(|(percentile, us)| Percentile { percentile, us }).to_vec();
            Latencies { p90_us, curve, ..Latencies::default() }
        };
        let run = |(load, p90_us): &(Load, f64)| Run { load: *load, seen: seen(*p90_us), joules: Some(*p90_us) };
        let runs = runs.iter().map(run).collect();
        let mapper = MapperFigures { own_percent: Some(0.5), ..MapperFigures::default() };
        Turn { round, way, runs, mapper }
    }

    #[test]
    fn pairs_are_of_the_same_round_and_load() {
        let (one, two) = (Load(10), Load(20));
        let cells = Cells {
            turns: vec![
                turn(0, Way::Static, &[(one, 100.0), (two, 200.0)]),
                turn(1, Way::Hurry, &[(one, 60.0), (two, 180.0)]),
                turn(1, Way::Static, &[(one, 120.0), (two, 200.0)]),
                turn(0, Way::Hurry, &[(one, 70.0)]),
            ],
        };
        assert_eq!(cells.p90_over(Way::Hurry, Way::Static, one), [(1, 0.5), (0, 0.7)]);
        assert_eq!(cells.p90_over(Way::Hurry, Way::Static, two), [(1, 0.9)]);
        assert_eq!(cells.median(Way::Static, one, |seen| Some(seen.p90_us)), Some(110.0));
        assert_eq!(cells.ways().into_iter().collect::<Vec<_>>(), [Way::Static, Way::Hurry]);
        assert_eq!(cells.loads(Way::Hurry).into_iter().collect::<Vec<_>>(), [one, two]);
    }

    #[test]
    fn of_a_rounds_mappers_the_one_counts_that_took_most() {
        let mut cells =
            Cells { turns: vec![turn(0, Way::Hurry, &[]), turn(0, Way::Hurry, &[]), turn(1, Way::Hurry, &[])] };
        cells.turns[1].mapper.own_percent = Some(2.0);
        assert_eq!(cells.own_percent(Way::Hurry), [2.0, 0.5]);
    }

    #[test]
    fn a_tenth_of_the_static_mappings_requests_is_beyond_its_own_p90() {
        let load = Load(10);
        let turns = vec![turn(0, Way::Static, &[(load, 100.0)]), turn(0, Way::Hurry, &[(load, 50.0)])];
        let cells = Cells { turns };
        assert_eq!(cells.beyond_percent(Way::Static, load), Some(10.0));
        assert_eq!(cells.beyond_percent(Way::Hurry, load), Some(0.0));
        assert_eq!(cells.energy_over_static(Way::Hurry, load), Some(0.5));
    }
}
