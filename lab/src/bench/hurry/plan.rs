//! The plan of the hurry bench: the measurements, their number and their length, so that the bench ends in time.

use std::path::PathBuf;
use std::time::Duration;

use super::variant::{MachineMeasures, Variant};
use crate::experiment::load::{LoadPattern, Shape};
use crate::experiment::sibling::SlowdownMechanism;
use sidelane_stats::rounds::{Limit, RoundOptions};

/// Capacity of all cores of the paper's machine, in big cores, and the mean time of a request on a big core, in
/// seconds: see `lab/scenarios/hurry-fig8.toml`.
const PAPER_CORES: f64 = 3.25;
const PAPER_MEAN_S: f64 = 0.07;

/// Load of Fig. 9 in Hurry-up's paper, at which measurements for a single load are made.
pub(super) const SWEEP_LOAD: Load = Load(20);

/// Utilisation of the used cores above which the request queue grows without bound.
const FULL: f64 = 0.95;

/// Speed of a little core, as a fraction of a big one: in the paper's Fig. 3 a little core has 3.2 times the tail
/// latency.
pub const LITTLE_SPEED: f64 = 0.31;

/// Options of `sidelane-lab bench hurry`.
#[derive(Clone, Debug)]
pub struct HurryOptions {
    /// Limit of rounds, and whether to measure less.
    pub round_options: RoundOptions,
    /// Cores from `--cores`: the big one and the little one.
    pub cores: String,
    /// Mechanism from `--slow-cpu` that makes the little core slow.
    pub slow_cpu: SlowdownMechanism,
    /// Speed of the little core from `--speed`, as a fraction of a big one.
    pub speed: f64,
    /// Wanted mean time of a search on the big core, from `--mean`; `None` for the default.
    pub mean: Option<Duration>,
    /// Folder that keeps the index between runs.
    pub cache: PathBuf,
}

/// Load in Fig. 8 of Hurry-up's paper, in requests per second on the paper's machine. The bench applies it as the same
/// share of the capacity of all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Load(pub(super) u32);

impl Load {
    /// Returns the loads of Fig. 8, with `quick` three of them.
    pub(super) fn all(quick: bool) -> &'static [Self] {
        if quick { &[Self(10), SWEEP_LOAD, Self(30)] } else { &[Self(5), Self(10), SWEEP_LOAD, Self(30), Self(40)] }
    }

    /// Returns the load as a share of the capacity of all cores, in percent.
    pub(super) fn percent(self) -> f64 {
        100.0 * f64::from(self.0) * PAPER_MEAN_S / PAPER_CORES
    }

    /// Returns the rate that is this load on one big and one little core.
    pub(super) fn rate_per_s(self, measures: MachineMeasures) -> f64 {
        self.percent() / 100.0 * (1.0 + measures.speed) * 1e6 / measures.mean_us
    }
}

/// Plan of the whole hurry bench.
pub(super) struct Plan {
    pub(super) quick: bool,
    pub(super) limit: Limit,
    /// Wanted mean time of a search on the big core. The paper's searches take longer, but a run needs enough of them.
    pub(super) mean: Duration,
    pub(super) run: Duration,
    pub(super) warm_up: Duration,
    /// Whether Hurry-up learns its threshold at each load; else all loads use the threshold learnt at the load of the
    /// paper's Fig. 9.
    pub(super) learns_everywhere: bool,
    /// Limit on pairs with and without a mapper.
    pub(super) cost: Limit,
}

impl Plan {
    pub(super) fn from_options(options: &HurryOptions) -> Self {
        let (ms, s, quick) = (Duration::from_millis, Duration::from_secs, options.round_options.quick);
        let limit = |quick, full| options.round_options.limit(quick, full);
        let usual = if quick { ms(4) } else { ms(12) };
        let mean = options.mean.unwrap_or(usual);
        // Scales the length of runs with the mean time of a search, so that each run has the same number of searches.
        let longer = |time: Duration| time.mul_f64(mean.div_duration_f64(usual));
        let rounds = Limit { first: 6, rounds: 6, time: longer(s(32)) };
        let pairs = Limit { first: 6, rounds: 12, time: s(5) };
        Self {
            quick,
            limit: limit(rounds, Limit { first: 6, rounds: 24, time: longer(s(2_400)) }),
            mean,
            run: longer(if quick { ms(400) } else { s(5) }),
            warm_up: longer(if quick { ms(60) } else { ms(500) }),
            learns_everywhere: !quick,
            cost: limit(pairs, Limit { first: 12, rounds: 96, time: s(120) }),
        }
    }

    /// Returns the variants of a round with their loads. Each round begins with another variant.
    pub(super) fn turns(&self, round: u64, little_core_speed: f64) -> Vec<(Variant, Vec<Load>)> {
        let everywhere = Variant::all(self.quick).into_iter().map(|variant| (variant, Load::all(self.quick)));
        let at_one = Variant::threshold_sweep(self.quick).into_iter().map(|variant| (variant, &[SWEEP_LOAD][..]));
        let possible = |(variant, loads): (Variant, &[Load])| {
            let has_room = |load: &&Load| {
                load.percent() / 100.0 * (1.0 + little_core_speed) < FULL * variant.capacity(little_core_speed)
            };
            Some((variant, loads.iter().filter(has_room).copied().collect()))
                .filter(|(_, loads): &(_, Vec<_>)| !loads.is_empty())
        };
        let mut turns: Vec<_> = everywhere.chain(at_one).filter_map(possible).collect();
        let first = round as usize % turns.len();
        turns.rotate_left(first);
        turns
    }

    /// Returns the requests of a run, which are the same for all variants of a round.
    pub(super) fn load_pattern(&self, load: Load, measures: MachineMeasures, round: u64) -> LoadPattern {
        LoadPattern {
            rate_per_s: load.rate_per_s(measures),
            run: self.run,
            warm_up: self.warm_up,
            seed: round + 1,
            shape: Shape::Steady,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(quick: bool) -> Plan {
        plan_with_mean(quick, None)
    }

    fn plan_with_mean(quick: bool, mean: Option<Duration>) -> Plan {
        let round_options = RoundOptions { quick, rounds: None };
        let (cores, slow_cpu, cache) = ("0:1".to_owned(), SlowdownMechanism::BuiltIn, "cache".into());
        Plan::from_options(&HurryOptions { round_options, cores, slow_cpu, speed: 0.31, mean, cache })
    }

    #[test]
    fn runs_have_equal_search_counts_at_any_mean_time() {
        for quick in [true, false] {
            let (usual, paper) = (plan(quick), plan_with_mean(quick, Some(Duration::from_millis(70))));
            let searches = |plan: &Plan| {
                let measures = MachineMeasures { mean_us: plan.mean.as_secs_f64() * 1e6, speed: 0.31 };
                SWEEP_LOAD.rate_per_s(measures) * plan.run.as_secs_f64()
            };
            assert!((searches(&usual) - searches(&paper)).abs() < 1e-3);
            assert!(paper.limit.time > usual.limit.time && paper.warm_up > usual.warm_up);
        }
    }

    #[test]
    fn highest_load_is_86_percent_and_rate_scales_with_cores() {
        assert_eq!(Load(40).percent().round(), 86.0);
        let as_in_the_paper = MachineMeasures { mean_us: 70e3, speed: 0.625 };
        assert!((Load(40).rate_per_s(as_in_the_paper) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn every_round_has_all_variants_and_each_is_first_in_turn() {
        for quick in [true, false] {
            let plan = plan(quick);
            let count = plan.turns(0, 0.31).len() as u64;
            let first: Vec<Variant> = (0..count).map(|round| plan.turns(round, 0.31)[0].0).collect();
            for round in 0..count {
                let turns = plan.turns(round, 0.31);
                assert!(first.iter().all(|variant| turns.iter().filter(|(other, _)| other == variant).count() == 1));
            }
            assert!(Load::all(quick).len() >= 3 && Load::all(quick).contains(&SWEEP_LOAD));
        }
    }

    #[test]
    fn no_variant_gets_more_load_than_its_cores_can_serve() {
        let turns = plan(false).turns(0, 0.31);
        let loads =
            |variant| turns.iter().find(|(other, _)| *other == variant).map(|(_, loads)| loads.clone()).unwrap();
        assert_eq!(loads(Variant::Static), Load::all(false));
        assert_eq!(loads(Variant::AllBig), Load::all(false)[..4]);
        assert_eq!(loads(Variant::AllLittle), Load::all(false)[..2]);
        let slow = plan(false).turns(0, 0.1);
        assert!(slow.iter().all(|(variant, loads)| *variant != Variant::AllLittle && !loads.is_empty()));
    }
}
