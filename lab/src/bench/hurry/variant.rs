//! The compared ways of mapping threads to cores.

use sidelane_policy::hurryup::{Config, Learning, Mapping, Options, ScanTimes, Threshold};

/// Mean time of a request on a big core in Hurry-up's paper, by which the paper's times are scaled: see
/// `lab/scenarios/hurry-fig8.toml`.
const PAPER_MEAN_MS: f64 = 70.0;
/// Thresholds of the paper's Fig. 9 and lower ones, in milliseconds on the paper's machine.
const THRESHOLDS_MS: [u64; 6] = [0, 25, 50, 100, 200, 300];
const THRESHOLDS_QUICK_MS: [u64; 2] = [25, 100];

/// Way of mapping threads to cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variant {
    /// Threads stay where they are: the paper's "Linux mapping".
    Static,
    /// Algorithm 1 of Hurry-up's paper as printed, with the paper's times.
    Paper,
    /// Hurry-up with its default configuration, which learns the threshold.
    Hurry,
    /// Hurry-up with a given threshold, in milliseconds on the paper's machine.
    Given(u64),
    /// The kernel alone places the threads.
    Kernel,
    /// All threads are on the big core.
    AllBig,
    /// All threads are on the little core.
    AllLittle,
}

/// Measures of the machine by which times of the paper are scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MachineMeasures {
    /// Mean time of a request on a big core, in microseconds.
    pub(super) mean_us: f64,
    /// Speed of a little core, as a fraction of a big one.
    pub(super) speed: f64,
}

impl MachineMeasures {
    /// Scales one of the paper's times to the requests of this machine.
    pub(super) fn scaled_ns(self, paper_ms: u64) -> u64 {
        (paper_ms as f64 / PAPER_MEAN_MS * self.mean_us * 1e3).round() as u64
    }
}

impl Variant {
    /// Returns the variants that are compared at each load.
    pub(super) fn all(quick: bool) -> Vec<Self> {
        let first = [Self::Static, Self::Hurry];
        let more = [Self::Paper, Self::Kernel, Self::AllBig, Self::AllLittle];
        first.into_iter().chain(more.into_iter().filter(|_| !quick)).collect()
    }

    /// Returns the variants that are compared at one load only: the thresholds of Fig. 9, and with `quick` the paper's
    /// algorithm.
    pub(super) fn threshold_sweep(quick: bool) -> Vec<Self> {
        let thresholds: &[u64] = if quick { &THRESHOLDS_QUICK_MS } else { &THRESHOLDS_MS };
        let paper = quick.then_some(Self::Paper);
        thresholds.iter().copied().map(Self::Given).chain(paper).collect()
    }

    /// Returns the capacity of the cores that the variant uses, in big cores.
    pub(super) fn capacity(self, little_core_speed: f64) -> f64 {
        match self {
            Self::AllBig => 1.0,
            Self::AllLittle => little_core_speed,
            _ => 1.0 + little_core_speed,
        }
    }

    /// Returns the name of the variant in results.
    pub(super) fn name(self) -> String {
        match self {
            Self::Static => "static".to_owned(),
            Self::Paper => "paper".to_owned(),
            Self::Hurry => "hurry_up".to_owned(),
            Self::Given(ms) => format!("given_{ms}"),
            Self::Kernel => "kernel".to_owned(),
            Self::AllBig => "all_big".to_owned(),
            Self::AllLittle => "all_little".to_owned(),
        }
    }

    /// Returns the name of the variant for people.
    pub(super) fn title(self) -> String {
        match self {
            Self::Static => "static".to_owned(),
            Self::Paper => "Hurry-up as printed".to_owned(),
            Self::Hurry => "Hurry-up".to_owned(),
            Self::Given(ms) => format!("threshold of {ms} ms ÷ 70 ms of the mean"),
            Self::Kernel => "kernel".to_owned(),
            Self::AllBig => "all big".to_owned(),
            Self::AllLittle => "all little".to_owned(),
        }
    }

    /// Returns the configuration of the mapper. If the mapper learns its threshold, it begins with
    /// `initial_threshold_ns`.
    pub(super) fn config(self, measures: MachineMeasures, initial_threshold_ns: u64) -> Config {
        let usual = Config::default();
        let little_speed_milli = (measures.speed * 1e3).round() as u32;
        let learnt = Learning { first_ns: initial_threshold_ns, little_speed_milli, ..Learning::default() };
        let mapping = |mapping| Config { mapping, ..usual };
        match self {
            Self::Static => mapping(Mapping::Static),
            Self::Kernel => mapping(Mapping::Kernel),
            Self::AllBig => mapping(Mapping::AllBig),
            Self::AllLittle => mapping(Mapping::AllLittle),
            Self::Hurry => Config { threshold: Threshold::Learnt(learnt), ..usual },
            Self::Given(ms) => Config { threshold: Threshold::Given(measures.scaled_ns(ms)), ..usual },
            Self::Paper => Config {
                scan_times: ScanTimes::Sampling(measures.scaled_ns(25)),
                threshold: Threshold::Given(measures.scaled_ns(50)),
                options: Options::PAPER,
                ..usual
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURES: MachineMeasures = MachineMeasures { mean_us: 2_800.0, speed: 0.31 };

    #[test]
    fn times_of_the_paper_scale_with_the_mean_request() {
        let paper = Variant::Paper.config(MEASURES, 0);
        assert_eq!((paper.scan_times, paper.threshold), (ScanTimes::Sampling(1_000_000), Threshold::Given(2_000_000)));
        assert_eq!(Variant::Given(300).config(MEASURES, 0).threshold, Threshold::Given(12_000_000));
        let as_in_the_paper = Variant::Paper.config(MachineMeasures { mean_us: 70e3, ..MEASURES }, 0);
        assert_eq!(as_in_the_paper, Config::PAPER);
    }

    #[test]
    fn learning_begins_with_the_given_threshold_and_speed() {
        let Threshold::Learnt(learning) = Variant::Hurry.config(MEASURES, 7).threshold else { panic!("not learnt") };
        assert_eq!((learning.first_ns, learning.little_speed_milli), (7, 310));
    }

    #[test]
    fn every_variant_is_measured_at_full_size() {
        let (all, sweep) = (Variant::all(false), Variant::threshold_sweep(false));
        assert_eq!((all.len(), sweep.len()), (6, THRESHOLDS_MS.len()));
        assert!(sweep.iter().all(|variant| !all.contains(variant)));
        assert!(
            Variant::threshold_sweep(true).contains(&Variant::Paper) && !Variant::all(true).contains(&Variant::Paper)
        );
    }
}
