//! An estimate for users: a table, a recommendation with the command to type, and what is not known.

use std::fmt;

use serde_json::{Map, json};
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_policy::borrow::{Objective, PolicyKind};
use sidelane_report::{ResultFile, Row, Unit};
use sidelane_requests::objective::format_objective;

use crate::note::EstimateNote;
use crate::outcome::{Estimated, Outcome, Setting, SlowdownRange, estimate, settings};
use crate::recording::Recording;
use crate::tasks::Tasks;

/// Factor from the service's own p99 to the objective that is tried if the user has none.
const OBJECTIVE_FACTOR: f64 = 1.5;
/// Share of lost requests, and of the difference between replay and recording, from which a note says so.
const NOTE_FROM: f64 = 0.05;
const REPLAY_NOTE_FROM: f64 = 0.15;
/// Share of the batch lanes' idle time that others had from which a note says so.
const SHARED_NOTE_FROM: f64 = 0.1;
/// CPU time of batch in a day that is worth a command.
const WORTH_S: f64 = 600.0;

/// Choices of the user.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// Objective of the service, if the user has one.
    pub objective: Option<Objective>,
    /// How much service and batch slow each other, if the user knows it.
    pub slowdown: Option<SlowdownRange>,
}

/// An estimate of what lending would give and cost.
#[derive(Clone, Debug)]
pub struct Estimate {
    recording: RecordingFacts,
    objective: Objective,
    is_objective_given: bool,
    range: SlowdownRange,
    is_range_given: bool,
    outcomes: Vec<Estimated>,
    notes: Vec<Note>,
}

/// What is shown of a recording.
#[derive(Clone, Debug)]
struct RecordingFacts {
    head: crate::recording::Head,
    length_s: f64,
    requests: usize,
    busy_share: f64,
}

impl Estimate {
    /// Simulates what each policy would give beside a recording. `notes` are those of the observation.
    pub fn new(recording: &Recording, choices: Choices, mut notes: Vec<Note>) -> Self {
        let tasks = Tasks::new(recording);
        let alone_p99_ns = tasks.latencies.value_at_quantile(0.99);
        let objective = choices.objective.unwrap_or_else(|| objective_of(alone_p99_ns));
        let range = choices.slowdown.unwrap_or(SlowdownRange::OF_SIBLINGS);
        let outcomes = estimate(recording, &tasks, &settings(objective), range);
        let others_share = recording.others_share();
        let replayed_p99_ns = outcomes.first().map_or(0, |alone| alone.low.figures.p99_ns);
        let differs = (replayed_p99_ns as f64 / alone_p99_ns.max(1) as f64 - 1.0).abs();
        let lost = recording.lost() as f64 / (recording.lost() as f64 + recording.requests.len() as f64).max(1.0);
        let percent = |share: f64| (100.0 * share).round() as u64;
        let found = [
            (lost >= NOTE_FROM).then(|| EstimateNote::RequestsLost { percent: percent(lost) }),
            (differs >= REPLAY_NOTE_FROM).then(|| EstimateNote::ReplayDiffers { percent: percent(differs) }),
            (others_share >= SHARED_NOTE_FROM).then(|| EstimateNote::LanesShared { percent: percent(others_share) }),
        ];
        notes.extend(found.into_iter().flatten().map(Note::from));
        Self {
            recording: RecordingFacts {
                head: recording.head.clone(),
                length_s: recording.length_ns() as f64 / 1e9,
                requests: recording.requests.len(),
                busy_share: recording.busy_share(),
            },
            objective,
            is_objective_given: choices.objective.is_some(),
            range,
            is_range_given: choices.slowdown.is_some(),
            outcomes,
            notes,
        }
    }

    /// Returns the estimate as a result: a row for each setting and each end of the range of slowdowns.
    pub fn to_result(&self) -> ResultFile {
        let mut settings = Map::new();
        settings.insert("service".into(), json!(self.recording.head.service));
        settings.insert("source".into(), json!(self.recording.head.source));
        settings.insert("objective".into(), json!(format_objective(self.objective)));
        settings.insert("recommended".into(), json!(self.recommended().map(|found| self.command(found.low.setting))));
        let mut result = ResultFile::new(self.recording.head.machine.clone(), settings);
        let both = self.outcomes.iter().flat_map(|estimated| [&estimated.low, &estimated.high]);
        result.rows = both.map(|outcome| self.row(outcome)).collect();
        result.notes = notes_as_text(&self.notes);
        result
    }

    fn row(&self, outcome: &Outcome) -> Row {
        let figures = &outcome.figures;
        let mut row = Row::new(format!("{}, slowdown {}", name(outcome.setting), outcome.slowdown));
        row.put("slowdown_ratio", outcome.slowdown);
        row.put("batch_per_day_s", outcome.batch_per_day_s);
        row.put("requests_count", figures.requests as f64);
        row.put("request_lane_busy_percent", 100.0 * figures.lc_utilisation);
        for (key, ns) in [
            ("p50_us", figures.p50_ns),
            ("p95_us", figures.p95_ns),
            ("p99_us", figures.p99_ns),
            ("p999_us", figures.p999_ns),
        ] {
            row.put(key, ns as f64 / 1e3);
        }
        row.put("overlap_percent", figures.overlap_percent);
        row
    }

    /// Returns the setting that gives batch the most CPU time, of those that keep the objective, or that lend idle
    /// moments alone if the user gave no objective. `None` if none of them is worth it.
    fn recommended(&self) -> Option<&Estimated> {
        let keeps = |estimated: &&Estimated| match estimated.low.setting {
            Setting::Alone | Setting::Unmanaged => false,
            Setting::Lent(policy, _) if !self.is_objective_given => policy == PolicyKind::BorrowIdle,
            Setting::Lent(..) => self.percentile_ns(&estimated.high) <= self.objective.limit_ns,
        };
        let batch_s = |estimated: &Estimated| estimated.low.batch_per_day_s.min(estimated.high.batch_per_day_s);
        let best = self.outcomes.iter().filter(keeps).max_by(|one, other| batch_s(one).total_cmp(&batch_s(other)));
        best.filter(|best| batch_s(best) >= WORTH_S)
    }

    /// Returns the latency at the nearest simulated percentile at or above the objective's.
    fn percentile_ns(&self, outcome: &Outcome) -> u64 {
        let figures = &outcome.figures;
        let known = [(50.0, figures.p50_ns), (95.0, figures.p95_ns), (99.0, figures.p99_ns), (99.9, figures.p999_ns)];
        let found = known.into_iter().find(|(percentile, _)| *percentile >= self.objective.percentile);
        found.map_or(figures.max_ns, |(_, ns)| ns)
    }

    /// Returns the command that shares the lanes in this way.
    fn command(&self, setting: Setting) -> String {
        let head = &self.recording.head;
        let lanes = head.declared.as_ref().map(|lanes| format!(" --lanes {lanes}")).unwrap_or_default();
        let by = match setting {
            Setting::Lent(policy, Some(objective)) => {
                format!(" --slo {} --policy {policy}", format_objective(objective))
            }
            _ => String::new(),
        };
        format!("sidelane run --service {}{lanes}{by} -- COMMAND", head.service)
    }

    fn headline(&self) -> String {
        let RecordingFacts { head, length_s, requests, busy_share, .. } = &self.recording;
        let rate = Unit::Count.human((*requests as f64 / length_s.max(1e-9)).round());
        let lanes: Vec<String> = head.request_lanes.iter().map(u32::to_string).collect();
        format!(
            "{} for {}: {rate} requests/s, CPU {} busy for {}",
            head.service,
            Unit::S.human(*length_s),
            lanes.join(","),
            Unit::Percent.human(100.0 * busy_share)
        )
    }

    fn advice(&self) -> Vec<(&'static str, String)> {
        let Some(best) = self.recommended() else {
            return vec![("recommended", self.why_nothing())];
        };
        let mut lines = vec![("recommended", self.command(best.low.setting))];
        if !self.is_objective_given {
            let with_objective = self.outcomes.iter().filter(|estimated| {
                matches!(estimated.low.setting, Setting::Lent(_, Some(_)))
                    && self.percentile_ns(&estimated.high) <= self.objective.limit_ns
            });
            let most =
                with_objective.max_by(|one, other| one.high.batch_per_day_s.total_cmp(&other.high.batch_per_day_s));
            if let Some(most) = most.filter(|most| most.high.batch_per_day_s > 1.05 * best.high.batch_per_day_s) {
                lines.push(("for more", format!("let requests take longer: {}", self.command(most.low.setting))));
            }
        }
        lines
    }

    fn why_nothing(&self) -> String {
        if self.is_objective_given {
            let alone = self.outcomes.first().map_or(0, |alone| self.percentile_ns(&alone.low));
            if alone > self.objective.limit_ns {
                return format!(
                    "nothing: the service alone misses {}, at {}",
                    format_objective(self.objective),
                    Unit::Ns.human(alone as f64)
                );
            }
        }
        format!("nothing: batch would get under {} of CPU time a day", hours(WORTH_S))
    }

    fn assumption(&self) -> String {
        let SlowdownRange { low, high } = self.range;
        let given = if low == high { format!("{low} times") } else { format!("{low} to {high} times") };
        let beside = format!("requests take {given} as long while batch runs beside them, and so does batch");
        match self.is_range_given {
            true => beside,
            false => format!("{beside}; give another range with --slowdown (`sidelane doctor` measures these CPUs)"),
        }
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sidelane: {}", self.headline())?;
        let rows: Vec<[String; 4]> = self.outcomes.iter().map(cells).collect();
        let titles = ["", "batch, CPU time a day", "p50", "p99"].map(str::to_owned);
        let width = |column: usize| {
            [&titles].into_iter().chain(&rows).map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2)];
        for row in [&titles].into_iter().chain(&rows) {
            let line = format!(
                "  {:<3$}  {:<4$}  {:<5$}  {last}",
                row[0],
                row[1],
                row[2],
                widths[0],
                widths[1],
                widths[2],
                last = row[3]
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        let notes = self.notes.iter().map(|note| ("note", note.to_string()));
        let lines = self.advice().into_iter().chain([("assumed", self.assumption())]).chain(notes);
        lines.into_iter().try_for_each(|(name, text)| writeln!(f, "  {name:<13}{text}"))
    }
}

/// Returns the cells of a setting in the table: each with both ends of the range.
fn cells(estimated: &Estimated) -> [String; 4] {
    let Estimated { low, high } = estimated;
    let between = |text: fn(f64) -> String, figure: fn(&Outcome) -> f64| {
        let (one, other) = (figure(low), figure(high));
        let (least, most) = (text(one.min(other)), text(one.max(other)));
        if least == most { least } else { format!("{least} – {most}") }
    };
    let latency = |ns: f64| Unit::Ns.human(ns);
    let batch = match low.setting {
        Setting::Alone => String::new(),
        _ => between(hours, |outcome| outcome.batch_per_day_s),
    };
    let p50 = between(latency, |outcome| outcome.figures.p50_ns as f64);
    [name(low.setting), batch, p50, between(latency, |outcome| outcome.figures.p99_ns as f64)]
}

fn name(setting: Setting) -> String {
    match setting {
        Setting::Alone => "alone".to_owned(),
        Setting::Unmanaged => "batch without sidelane".to_owned(),
        Setting::Lent(policy, None) => policy.to_string(),
        Setting::Lent(policy, Some(objective)) => format!("{policy}, {}", format_objective(objective)),
    }
}

fn hours(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 3_600.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3_600.0),
    }
}

/// Returns an objective somewhat above what the service has alone, in two digits.
fn objective_of(alone_p99_ns: u64) -> Objective {
    let limit_ns = alone_p99_ns.max(1_000) as f64 * OBJECTIVE_FACTOR;
    let unit = 10_f64.powf(limit_ns.log10().floor() - 1.0);
    Objective { percentile: 99.0, limit_ns: ((limit_ns / unit).ceil() * unit) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objective_has_two_digits() {
        assert_eq!(objective_of(85_000).limit_ns, 130_000);
        assert_eq!(objective_of(4_000_000).limit_ns, 6_000_000);
    }

    #[test]
    fn cpu_time_is_shown_in_its_best_unit() {
        assert_eq!((hours(71_000.0).as_str(), hours(90.0).as_str()), ("19.7 h", "2 min"));
    }
}
