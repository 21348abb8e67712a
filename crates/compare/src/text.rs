//! Verdict in plain words. The code has no side effects: the same rounds give the same sentence.

use sidelane_report::{Interval, Verdict};

use super::figures::{Figures, Round, Setting, figures_in_rounds};
use super::obstacle::Obstacle;
use super::verdict::{Evaluation, Judgement, P50};
use sidelane_stats::interval::median_interval;

/// Facts about the lanes for the sentence with the verdict.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    pub(super) request: String,
    pub(super) batch: String,
    pub(super) share_a_core: bool,
}

/// Returns the sentence with the verdict of the rounds. `advice` says what would decide an open verdict.
pub(super) fn verdict_sentence(
    judged: &Evaluation,
    rounds: &[Round],
    lanes: &Lanes,
    obstacle: Option<Obstacle>,
    advice: &str,
) -> String {
    match judged.outcome() {
        Verdict::Holds => format!(
            "Worth it: batch gets {}; {}; unmanaged {}.",
            batch_cpu_text(rounds, Setting::Sidelane),
            kept_measures_text(judged),
            judged.gain.measure
        ),
        Verdict::Missed => format!("Not worth it here: {}.", reasons_against(judged, rounds, lanes).join("; ")),
        Verdict::Undecided => {
            let why = match obstacle {
                Some(obstacle @ Obstacle::TrafficChanged { .. }) => {
                    format!("{obstacle}; {}", known_figures_text(judged, rounds))
                }
                Some(obstacle) => obstacle.to_string(),
                None => format!("{}; {}", open_question_text(judged), known_figures_text(judged, rounds)),
            };
            format!("Undecided: {why}; what would decide it: {advice}.")
        }
    }
}

/// Returns the judged figures under Sidelane, such as "p99 +1 % (−2 to +4), p50 0 % (−1 to +1)".
fn kept_measures_text(judged: &Evaluation) -> String {
    judged.kept.iter().map(|one| one.measure.to_string()).collect::<Vec<_>>().join(", ")
}

fn reasons_against(judged: &Evaluation, rounds: &[Round], lanes: &Lanes) -> Vec<String> {
    let missed = |one: &Judgement| one.check.verdict == Verdict::Missed;
    let mut reasons = Vec::new();
    if judged.batch.verdict == Verdict::Missed {
        reasons.push(format!("batch gets only {} with Sidelane", batch_cpu_text(rounds, Setting::Sidelane)));
    }
    if missed(&judged.gain) {
        reasons.push(nothing_to_gain(judged, rounds, lanes));
    }
    let costs: Vec<String> = judged.kept.iter().filter(|one| missed(one)).map(|one| cost_text(one, rounds)).collect();
    if !costs.is_empty() {
        reasons.push(format!("with Sidelane {}", costs.join(", ")));
        if !missed(&judged.gain) {
            reasons.push(format!("unmanaged {}", judged.gain.measure));
        }
    }
    reasons
}

fn nothing_to_gain(judged: &Evaluation, rounds: &[Round], lanes: &Lanes) -> String {
    let Lanes { request, batch, share_a_core } = lanes;
    let apart = if *share_a_core { "" } else { ", which is on another core" };
    format!(
        "batch on CPU {batch} hardly slows the service on CPU {request}{apart} (unmanaged {}, and batch gets {})",
        judged.gain.measure,
        batch_cpu_text(rounds, Setting::Unmanaged)
    )
}

/// Returns the cost of one measure, such as "p50 +28 % (+25 to +31), which is 14 µs".
fn cost_text(judgement: &Judgement, rounds: &[Round]) -> String {
    let later_us = median_delay_us(rounds).filter(|_| judgement.measure.what == P50);
    let which_is = later_us.map(|us| format!(", which is {us:.0} µs")).unwrap_or_default();
    format!("{}{which_is}", judgement.measure)
}

/// Returns the median delay of requests in microseconds; `None` below 1.
fn median_delay_us(rounds: &[Round]) -> Option<f64> {
    let later = |round: &Round| {
        Some(round.figures_of(Setting::Sidelane).p50_us()? - round.figures_of(Setting::Alone).p50_us()?)
    };
    median_interval(rounds.iter().filter_map(later)).map(|later| later.measured).filter(|later| *later >= 1.0)
}

/// Returns the first open check in words.
fn open_question_text(judged: &Evaluation) -> String {
    let question = judged.undecided_checks().into_iter().next().map(|check| {
        let interval = check.interval_text().unwrap_or_else(|| "not measured".to_owned());
        format!("it is not decided whether {} is {} ({interval})", check.name, check.bound_text())
    });
    question.unwrap_or_else(|| "nothing was measured".to_owned())
}

/// Returns the known figures of an undecided comparison.
fn known_figures_text(judged: &Evaluation, rounds: &[Round]) -> String {
    let cpu = batch_cpu_text(rounds, Setting::Sidelane);
    format!("batch gets {cpu}, {}, unmanaged {}", kept_measures_text(judged), judged.gain.measure)
}

/// Returns the CPU time of batch, such as "41 CPU seconds a minute".
fn batch_cpu_text(rounds: &[Round], setting: Setting) -> String {
    let Some(cpu) = median_interval(figures_in_rounds(rounds, setting, Figures::batch_cpu_a_minute_s)) else {
        return "no measured CPU time".to_owned();
    };
    let seconds = cpu.measured;
    if seconds < 10.0 {
        return format!("{seconds:.1} CPU seconds per minute");
    }
    format!("{seconds:.0} CPU seconds per minute")
}

/// Formats a ratio as a change, such as "+1 % (−2 to +4)".
pub(super) fn ratio_as_change(ratio: Interval) -> String {
    let percent = |ratio: f64| signed((ratio - 1.0) * 100.0);
    let ends = match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{} to {}", percent(low), percent(high)),
        _ => "too few rounds".to_owned(),
    };
    format!("{} % ({ends})", percent(ratio.measured))
}

fn signed(value: f64) -> String {
    match value.round() {
        0.0 => "0".to_owned(),
        rounded if rounded < 0.0 => format!("−{:.0}", -rounded),
        rounded => format!("+{rounded:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::obstacle::Stop;
    use super::super::sample::{BOUNDS, PLAN, Run, rounds};
    use super::*;

    const ADVICE: &str = "more rounds: --rounds 24";

    fn verdict_sentence_for(rounds: &[Round], stop: Option<Stop>, share_a_core: bool) -> String {
        let lanes = Lanes { request: "0".into(), batch: "1".into(), share_a_core };
        verdict_sentence(&Evaluation::judge(rounds, BOUNDS), rounds, &lanes, Obstacle::find(rounds, stop, PLAN), ADVICE)
    }

    fn run(p50_us: f64, p99_us: f64) -> Run {
        Run { p50_us, p99_us, ..Run::default() }
    }

    #[test]
    fn text_of_a_verdict_that_is_worth_it() {
        let rounds = rounds(12, [Run::default(), run(120.0, 1_850.0), run(100.0, 1_010.0)]);
        let wanted = "Worth it: batch gets 40 CPU seconds per minute; p99 +1 % (+1 to +1), p50 0 % (0 to 0); unmanaged \
                      p99 +85 % (+85 to +85).";
        assert_eq!(verdict_sentence_for(&rounds, None, true), wanted);
        assert_eq!(
            verdict_sentence_for(&rounds, Some(Stop::Asked), true),
            wanted,
            "what is decided is told, whatever ended it"
        );
    }

    #[test]
    fn text_of_a_verdict_that_is_not_worth_it_has_a_reason() {
        let harmless = rounds(12, [Run::default(), run(101.0, 990.0), run(128.0, 1_010.0)]);
        assert_eq!(
            verdict_sentence_for(&harmless, None, false),
            "Not worth it here: batch on CPU 1 hardly slows the service on CPU 0, which is on another core (unmanaged \
             p99 −1 % (−1 to −1), and batch gets 40 CPU seconds per minute); with Sidelane p50 +28 % (+28 to +28), \
             which is 28 µs."
        );
        let costly = rounds(12, [Run::default(), run(300.0, 4_000.0), run(100.0, 1_400.0)]);
        assert_eq!(
            verdict_sentence_for(&costly, None, true),
            "Not worth it here: with Sidelane p99 +40 % (+40 to +40); unmanaged p99 +300 % (+300 to +300)."
        );
        let kept_off = Run { batch_cpu_s: 0.01, ..Run::default() };
        let kept_off = verdict_sentence_for(&rounds(12, [Run::default(), run(300.0, 4_000.0), kept_off]), None, true);
        assert_eq!(kept_off, "Not worth it here: batch gets only 0.4 CPU seconds per minute with Sidelane.");
    }

    #[test]
    fn text_of_an_undecided_verdict_says_what_would_decide() {
        let mut wide = rounds(12, [Run::default(), run(150.0, 4_000.0), run(100.0, 1_000.0)]);
        for round in wide.iter_mut().step_by(2) {
            round.put(Setting::Sidelane, run(100.0, 1_200.0).figures());
        }
        assert_eq!(
            verdict_sentence_for(&wide, None, true),
            "Undecided: it is not decided whether p99 with Sidelane over alone is ≤ 1.05× (1.00× to 1.20×); batch gets \
             40 CPU seconds per minute, p99 +10 % (0 to +20), p50 0 % (0 to 0), unmanaged p99 +300 % (+300 to +300); \
             what would decide it: more rounds: --rounds 24."
        );
        let stopped = verdict_sentence_for(&[], Some(Stop::BatchEnded { after: Duration::from_secs(1) }), true);
        assert!(stopped.starts_with("Undecided: the batch command ended 1.0s after its start"), "{stopped}");
        let silent = Run { requests: 0, ..Run::default() };
        let silent = verdict_sentence_for(&rounds(12, [silent; 3]), None, true);
        assert!(silent.starts_with("Undecided: the service got no requests in 36 of 36 runs"), "{silent}");
    }
}
