//! Sequential rounds: a benchmark repeats rounds until each of its checks is decided, or up to a
//! limit that it prints.
//!
//! The checks are evaluated after a first number of rounds, and then each time that number has
//! doubled. An evaluation after every round would sooner or later find a check decided by chance; a
//! few evaluations, each with twice as many rounds, add little to the 5 % error of a single one.

use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use sidelane_report::progress_lines::ProgressLines;
use sidelane_report::terminal::eprint_fitted;
use sidelane_report::{Check, ResultFile, Unit};

/// Share of stolen time, in percent, from which it is named as a disturbance of the run.
const STOLEN_PERCENT: f64 = 1.0;

/// Limits of a series of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Number of rounds that are always run.
    pub first: u64,
    /// Highest number of rounds.
    pub rounds: u64,
    /// Longest time: no further round begins if it would probably end later.
    pub time: Duration,
}

/// Choice of the user on how long the run may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundOptions {
    /// Whether the user gave `--quick`.
    pub quick: bool,
    /// Value of `--rounds`, which replaces the benchmark's own limits.
    pub rounds: Option<u64>,
}

impl RoundOptions {
    /// Returns the limit of a series of rounds.
    pub fn limit(self, quick: Limit, full: Limit) -> Limit {
        let usual = if self.quick { quick } else { full };
        match self.rounds {
            Some(rounds) => Limit { first: usual.first.min(rounds), rounds, time: Duration::MAX },
            None => usual,
        }
    }

    /// Adds advice to each undecided check: what would decide the check. `result.machine` must contain the stolen time
    /// already.
    pub fn add_advice(self, result: &mut ResultFile, rounds: u64) {
        let advice = self.advice(rounds, result.machine.stolen_percent);
        for check in result.checks.iter_mut().filter(|check| check.is_undecided()) {
            check.decided_by.get_or_insert_with(|| advice.clone());
        }
    }

    fn advice(self, rounds: u64, stolen_percent: Option<f64>) -> String {
        let longer = match (self.quick, self.rounds) {
            (true, None) => "run it without --quick".to_owned(),
            _ => format!("more rounds: --rounds {}", rounds * 2),
        };
        match stolen_percent.filter(|stolen| *stolen >= STOLEN_PERCENT) {
            Some(stolen) => format!("{longer}; a quieter machine: the host took {} of the CPUs", percent(stolen)),
            None => longer,
        }
    }
}

fn percent(value: f64) -> String {
    Unit::Percent.human(value)
}

/// One round in a series.
pub struct Turn<'a> {
    /// Number of the round, from 0 on.
    pub round: u64,
    /// Progress bar of the series.
    pub bar: &'a ProgressBar,
}

/// Runs rounds until each of `checks` is decided, or up to the limit. Returns the number of rounds.
pub fn run_until_decided<S>(
    what: &str,
    limit: Limit,
    state: &mut S,
    mut round: impl FnMut(&mut S, Turn<'_>) -> Result<()>,
    checks: impl Fn(&S) -> Vec<Check>,
) -> Result<u64> {
    let (bar, lines) = (progress_bar(what), ProgressLines::new(what, "rounds"));
    print_above_bar(&bar, &announcement(what, limit));
    let began = Instant::now();
    let (mut done, mut look) = (0, limit.first.min(limit.rounds));
    loop {
        bar.set_length(look);
        while done < look && (done < limit.first || has_time_for_round(began.elapsed(), done, limit.time)) {
            round(state, Turn { round: done, bar: &bar })?;
            done += 1;
            bar.set_position(done);
            lines.count_done(1, look);
        }
        let undecided: Vec<Check> = checks(state).into_iter().filter(Check::is_undecided).collect();
        let is_last = done < look || look == limit.rounds;
        if !undecided.is_empty() {
            let next = match (is_last, done < look) {
                (false, _) => "continuing".to_owned(),
                (true, false) => "this was the last round".to_owned(),
                (true, true) => format!("stopped by time ({})", Unit::S.human(limit.time.as_secs_f64())),
            };
            print_above_bar(&bar, &undecided_text(what, done, &undecided, &next));
        }
        if undecided.is_empty() || is_last {
            bar.finish_and_clear();
            return Ok(done);
        }
        look = (look * 2).min(limit.rounds);
    }
}

/// Runs rounds as [`run_until_decided`] does, for one number per round and one check on all numbers.
pub fn measure_until_decided(
    what: &str,
    limit: Limit,
    mut measure: impl FnMut() -> Result<f64>,
    check: impl Fn(&[f64]) -> Check,
) -> Result<Vec<f64>> {
    let mut numbers = Vec::new();
    let round = |numbers: &mut Vec<f64>, _: Turn<'_>| {
        numbers.push(measure()?);
        Ok(())
    };
    run_until_decided(what, limit, &mut numbers, round, |numbers| vec![check(numbers)])?;
    Ok(numbers)
}

/// Whether there is time for another round of the mean length so far.
fn has_time_for_round(elapsed: Duration, rounds_done: u64, limit: Duration) -> bool {
    let round = elapsed.checked_div(rounds_done.max(1) as u32).unwrap_or_default();
    elapsed + round <= limit
}

fn announcement(what: &str, limit: Limit) -> String {
    let Limit { first, rounds, time } = limit;
    let (first, all) = (first.min(rounds), rounds_text(rounds));
    let at_most = match time {
        Duration::MAX => all.clone(),
        time => format!("{all} or {}", Unit::S.human(time.as_secs_f64())),
    };
    match first == rounds {
        true => format!("sidelane: {what}: {all}"),
        false => {
            format!("sidelane: {what}: {first} rounds, then more until each check is decided, at most {at_most}")
        }
    }
}

fn undecided_text(what: &str, rounds_done: u64, undecided: &[Check], next: &str) -> String {
    let first = &undecided[0];
    let (interval, wanted) = (first.interval_text().unwrap_or_else(|| "not measured".to_owned()), first.bound_text());
    let others = match undecided.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "sidelane: {what}: after {} undecided: {} ({interval}, wanted {wanted}){others}; {next}",
        rounds_text(rounds_done),
        first.name
    )
}

fn rounds_text(rounds: u64) -> String {
    if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") }
}

fn progress_bar(what: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{prefix}: {bar:10} {pos}/{len} rounds, {eta} left: {wide_msg}");
    bar.set_style(style.expect("the template is right"));
    bar.set_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// Prints a line to standard error, above the progress bar if there is one.
fn print_above_bar(bar: &ProgressBar, line: &str) {
    bar.suspend(|| eprint_fitted(line));
}

#[cfg(test)]
mod tests {
    use super::super::interval::median_interval;
    use super::*;

    const LIMIT: Limit = Limit { first: 6, rounds: 20, time: Duration::MAX };

    fn check(numbers: &[f64]) -> Check {
        Check::interval_at_most("cost", median_interval(numbers.iter().copied()), 10.0, Unit::Us)
    }

    fn count_rounds_run(limit: Limit, value_of_round: impl Fn(u64) -> f64) -> usize {
        let mut taken = 0;
        let next = || {
            taken += 1;
            Ok(value_of_round(taken))
        };
        measure_until_decided("cost", limit, next, check).unwrap().len()
    }

    #[test]
    fn decided_check_ends_after_the_first_rounds() {
        assert_eq!(count_rounds_run(LIMIT, |_| 9.0), 6);
        assert_eq!(count_rounds_run(LIMIT, |_| 11.0), 6);
    }

    #[test]
    fn undecided_check_runs_to_the_next_evaluation_or_limit() {
        // One of the first six values is above the limit of the check. With twelve values, the interval leaves out the
        // two lowest and the two highest.
        assert_eq!(count_rounds_run(LIMIT, |round| if round == 3 { 30.0 } else { 9.0 }), 12);
        assert_eq!(count_rounds_run(LIMIT, |round| if round % 2 == 0 { 30.0 } else { 1.0 }), 20);
        assert_eq!(count_rounds_run(Limit { rounds: 4, ..LIMIT }, |_| 9.0), 4, "too few to decide");
    }

    #[test]
    fn no_round_begins_beyond_the_time_limit() {
        assert_eq!(count_rounds_run(Limit { time: Duration::ZERO, ..LIMIT }, |round| round as f64 * 4.0), 6);
        let s = Duration::from_secs;
        assert!(has_time_for_round(s(30), 10, s(33)) && !has_time_for_round(s(30), 10, s(32)));
    }

    #[test]
    fn requested_rounds_replace_the_limit() {
        let quick = Limit { first: 6, rounds: 8, time: Duration::from_secs(9) };
        let asked = |rounds| RoundOptions { quick: true, rounds }.limit(quick, LIMIT);
        assert_eq!(asked(None), quick);
        assert_eq!(asked(Some(40)), Limit { first: 6, rounds: 40, time: Duration::MAX });
        assert_eq!(asked(Some(3)).first, 3);
    }

    #[test]
    fn advice_names_what_the_user_can_change() {
        let quick = RoundOptions { quick: true, rounds: None };
        assert_eq!(quick.advice(8, None), "run it without --quick");
        assert_eq!(RoundOptions::default().advice(40, Some(0.2)), "more rounds: --rounds 80");
        let noisy = "run it without --quick; a quieter machine: the host took 2.1 % of the CPUs";
        assert_eq!(quick.advice(8, Some(2.1)), noisy);
        assert_eq!(RoundOptions { quick: true, rounds: Some(9) }.advice(9, None), "more rounds: --rounds 18");
    }

    #[test]
    fn announcement_names_the_limits() {
        let told = announcement("p99", Limit { first: 6, rounds: 20, time: Duration::from_secs(90) });
        assert_eq!(told, "sidelane: p99: 6 rounds, then more until each check is decided, at most 20 rounds or 90.0 s");
        assert_eq!(announcement("p99", Limit { rounds: 6, ..LIMIT }), "sidelane: p99: 6 rounds");
        let wide = check(&[9.0, 9.0, 9.0, 9.0, 9.0, 30.0]);
        let said = undecided_text("p99", 6, &[wide.clone(), wide], "continuing");
        assert!(said.contains("cost (9.0 µs to 30.0 µs, wanted ≤ 10.0 µs) and 1 more; continuing"), "{said}");
    }
}
