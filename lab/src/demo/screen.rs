//! The first screen of the demo: what was done, three numbers, p99 as bars, the lanes as strips, and the page's address.
//!
//! It has at most 80 columns and 24 lines, and needs no colours. What missed its bound, or is undecided, is one line.

use sidelane_report::grid::{Ink, fold};
use sidelane_report::{Class, LaneTrack, ResultFile, Row, Unit, Verdict};

/// Width of the screen.
const WIDTH: usize = 80;
/// Width of the names before bars and strips.
const NAME_WIDTH: usize = 21;
/// Width of a value after a bar.
const VALUE_WIDTH: usize = 9;
/// Number of cells of a bar or a strip.
const CELLS: usize = WIDTH - NAME_WIDTH - VALUE_WIDTH;
/// Settings that the screen shows, with their names there.
const SETTINGS: [(&str, &str); 3] =
    [("alone", "alone"), ("unmanaged", "without Sidelane"), ("borrow_idle", "with Sidelane")];

/// Renders the screen for the page at `page`.
pub fn render(result: &ResultFile, page: &str, color: bool) -> String {
    let ink = Ink { color };
    let story = fold(&story(result), WIDTH).join("\n") + "\n";
    let adaptation = result.text("adaptation").map_or_else(String::new, |text| format!("{text}. "));
    let quiet = quiet_lines(&(adaptation + &open_checks(result)), ink);
    let parts = [story, numbers(result, ink), bars(result, ink), strips(result, ink), quiet];
    let parts = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    format!("{parts}page: {page}    all figures: add -v\n")
}

fn row<'a>(result: &'a ResultFile, setting: &str) -> Option<&'a Row> {
    result.rows.iter().find(|row| row.setting() == setting)
}

fn number(result: &ResultFile, key: &str) -> f64 {
    result.settings.get(key).and_then(serde_json::Value::as_f64).unwrap_or_default()
}

/// Returns one or two sentences on what was done.
fn story(result: &ResultFile) -> String {
    let lanes = result.text("lanes").unwrap_or_default();
    let (request, batch) = lanes.split_once(':').unwrap_or((lanes, lanes));
    let core = result.text("sibling").map_or_else(String::new, |sibling| format!(" ({sibling})"));
    format!(
        "A search service had CPU {request} at {:.0} % load, and batch ({}) wanted CPU {batch}{core}: {:.0} rounds of \
         {:.1} s alone, beside batch without Sidelane, and with it.",
        number(result, "load_percent"),
        result.text("batch").unwrap_or_default(),
        number(result, "rounds_count"),
        number(result, "run_s"),
    )
}

/// Returns the three numbers that matter.
fn numbers(result: &ResultFile, ink: Ink) -> String {
    let over_alone = |setting| row(result, setting)?.get("p99_over_alone");
    let share = row(result, "borrow_idle").and_then(|row| row.get("batch_share_of_idle_percent"));
    let times = |ratio: Option<f64>| ratio.map_or_else(|| "?".to_owned(), |ratio| format!("{ratio:.2}×"));
    let line = |value: String, text: &str| format!("  {}  {text}\n", ink.bold(&format!("{value:>6}")));
    [
        line(times(over_alone("unmanaged")), "p99 of searches beside batch, compared with alone, without Sidelane"),
        line(times(over_alone("borrow_idle")), "the same with Sidelane"),
        line(
            share.map_or_else(|| "?".to_owned(), |share| format!("{share:.0} %")),
            "of the service's idle time used by batch with Sidelane",
        ),
    ]
    .concat()
}

/// Returns p99 of each setting as a bar. The bars are those ratios to alone that the numbers show: medians over the
/// rounds of pairs, which the medians of each setting need not have.
fn bars(result: &ResultFile, ink: Ink) -> String {
    let value = |(setting, name): &(&'static str, &'static str)| {
        let row = row(result, setting)?;
        let p99_us = row.get("socket_p99_us").or_else(|| row.get("p99_us"));
        match *setting {
            "alone" => Some((*name, 1.0, Unit::Us.human(p99_us?))),
            _ => row.get("p99_over_alone").map(|ratio| (*name, ratio, format!("{ratio:.2}×"))),
        }
    };
    let values: Vec<(&str, f64, String)> = SETTINGS.iter().filter_map(value).collect();
    let most = values.iter().map(|(_, ratio, _)| *ratio).fold(1.0, f64::max);
    let line = |(name, ratio, label): &(&str, f64, String)| {
        let cells = ((ratio / most * CELLS as f64).round() as usize).max(1);
        let bar = "█".repeat(cells);
        let bar = if *name == "without Sidelane" { ink.red(&bar) } else { ink.green(&bar) };
        format!("p99 {name:width$}{bar} {label}\n", width = NAME_WIDTH - "p99 ".len())
    };
    values.iter().map(line).collect()
}

/// Returns the lanes over some milliseconds, without and with Sidelane.
fn strips(result: &ResultFile, ink: Ink) -> String {
    let mut lines = String::new();
    let mut length_us: f64 = 0.0;
    for (setting, name) in &SETTINGS[1..] {
        let Some(timeline) = result.timelines.iter().find(|timeline| timeline.setting == *setting) else { continue };
        length_us =
            timeline.lanes.iter().filter_map(|lane| lane.spans.last()).map(|span| span.to_us).fold(0.0, f64::max);
        let request = timeline.lanes.first();
        for (at, lane) in timeline.lanes.iter().enumerate() {
            let name = if at == 0 { *name } else { "" };
            let cells: String = (0..CELLS).map(|cell| strip_cell(lane, request, cell, length_us, ink)).collect();
            lines.push_str(&format!("{name:NAME_WIDTH$}{cells} CPU {}\n", lane.cpu));
        }
    }
    if lines.is_empty() {
        return lines;
    }
    let overlap = ink.red("▓");
    format!(
        "{} of {} (█ search, ▒ batch, {overlap} batch while a search runs)\n{lines}",
        ink.bold("lanes"),
        Unit::Us.human(length_us)
    )
}

/// Returns one cell of a strip: what had the lane for the longest part of the cell's time.
fn strip_cell(lane: &LaneTrack, request: Option<&LaneTrack>, cell: usize, length_us: f64, ink: Ink) -> String {
    let (from, to) = (cell as f64 * length_us / CELLS as f64, (cell + 1) as f64 * length_us / CELLS as f64);
    let time_of = |lane: &LaneTrack, class: Class| -> f64 {
        let spans = lane.spans.iter().filter(|span| span.class == class);
        spans.map(|span| (span.to_us.min(to) - span.from_us.max(from)).max(0.0)).sum()
    };
    let half = (to - from) / 2.0;
    let has_search = request.is_some_and(|request| time_of(request, Class::Lc) >= half);
    match (time_of(lane, Class::Lc) >= half, time_of(lane, Class::Batch) >= half) {
        (true, _) => ink.green("█"),
        (_, true) if has_search => ink.red("▓"),
        (_, true) => ink.yellow("▒"),
        _ => ink.dim("·"),
    }
}

/// Returns what missed its bound or is undecided; empty if all checks hold.
fn open_checks(result: &ResultFile) -> String {
    let names = |verdict: Verdict| -> Vec<String> {
        let checks = result.checks.iter().filter(|check| check.verdict == verdict);
        checks
            .map(|check| format!("{} ({}, wanted {})", check.name, check.measured_text(), check.bound_text()))
            .collect()
    };
    let parts = [("Not reached here", names(Verdict::Missed)), ("Undecided", names(Verdict::Undecided))];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    parts.map(|(title, names)| format!("{title}: {}.", names.join(", "))).collect::<Vec<_>>().join(" ")
}

fn quiet_lines(text: &str, ink: Ink) -> String {
    fold(text, WIDTH).iter().map(|line| ink.dim(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sidelane_report::grid::display_width;
    use sidelane_report::{Check, Role, Span, Timeline};

    fn timeline(setting: &str, batch: Class) -> Timeline {
        let span = |from_us, to_us, class| Span { from_us, to_us, class };
        let request = vec![span(0.0, 30_000.0, Class::Lc), span(30_000.0, 60_000.0, Class::Idle)];
        let batch = vec![span(0.0, 30_000.0, batch), span(30_000.0, 60_000.0, Class::Batch)];
        let lane = |cpu, role, spans| LaneTrack { cpu, role, spans };
        Timeline {
            setting: setting.to_owned(),
            lanes: vec![lane(0, Role::Request, request), lane(1, Role::Batch, batch)],
        }
    }

    fn demo_result() -> ResultFile {
        let settings = json!({
            "lanes": "0:1", "batch": "matrix", "load_percent": 50.0, "rounds_count": 8, "run_s": 1.5,
            "sibling": "emulated sibling, 40 %",
            "adaptation": "Equal runs without batch differ by 8 % in p99 here: the load is 50 %, and p99 may be 1.08× alone",
        });
        let mut result = ResultFile::new(
            sidelane_diagnostics::machine::describe(sidelane_host::topology::PairKind::Declared),
            settings.as_object().cloned().unwrap(),
        );
        for (setting, p99_us, ratio) in
            [("alone", 28_300.0, 1.0), ("unmanaged", 148_000.0, 5.4), ("borrow_idle", 25_000.0, 1.04)]
        {
            let mut row = Row::new(setting);
            row.put("p99_us", p99_us);
            row.put("p99_over_alone", ratio);
            row.put("batch_share_of_idle_percent", 93.0);
            result.rows.push(row);
        }
        result.timelines = vec![timeline("unmanaged", Class::Batch), timeline("borrow_idle", Class::Holder)];
        result.checks = vec![Check::at_least("idle time used by batch and others", 84.0, 97.0, Unit::Percent)];
        result
    }

    #[test]
    fn screen_has_three_numbers_bars_strips_and_the_page() {
        let screen = render(&demo_result(), "out/demo/index.html", false);
        assert!(screen.lines().all(|line| display_width(line) <= WIDTH), "{screen}");
        assert!(screen.lines().count() <= 24, "{} lines: {screen}", screen.lines().count());
        for text in ["5.40×", "1.04×", "93 %", "page: out/demo/index.html", "Not reached here: idle time used"] {
            assert!(screen.contains(text), "no `{text}` in: {screen}");
        }
        let strip = |name: &str| {
            screen
                .lines()
                .skip_while(|line| !line.starts_with("lanes"))
                .skip_while(|line| !line.starts_with(name))
                .nth(1)
                .unwrap()
                .to_owned()
        };
        assert_eq!(strip("without Sidelane").matches('▓').count(), CELLS / 2 + CELLS % 2, "{screen}");
        assert_eq!(strip("with Sidelane").matches('▓').count(), 0, "{screen}");
    }

    #[test]
    fn longest_bar_is_that_of_unmanaged_batch() {
        let bars = bars(&demo_result(), Ink { color: false });
        let cells: Vec<usize> = bars.lines().map(|line| line.matches('█').count()).collect();
        assert_eq!((cells[1], cells[0] < 12, cells[2] < 12), (CELLS, true, true), "{bars}");
    }
}
