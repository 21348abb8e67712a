//! An estimate for users: a table, a recommendation with the command to type, and what is not known.

use serde_json::{Map, json};
use sidelane_diagnostics::note::{Note, notes_as_text};
use sidelane_policy::borrow::{Objective, PolicyKind};
use sidelane_report::grid::{Grid, Ink};
use sidelane_report::{ResultFile, Row, Unit};
use sidelane_requests::objective::format_objective;
use sidelane_sim::recording::{Head, Recording};
use sidelane_sim::tasks::Tasks;

use crate::note::EstimateNote;
use crate::outcome::{Estimated, Outcome, Setting, SlowdownRange, estimate};

pub(crate) const INDENT: &str = "  ";
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
    head: Head,
    headline: String,
    choices: Choices,
    /// Objective that was tried: the user's, or one derived from the recording.
    objective: Objective,
    range: SlowdownRange,
    outcomes: Vec<Estimated>,
    notes: Vec<Note>,
}

impl Estimate {
    /// Simulates what each policy would give beside a recording. `notes` are those of the observation.
    pub fn new(recording: &Recording, choices: Choices, mut notes: Vec<Note>) -> Self {
        let tasks = Tasks::new(recording);
        let alone_p99_ns = tasks.latencies.value_at_quantile(0.99);
        let objective = choices.objective.unwrap_or_else(|| objective_of(alone_p99_ns));
        let range = choices.slowdown.unwrap_or(SlowdownRange::OF_SIBLINGS);
        let outcomes = estimate(recording, &tasks, objective, range);
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
        Self { head: recording.head.clone(), headline: headline(recording), choices, objective, range, outcomes, notes }
    }

    /// Returns the estimate as a result: a row for each setting and each end of the range of slowdowns.
    pub fn to_result(&self) -> ResultFile {
        let mut settings = Map::new();
        settings.insert("service".into(), json!(self.head.service));
        settings.insert("source".into(), json!(self.head.source));
        settings.insert("objective".into(), json!(format_objective(self.objective)));
        settings.insert("recommended".into(), json!(self.recommended().map(|found| self.command(found.low.setting))));
        let mut result = ResultFile::new(self.head.machine.clone(), settings);
        let both = self.outcomes.iter().flat_map(|estimated| [&estimated.low, &estimated.high]);
        result.rows = both.map(|outcome| self.row(outcome)).collect();
        result.notes = notes_as_text(&self.notes);
        result
    }

    fn row(&self, outcome: &Outcome) -> Row {
        let figures = &outcome.figures;
        let mut row = Row::new(format!("{}, slowdown {}", self.name(outcome.setting), outcome.slowdown));
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
    pub(crate) fn recommended(&self) -> Option<&Estimated> {
        let keeps = |estimated: &&Estimated| match estimated.low.setting {
            Setting::Alone | Setting::Unmanaged => false,
            Setting::Lent(policy) if self.choices.objective.is_none() => policy == PolicyKind::BorrowIdle,
            Setting::Lent(_) => self.keeps_objective(&estimated.high),
        };
        let batch_s = |estimated: &Estimated| estimated.batch_ends_s().0;
        let best = self.outcomes.iter().filter(keeps).max_by(|one, other| batch_s(one).total_cmp(&batch_s(other)));
        best.filter(|best| batch_s(best) >= WORTH_S)
    }

    /// Returns the service without batch.
    pub(crate) fn alone(&self) -> &Estimated {
        &self.outcomes[0]
    }

    /// Returns whether something limits the estimate.
    pub(crate) fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    fn keeps_objective(&self, outcome: &Outcome) -> bool {
        outcome.figures.objective_ns.is_some_and(|ns| ns <= self.objective.limit_ns)
    }

    /// Returns the command that shares the lanes in this way.
    fn command(&self, setting: Setting) -> String {
        let lanes = self.head.declared.as_ref().map(|lanes| format!(" --lanes {lanes}")).unwrap_or_default();
        let by = match setting {
            Setting::Lent(policy) if policy.needs_requests() => {
                format!(" --slo {} --policy {policy}", format_objective(self.objective))
            }
            _ => String::new(),
        };
        format!("sidelane run --service {}{lanes}{by} -- COMMAND", self.head.service)
    }

    fn name(&self, setting: Setting) -> String {
        match setting {
            Setting::Alone => "alone".to_owned(),
            Setting::Unmanaged => "batch without sidelane".to_owned(),
            Setting::Lent(policy) if policy.needs_requests() => {
                format!("{policy}, {}", format_objective(self.objective))
            }
            Setting::Lent(policy) => policy.to_string(),
        }
    }

    /// Returns the cells of a setting in the table: each with both ends of the range.
    pub(crate) fn cells(&self, estimated: &Estimated) -> [String; 4] {
        let Estimated { low, high } = estimated;
        let between =
            |text: fn(f64) -> String, figure: fn(&Outcome) -> f64| range_text(text, figure(low), figure(high));
        let latency = |ns: f64| Unit::Ns.human(ns);
        let batch = match low.setting {
            Setting::Alone => String::new(),
            _ => between(hours, |outcome| outcome.batch_per_day_s),
        };
        let p50 = between(latency, |outcome| outcome.figures.p50_ns as f64);
        [self.name(low.setting), batch, p50, between(latency, |outcome| outcome.figures.p99_ns as f64)]
    }

    /// Returns the estimate as text, with a table that fits a terminal of `width` columns.
    pub fn text(&self, width: usize, ink: Ink) -> String {
        let rows: Vec<Vec<String>> = self.outcomes.iter().map(|estimated| self.cells(estimated).into()).collect();
        let table = Grid::draw_indented(&["", "batch, CPU time a day", "p50", "p99"], &rows, width, INDENT, ink);
        let notes = self.notes.iter().map(|note| ("note", note.to_string()));
        let lines = self.advice().into_iter().chain([("assumed", self.assumption())]).chain(notes);
        let lines: String = lines.map(|(name, text)| format!("{INDENT}{name:<13}{text}\n")).collect();
        format!("sidelane: {}\n{table}{lines}", self.headline)
    }

    fn advice(&self) -> Vec<(&'static str, String)> {
        let Some(best) = self.recommended() else {
            return vec![("recommended", self.why_nothing())];
        };
        let mut lines = vec![("recommended", self.command(best.low.setting))];
        if self.choices.objective.is_none() {
            let with_objective = self.outcomes.iter().filter(|estimated| {
                matches!(estimated.low.setting, Setting::Lent(policy) if policy.needs_requests())
                    && self.keeps_objective(&estimated.high)
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
        let alone_ns = self.outcomes.first().and_then(|alone| alone.low.figures.objective_ns);
        if let Some(ns) = alone_ns.filter(|ns| *ns > self.objective.limit_ns && self.choices.objective.is_some()) {
            let (objective, latency) = (format_objective(self.objective), Unit::Ns.human(ns as f64));
            return format!("nothing: the service alone misses {objective}, at {latency}");
        }
        format!("nothing: batch would get under {} of CPU time a day", hours(WORTH_S))
    }

    pub(crate) fn assumption(&self) -> String {
        let SlowdownRange { low, high } = self.range;
        let given = if low == high { format!("{low} times") } else { format!("{low} to {high} times") };
        let beside = format!("requests take {given} as long while batch runs beside them, and so does batch");
        match self.choices.slowdown {
            Some(_) => beside,
            None => format!("{beside}; give another range with --slowdown (`sidelane doctor` measures these CPUs)"),
        }
    }
}

/// Returns what was recorded, in one line.
fn headline(recording: &Recording) -> String {
    let (head, length_s) = (&recording.head, recording.length_ns() as f64 / 1e9);
    let rate = Unit::Count.human((recording.requests.len() as f64 / length_s.max(1e-9)).round());
    format!(
        "{} for {}: {rate} requests/s, CPU {} busy for {}",
        head.service,
        Unit::S.human(length_s),
        head.cpus(),
        Unit::Percent.human(100.0 * recording.busy_share())
    )
}

/// Returns both ends of a range as text, or one text if they read alike.
pub(crate) fn range_text(text: impl Fn(f64) -> String, one: f64, other: f64) -> String {
    let (least, most) = (text(one.min(other)), text(one.max(other)));
    if least == most { least } else { format!("{least} – {most}") }
}

pub(crate) fn hours(seconds: f64) -> String {
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
