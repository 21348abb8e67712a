//! The finding: the conclusion of a result in one sentence, for users who read nothing else.
//!
//! The sentence is made only from the figures of the result, and states no more than its checks support. The code
//! that fills a result stores the sentence as `settings.finding`; page and terminal begin with it.

use crate::check::{Check, Verdict};
use crate::result::{Pair, ResultFile};
use crate::row::Row;
use crate::unit::Unit;

/// Smallest ratio that counts as a slowdown: the host of a virtual machine alone may cause a smaller one.
const SLOWDOWN_OVER_ALONE: f64 = 1.10;
/// Start of the name of the check that compares p99 under Sidelane with p99 of the service alone.
const P99_CHECK: &str = "p99 over alone";
const SHARE_CHECK: &str = "idle time used by batch and others";

/// Returns the finding about batch beside `service`: what batch cost the service without and with Sidelane (policy
/// `borrow_idle`), and how much idle time batch got.
pub fn sharing_finding(result: &ResultFile, service: &str) -> String {
    let over_alone = |setting| row(result, setting)?.get("p99_over_alone");
    let (Some(unmanaged), Some(held)) = (over_alone("unmanaged"), over_alone("borrow_idle")) else {
        return "Too little was measured here to say what Sidelane does for p99.".to_owned();
    };
    let (before, kept, share) = (ratio_text(unmanaged), p99_text(result, unmanaged, held), batch_share_text(result));
    let sentence = match unmanaged_slowdown(result, unmanaged) {
        UnmanagedSlowdown::Seen => {
            format!("Batch beside {service} without Sidelane made p99 {before} as long; with Sidelane {kept}{share}")
        }
        UnmanagedSlowdown::None => format!(
            "Nothing to gain here: even without Sidelane, batch beside {service} made p99 only {before} as long, \
             because {}; with Sidelane {kept}{share}",
            why_no_slowdown(result)
        ),
        UnmanagedSlowdown::Undecided => format!(
            "It is undecided whether batch harms {service} here: without Sidelane p99 was {before} as long{}; with \
             Sidelane {kept}{share}",
            interval_text(result)
        ),
    };
    match result.text("sibling") {
        Some(sibling) => format!("{sentence} ({sibling})."),
        None => format!("{sentence}."),
    }
}

/// Whether batch without Sidelane made the service slower.
enum UnmanagedSlowdown {
    Seen,
    None,
    Undecided,
}

/// Returns whether a slowdown is seen. It is if the whole interval is above 1. It is not if the ratio itself is below
/// `SLOWDOWN_OVER_ALONE`. Otherwise it is undecided.
fn unmanaged_slowdown(result: &ResultFile, unmanaged_ratio: f64) -> UnmanagedSlowdown {
    let low = row(result, "unmanaged").and_then(|row| row.get("p99_low_over_alone"));
    match low {
        _ if unmanaged_ratio < SLOWDOWN_OVER_ALONE => UnmanagedSlowdown::None,
        Some(low) if low > 1.0 => UnmanagedSlowdown::Seen,
        _ => UnmanagedSlowdown::Undecided,
    }
}

/// Returns the interval of p99 without Sidelane, in words.
fn interval_text(result: &ResultFile) -> String {
    let end = |key| row(result, "unmanaged")?.get(key);
    match end("p99_low_over_alone").zip(end("p99_high_over_alone")) {
        Some((low, high)) => format!(" ({} to {})", Unit::OverAlone.human(low), Unit::OverAlone.human(high)),
        None => " (too few rounds)".to_owned(),
    }
}

fn row<'a>(result: &'a ResultFile, setting: &str) -> Option<&'a Row> {
    result.rows.iter().find(|row| row.setting() == setting)
}

fn check<'a>(result: &'a ResultFile, name: &str) -> Option<&'a Check> {
    result.checks.iter().find(|check| check.name.starts_with(name))
}

/// Writes a ratio as "1.9 times", with two decimals near 1: "1.02 times".
fn ratio_text(ratio: f64) -> String {
    if (0.8..1.2).contains(&ratio) { format!("{ratio:.2} times") } else { format!("{ratio:.1} times") }
}

fn why_no_slowdown(result: &ResultFile) -> &'static str {
    match (result.machine.pair, result.text("sibling")) {
        (Pair::Declared, None) => "the two lanes share no core",
        _ => "this batch at this load hardly slows it",
    }
}

/// Describes p99 with Sidelane, with the interval and the verdict of the check.
fn p99_text(result: &ResultFile, unmanaged_ratio: f64, managed_ratio: f64) -> String {
    let held_times = ratio_text(managed_ratio);
    let Some(check) = check(result, P99_CHECK) else { return held_times };
    let wanted = check.bound_text();
    match (check.verdict, check.interval_text()) {
        (Verdict::Holds, _) => held_times,
        (Verdict::Missed, _) if managed_ratio >= unmanaged_ratio => {
            format!("it was not better: {held_times} (wanted {wanted})")
        }
        (Verdict::Missed, _) => format!("it was still {held_times} (wanted {wanted})"),
        (Verdict::Undecided, Some(interval)) => {
            format!("{held_times} ({interval}; it is undecided whether that is {wanted})")
        }
        (Verdict::Undecided, None) => format!("{held_times} (it is undecided whether that is {wanted})"),
    }
}

/// Describes batch's share of the idle time.
fn batch_share_text(result: &ResultFile) -> String {
    let Some(share) = row(result, "borrow_idle").and_then(|row| row.get("batch_share_of_idle_percent")) else {
        return String::new();
    };
    let percent = format!("{share:.0} %");
    match check(result, SHARE_CHECK).map(|check| check.verdict) {
        Some(Verdict::Missed) => format!(", but batch used only {percent} of the idle time"),
        _ => format!(", and batch used {percent} of the idle time"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::interval::{Interval, Method};
    use super::super::sample;
    use super::*;

    /// Returns a result with these two ratios of p99 to p99 of the service alone: `unmanaged` without Sidelane, `held`
    /// with it. `interval` is the confidence interval of `held`.
    fn result_with_ratios(unmanaged: f64, held: f64, interval: (f64, f64)) -> ResultFile {
        let mut result = sample::demo();
        let row = |setting: &str, over_alone: f64, share: Option<f64>| {
            let mut row = Row::new(setting);
            row.put("p99_over_alone", over_alone).put("batch_share_of_idle_percent", share);
            row.put("p99_low_over_alone", over_alone * 0.9).put("p99_high_over_alone", over_alone * 1.2);
            row
        };
        result.rows = vec![row("unmanaged", unmanaged, None), row("borrow_idle", held, Some(91.3))];
        let of = |measured, (low, high)| Interval {
            measured,
            low: Some(low),
            high: Some(high),
            method: Method::OrderStatistics,
        };
        result.checks = vec![
            Check::interval_at_least(SHARE_CHECK, of(91.3, (90.5, 92.0)), 90.0, Unit::Percent),
            Check::interval_at_most("p99 over alone, median of pairs", of(held, interval), 1.05, Unit::OverAlone),
        ];
        result
    }

    #[test]
    fn finding_names_the_slowdown_that_sidelane_removes() {
        assert_eq!(
            sharing_finding(&result_with_ratios(1.94, 1.02, (0.99, 1.04)), "search"),
            "Batch beside search without Sidelane made p99 1.9 times as long; with Sidelane 1.02 times, and batch used \
             91 % of the idle time."
        );
    }

    #[test]
    fn finding_names_an_emulated_sibling() {
        let mut result = result_with_ratios(1.94, 1.02, (0.99, 1.04));
        result.settings.insert("sibling".into(), "emulated sibling, 40 %".into());
        assert!(sharing_finding(&result, "search").ends_with(" of the idle time (emulated sibling, 40 %)."));
    }

    #[test]
    fn finding_says_if_its_check_is_undecided_or_missed() {
        let undecided = sharing_finding(&result_with_ratios(1.94, 1.04, (0.98, 1.11)), "search");
        let wanted = "with Sidelane 1.04 times (0.98× to 1.11×; it is undecided whether that is ≤ 1.05×), and batch";
        assert!(undecided.contains(wanted), "{undecided}");
        let missed = sharing_finding(&result_with_ratios(1.94, 1.31, (1.2, 1.4)), "search");
        assert!(missed.contains("with Sidelane it was still 1.3 times (wanted ≤ 1.05×), and batch"), "{missed}");
        let worse = sharing_finding(&result_with_ratios(1.5, 1.71, (1.6, 1.8)), "search");
        assert!(worse.contains("with Sidelane it was not better: 1.7 times (wanted ≤ 1.05×)"), "{worse}");
    }

    #[test]
    fn finding_is_undecided_with_too_few_rounds() {
        let mut few = result_with_ratios(1.94, 1.02, (0.0, 0.0));
        let unbounded = Interval { measured: 1.02, low: None, high: None, method: Method::OrderStatistics };
        few.checks[1] = Check::interval_at_most(P99_CHECK, unbounded, 1.05, Unit::OverAlone);
        assert!(
            sharing_finding(&few, "search")
                .contains("1.02 times (too few rounds; it is undecided whether that is ≤ 1.05×)")
        );
        few.checks[1] = Check::interval_at_most(P99_CHECK, None, 1.05, Unit::OverAlone);
        assert!(sharing_finding(&few, "search").contains("1.02 times (it is undecided whether that is ≤ 1.05×)"));
        few.checks.clear();
        assert!(sharing_finding(&few, "search").contains("with Sidelane 1.02 times, and batch"));
    }

    #[test]
    fn finding_without_a_slowdown_says_nothing_to_gain() {
        let mut unslowed = result_with_ratios(0.96, 1.01, (0.99, 1.04));
        assert_eq!(
            sharing_finding(&unslowed, "search"),
            "Nothing to gain here: even without Sidelane, batch beside search made p99 only 0.96 times as long, \
             because the two lanes share no core; with Sidelane 1.01 times, and batch used 91 % of the idle time."
        );
        unslowed.machine.pair = Pair::Smt;
        assert!(sharing_finding(&unslowed, "search").contains("because this batch at this load hardly slows it"));
        unslowed.machine.pair = Pair::Declared;
        unslowed.settings.insert("sibling".into(), "emulated sibling, 40 %".into());
        assert!(sharing_finding(&unslowed, "search").contains("because this batch at this load hardly slows it"));
    }

    #[test]
    fn slowdown_within_the_noise_is_undecided() {
        let noisy = sharing_finding(&result_with_ratios(1.15, 1.02, (0.99, 1.04)), "search");
        let wanted = "It is undecided whether batch harms search here: without Sidelane p99 was 1.15 times as long \
                      (1.03× to 1.38×)";
        let mut sure = result_with_ratios(1.15, 1.02, (0.99, 1.04));
        assert!(noisy.starts_with("Batch beside search without Sidelane made p99 1.15 times"), "{noisy}");
        sure.rows[0].put("p99_low_over_alone", 0.97);
        let unsure = sharing_finding(&sure, "search");
        assert!(unsure.starts_with(&wanted.replace("1.03×", "0.97×")), "{unsure}");
        sure.rows[0].put("p99_low_over_alone", None);
        let few = sharing_finding(&sure, "search");
        assert!(few.contains("1.15 times as long (too few rounds); with Sidelane 1.02 times, and"), "{few}");
    }

    #[test]
    fn finding_names_little_idle_time() {
        let mut little = result_with_ratios(1.94, 1.02, (0.99, 1.04));
        little.checks[0] = Check::at_least(SHARE_CHECK, 62.0, 90.0, Unit::Percent);
        little.rows[1].put("batch_share_of_idle_percent", 62.0);
        assert!(sharing_finding(&little, "search").ends_with("1.02 times, but batch used only 62 % of the idle time."));
        little.rows[1].put("batch_share_of_idle_percent", None);
        assert!(sharing_finding(&little, "search").ends_with("with Sidelane 1.02 times."));
    }

    #[test]
    fn unmeasured_result_has_no_finding() {
        let mut nothing = result_with_ratios(1.94, 1.02, (0.99, 1.04));
        nothing.rows.remove(0);
        assert_eq!(
            sharing_finding(&nothing, "search"),
            "Too little was measured here to say what Sidelane does for p99."
        );
    }
}
