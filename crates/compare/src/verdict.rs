//! Decision from the rounds. The code has no side effects: no clock, no I/O.
//!
//! Three questions are asked, each with a 95 % interval over the rounds. Does the service stay as fast under Sidelane
//! as alone? Is there anything to gain: is it slower beside unmanaged batch? Does batch get any work done? Sidelane
//! pays off if all three hold, and does not if one of them fails.

use std::fmt;

use sidelane_policy::borrow::Objective;
use sidelane_report::{Check, Interval, Unit, Verdict};

use super::figures::{Figures, Round, Setting, figures_in_rounds, ratio_to_alone};
use super::text::ratio_as_change;
use sidelane_stats::interval::median_interval;

/// Least CPU time of batch in seconds per minute for which Sidelane is worth its cost.
const BATCH_MIN_A_MINUTE_S: f64 = 1.0;

/// Name of the median latency in checks.
pub(super) const P50: &str = "p50";

/// Bounds on the latencies of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Largest ratio of a percentile under Sidelane to the same percentile alone.
    pub(super) max_slowdown: f64,
    /// Objective of the user, which replaces the ratio; `None` without one.
    pub(super) objective: Option<Objective>,
}

/// Figure by which a setting is judged: the larger, the worse for the service.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) what: String,
    value: Option<Interval>,
    limit: f64,
    unit: Unit,
    /// Whether the figure is the inverse of a rate, and displayed as that rate.
    is_of_rate: bool,
}

impl Measure {
    fn ratio_to_alone(
        name: &str,
        rounds: &[Round],
        setting: Setting,
        figure: impl Fn(&Figures) -> Option<f64>,
    ) -> Self {
        let value = ratio_to_alone(rounds, setting, figure);
        Self { what: name.to_owned(), value, limit: 0.0, unit: Unit::OverAlone, is_of_rate: false }
    }

    fn check_at_most(&self, setting: Setting) -> Check {
        Check::interval_at_most(self.name(setting), self.value, self.limit, self.unit)
    }

    fn check_at_least(&self, setting: Setting) -> Check {
        Check::interval_at_least(self.name(setting), self.value, self.limit, self.unit)
    }

    /// Returns whether the limit would lie in the confidence interval even after ten times as many rounds. The
    /// interval's width decreases with the square root of the number of rounds.
    fn is_far_too_wide(&self) -> bool {
        const TIMES: f64 = 10.0;
        let ends = |interval: Interval| Some((interval.measured, interval.low?, interval.high?));
        let Some((measured, low, high)) = self.value.and_then(ends) else { return false };
        let reach = if measured <= self.limit { high - measured } else { measured - low };
        reach > (measured - self.limit).abs() * TIMES.sqrt()
    }

    fn name(&self, setting: Setting) -> String {
        match self.unit {
            Unit::OverAlone => format!("{} {} over alone", self.what, setting.in_words()),
            _ => format!("{} {}", self.what, setting.in_words()),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.value, self.unit) {
            (None, _) => write!(f, "{} not measured", self.what),
            (Some(ratio), _) if self.is_of_rate => {
                write!(f, "requests a second {}", ratio_as_change(ratio.map_decreasing(|ratio| 1.0 / ratio)))
            }
            (Some(ratio), Unit::OverAlone) => write!(f, "{} {}", self.what, ratio_as_change(ratio)),
            (Some(time), unit) => write!(f, "{} {}", self.what, unit.human(time.measured)),
        }
    }
}

/// Measure, and the check whether it is within its bound.
#[derive(Clone, Debug)]
pub(super) struct Judgement {
    pub(super) measure: Measure,
    pub(super) check: Check,
}

/// Decision from all rounds.
#[derive(Clone, Debug)]
pub(super) struct Evaluation {
    /// Judgements whether the service stays as fast as alone.
    pub(super) kept: Vec<Judgement>,
    /// Judgement whether there is anything to gain.
    pub(super) gain: Judgement,
    /// Check whether batch gets enough CPU time.
    pub(super) batch: Check,
}

impl Evaluation {
    pub(super) fn judge(rounds: &[Round], bounds: Bounds) -> Self {
        let cpu = median_interval(figures_in_rounds(rounds, Setting::Sidelane, Figures::batch_cpu_a_minute_s));
        let name = "CPU time of batch per minute, with Sidelane";
        Self {
            kept: judge_sidelane(rounds, bounds),
            gain: judge_gain(rounds, bounds),
            batch: Check::interval_at_least(name, cpu, BATCH_MIN_A_MINUTE_S, Unit::S),
        }
    }

    pub(super) fn checks(&self) -> Vec<Check> {
        self.all().cloned().collect()
    }

    /// Returns the checks that further rounds could decide. There are none as soon as one check is missed, since it
    /// determines the verdict.
    pub(super) fn undecided_checks(&self) -> Vec<Check> {
        let is_missed = self.outcome() == Verdict::Missed;
        self.all().filter(|check| !is_missed && check.is_undecided()).cloned().collect()
    }

    /// Returns advice if an open interval is so wide that ten times the rounds would not close it.
    pub(super) fn quiet_machine_advice(&self) -> Option<String> {
        let mut judged = self.kept.iter().chain([&self.gain]);
        let wide = judged.find(|one| one.check.is_undecided() && one.measure.is_far_too_wide())?;
        let what = &wide.measure.what;
        Some(format!("a quieter machine, where the service's {what} varies less, or a wider bound (--max-slowdown)"))
    }

    pub(super) fn outcome(&self) -> Verdict {
        let has = |verdict| self.all().any(|check| check.verdict == verdict);
        [Verdict::Missed, Verdict::Undecided].into_iter().find(|verdict| has(*verdict)).unwrap_or(Verdict::Holds)
    }

    fn all(&self) -> impl Iterator<Item = &Check> {
        self.kept.iter().map(|kept| &kept.check).chain([&self.gain.check, &self.batch])
    }
}

/// Returns the figures by which a setting is judged: the percentile of the objective. Without an objective, they are
/// p99, p50 and the time between requests.
fn measures(rounds: &[Round], setting: Setting, bounds: Bounds) -> Vec<Measure> {
    if let Some(Objective { percentile, limit_ns }) = bounds.objective {
        let value = median_interval(figures_in_rounds(rounds, setting, |figures| figures.percentile_us(percentile)));
        let (what, limit) = (format!("p{percentile}"), limit_ns as f64 / 1e3);
        return vec![Measure { what, value, limit, unit: Unit::Us, is_of_rate: false }];
    }
    let between = |figures: &Figures| figures.requests_per_s().map(f64::recip);
    let traffic =
        Measure { is_of_rate: true, ..Measure::ratio_to_alone("time between requests", rounds, setting, between) };
    let (p99, p50) = (Figures::p99_us, Figures::p50_us);
    let times =
        [Measure::ratio_to_alone("p99", rounds, setting, p99), Measure::ratio_to_alone(P50, rounds, setting, p50)];
    times.into_iter().chain([traffic]).map(|one| Measure { limit: bounds.max_slowdown, ..one }).collect()
}

fn judge_sidelane(rounds: &[Round], bounds: Bounds) -> Vec<Judgement> {
    let judge = |measure: Measure| Judgement { check: measure.check_at_most(Setting::Sidelane), measure };
    let counts = |one: &Judgement| !one.measure.is_of_rate || one.check.verdict == Verdict::Missed;
    measures(rounds, Setting::Sidelane, bounds).into_iter().map(judge).filter(counts).collect()
}

/// Judges whether there is anything to gain. One worse measure is enough for a gain; "nothing to gain" needs all
/// measures.
fn judge_gain(rounds: &[Round], bounds: Bounds) -> Judgement {
    let judge = |measure: Measure| Judgement { check: measure.check_at_least(Setting::Unmanaged), measure };
    let all: Vec<Judgement> = measures(rounds, Setting::Unmanaged, bounds).into_iter().map(judge).collect();
    let find = |verdict| all.iter().find(|one| one.check.verdict == verdict);
    let open = || find(Verdict::Undecided).filter(|one| !one.measure.is_of_rate);
    find(Verdict::Holds).or_else(open).unwrap_or(&all[0]).clone()
}

#[cfg(test)]
mod tests {
    use super::super::sample::{BOUNDS, Run, rounds};
    use super::*;

    /// Returns the decision from twelve rounds with these latencies (p50, p99) in microseconds; alone they are 100 and
    /// 1000.
    fn evaluation_with_latencies(unmanaged: (f64, f64), sidelane: (f64, f64)) -> Evaluation {
        let run = |(p50_us, p99_us): (f64, f64)| Run { p50_us, p99_us, ..Run::default() };
        Evaluation::judge(&rounds(12, [Run::default(), run(unmanaged), run(sidelane)]), BOUNDS)
    }

    #[test]
    fn sidelane_pays_off_if_only_unmanaged_batch_harms() {
        assert_eq!(evaluation_with_latencies((150.0, 1_800.0), (101.0, 1_020.0)).outcome(), Verdict::Holds);
        assert_eq!(
            evaluation_with_latencies((101.0, 1_800.0), (101.0, 1_020.0)).gain.to_string(),
            "p99 +80 % (+80 to +80)"
        );
        assert_eq!(
            evaluation_with_latencies((150.0, 1_010.0), (101.0, 1_020.0)).gain.to_string(),
            "p50 +50 % (+50 to +50)"
        );
    }

    #[test]
    fn sidelane_does_not_pay_off_without_gain_or_at_a_cost() {
        let harmless = evaluation_with_latencies((101.0, 1_010.0), (101.0, 1_020.0));
        assert_eq!((harmless.outcome(), harmless.gain.check.verdict), (Verdict::Missed, Verdict::Missed));
        let costs = evaluation_with_latencies((150.0, 1_800.0), (130.0, 1_020.0));
        assert_eq!((costs.outcome(), costs.kept[1].check.verdict), (Verdict::Missed, Verdict::Missed));
        assert!(costs.undecided_checks().is_empty(), "more rounds would change nothing");
    }

    #[test]
    fn sidelane_does_not_pay_off_if_batch_gets_nothing() {
        let kept_off = Run { batch_cpu_s: 0.0, ..Run::default() };
        let unmanaged = Run { p99_us: 1_800.0, ..Run::default() };
        let judged = Evaluation::judge(&rounds(12, [Run::default(), unmanaged, kept_off]), BOUNDS);
        assert_eq!((judged.outcome(), judged.batch.verdict), (Verdict::Missed, Verdict::Missed));
    }

    #[test]
    fn without_six_rounds_or_any_request_nothing_is_decided() {
        let unmanaged = Run { p99_us: 1_800.0, ..Run::default() };
        let few = Evaluation::judge(&rounds(5, [Run::default(), unmanaged, Run::default()]), BOUNDS);
        assert_eq!((few.outcome(), few.undecided_checks().len()), (Verdict::Undecided, 4));
        let silent = Run { requests: 0, ..Run::default() };
        let silent = Evaluation::judge(&rounds(12, [silent; 3]), BOUNDS);
        assert_eq!((silent.outcome(), silent.gain.to_string().as_str()), (Verdict::Undecided, "p99 not measured"));
        assert_eq!(Evaluation::judge(&[], BOUNDS).outcome(), Verdict::Undecided);
    }

    #[test]
    fn lower_throughput_is_harm_only_if_significant() {
        let slow = Run { requests: 1_000, ..Run::default() };
        let judged = Evaluation::judge(&rounds(12, [Run::default(), slow, Run::default()]), BOUNDS);
        assert_eq!(judged.gain.to_string(), "requests a second −50 % (−50 to −50)");
        let costs = Evaluation::judge(&rounds(12, [Run::default(), slow, slow]), BOUNDS);
        assert_eq!((costs.outcome(), costs.kept.len()), (Verdict::Missed, 3));
        let mut uneven = rounds(12, [Run::default(), Run { p99_us: 1_800.0, ..Run::default() }, Run::default()]);
        for round in uneven.iter_mut().step_by(2) {
            round.put(Setting::Sidelane, slow.figures());
        }
        assert_eq!(Evaluation::judge(&uneven, BOUNDS).outcome(), Verdict::Holds);
    }

    #[test]
    fn more_rounds_are_advised_where_they_can_help() {
        let advice = |p99s_us: [f64; 2]| {
            let mut rounds = rounds(12, [Run::default(), Run { p99_us: 1_800.0, ..Run::default() }, Run::default()]);
            for (at, round) in rounds.iter_mut().enumerate() {
                round.put(Setting::Sidelane, Run { p99_us: p99s_us[at % 2], ..Run::default() }.figures());
            }
            Evaluation::judge(&rounds, BOUNDS).quiet_machine_advice()
        };
        // The ratios of p99 have the medians 1.01 and 1.10, and the intervals 0.95 to 1.07 and 0.2 to 2.
        assert_eq!(advice([950.0, 1_070.0]), None);
        assert!(advice([200.0, 2_000.0]).is_some_and(|advice| advice.contains("a quieter machine")));
    }

    #[test]
    fn objective_replaces_the_slowdown_bound() {
        let bounds = Bounds { objective: Some(Objective { percentile: 99.0, limit_ns: 1_500_000 }), ..BOUNDS };
        let run = |p99_us| Run { p99_us, ..Run::default() };
        let judged = |unmanaged, sidelane| {
            Evaluation::judge(&rounds(12, [Run::default(), run(unmanaged), run(sidelane)]), bounds)
        };
        assert_eq!(judged(1_800.0, 1_400.0).outcome(), Verdict::Holds);
        assert_eq!(judged(1_800.0, 1_600.0).outcome(), Verdict::Missed);
        assert_eq!(judged(1_450.0, 1_400.0).gain.check.verdict, Verdict::Missed, "both keep it");
        assert_eq!(judged(1_800.0, 1_400.0).kept[0].to_string(), "p99 1.4 ms");
    }

    impl fmt::Display for Judgement {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.measure.fmt(f)
        }
    }
}
