//! The page: a result as one HTML file that loads no other file and needs no network.
//!
//! Verdict, checks, tables, notes and charts are plain HTML written here, so they are visible
//! without JavaScript. The script only draws curves, timelines and signals over time, from the JSON
//! embedded in the page. That JSON is the results file itself and can be extracted again.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::check::{Check, Verdict};
use crate::drawing;
use crate::drawing::svg::SERIES;
use crate::markup::{description_list, embed_json, escape, fill, section};
use crate::result::{Machine, Pair, ResultFile};
use crate::row::{Row, split_into_tables};
use crate::table::Column;
use crate::unit::{MISSING, Unit, title_of_key};
use crate::whole_file::{WriteError, write_atomically};

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = concat!(include_str!("page/page.css"), include_str!("page/trace.css"));
/// Scripts of the page. shared.js comes first: the other scripts draw as soon as they are read.
const SCRIPT: &str = concat!(
    include_str!("page/shared.js"),
    include_str!("page/curves.js"),
    include_str!("page/zoom.js"),
    include_str!("page/timelines.js"),
    include_str!("page/series.js"),
    include_str!("page/trace.js"),
);

/// Returns the page of `result` as HTML.
pub fn page(result: &ResultFile) -> String {
    let title = result.title().unwrap_or_else(|| "Sidelane results".to_owned());
    let (opening, explanation) = lead_and_explanation(result);
    fill(
        TEMPLATE,
        &[
            ("title", &escape(&title)),
            ("style", STYLE),
            ("verdict", &draw_verdict(result)),
            ("opening", &opening),
            ("explanation", &explanation),
            ("notes", &draw_notes(&result.notes)),
            ("trace", &result.trace.as_ref().map_or_else(String::new, drawing::trace::draw_trace)),
            ("ratios", &drawing::draw_all_ratios(result)),
            ("checks", &draw_checks(&result.checks)),
            ("series", series_frame(result)),
            ("pictures", &drawing::draw_pictures(result)),
            ("rows", &draw_tables(result)),
            ("figures", &chart_frames(result)),
            ("machine", &draw_machine(&result.machine)),
            ("settings", &draw_settings(result)),
            ("version", &escape(&result.version)),
            ("data", &embed_json(result)),
            ("script", SCRIPT),
        ],
    )
}

/// Writes the page of `result` to `path`, completely or not at all.
pub fn write_page(result: &ResultFile, path: &Path) -> Result<(), WriteError> {
    write_atomically(path, page(result).as_bytes())
}

/// Opens a page in the user's browser. Returns whether that was possible.
pub fn open_page(page: &Path) -> bool {
    let opener =
        Command::new("xdg-open").arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    opener.is_ok_and(|status| status.success())
}

/// Draws the verdict of the checks. A result without checks that has a finding or a trace gets no verdict.
fn draw_verdict(result: &ResultFile) -> String {
    let is_told = result.trace.is_some() || !result.finding().is_empty();
    if is_told && result.checks.is_empty() {
        return String::new();
    }
    let class = if result.checks.is_empty() { "none" } else { css_class(result.outcome()) };
    format!(r#"<p class="verdict {class}">{}</p>"#, escape(&result.verdict()))
}

/// Returns the beginning of the page, and the text after the tables. With a finding, the page begins with it, and the
/// explanation follows the tables. Without a finding, the explanation comes first.
fn lead_and_explanation(result: &ResultFile) -> (String, String) {
    let explanation = explanation(result);
    let finding = result.finding();
    if finding.is_empty() {
        return (explanation, String::new());
    }
    let lead = finding.iter().map(|text| format!("<p class=\"finding\">{}</p>", escape(text)));
    let below = if explanation.is_empty() { explanation } else { section("explanation", "What this is", &explanation) };
    (lead.collect::<Vec<_>>().join("\n"), below)
}

fn explanation(result: &ResultFile) -> String {
    let paragraphs = result.texts("explanation").into_iter().flat_map(|text| text.split("\n\n"));
    let paragraphs: String = paragraphs.map(|text| format!("<p>{}</p>\n", escape(text))).collect();
    if paragraphs.is_empty() { paragraphs } else { format!("<div class=\"explanation\">\n{paragraphs}</div>") }
}

fn draw_notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    format!(
        "<aside aria-labelledby=\"notes\">\n<h2 id=\"notes\">What was missing or degraded</h2>\n\
         <ul>\n{items}</ul>\n</aside>"
    )
}

fn draw_checks(checks: &[Check]) -> String {
    if checks.is_empty() {
        return String::new();
    }
    let lines: String = checks.iter().map(draw_check).collect();
    section(
        "checks",
        "Checks",
        &format!(
            "<table class=\"checks\">\n<thead><tr><th scope=\"col\">Check</th>\
             <th scope=\"col\">Found</th><th scope=\"col\">Wanted</th></tr></thead>\n\
             <tbody>\n{lines}</tbody>\n</table>"
        ),
    )
}

fn css_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Missed => "fails",
        Verdict::Undecided => "open",
    }
}

fn verdict_symbol(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "✓",
        Verdict::Missed => "✗",
        Verdict::Undecided => "?",
    }
}

fn draw_check(check: &Check) -> String {
    let (class, mark, word) = (css_class(check.verdict), verdict_symbol(check.verdict), check.verdict.words());
    format!(
        "<tr class=\"{class}\"><th scope=\"row\">\
         <span class=\"mark\" role=\"img\" aria-label=\"{word}\">{mark}</span>{}</th>\
         <td>{}{}</td><td>{}</td></tr>\n",
        escape(&check.name),
        escape(&check.measured_text()),
        draw_interval(check),
        escape(&check.bound_text()),
    )
}

/// Draws the interval of a check below its number, with its method as a tooltip.
fn draw_interval(check: &Check) -> String {
    let interval = check.interval_text();
    interval.map_or_else(String::new, |interval| {
        format!("<small title=\"95 %: {}\">{}</small>", escape(check.method.name()), escape(&interval))
    })
}

fn draw_tables(result: &ResultFile) -> String {
    if result.rows.is_empty() {
        return String::new();
    }
    let tables: String = split_into_tables(&result.rows).into_iter().map(|rows| draw_table(result, rows)).collect();
    section("rows", "Figures", &tables)
}

fn draw_table(result: &ResultFile, rows: &[Row]) -> String {
    let columns = Column::from_rows(rows);
    let titles: String =
        columns.iter().map(|column| format!("<th scope=\"col\">{}</th>", escape(&column.title))).collect();
    let lines: String = rows.iter().map(|line| draw_row(result, line, &columns)).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"rows\">\n\
         <table class=\"rows\">\n<thead><tr><th scope=\"col\">Setting</th>{titles}</tr></thead>\n\
         <tbody>\n{lines}</tbody>\n</table>\n</div>"
    )
}

fn draw_row(result: &ResultFile, row: &Row, columns: &[Column]) -> String {
    let cells: String = columns.iter().map(|column| draw_cell(&column.cell(row))).collect();
    let swatch = setting_swatch(result, row.setting());
    format!("<tr><th scope=\"row\">{swatch}{}</th>{cells}</tr>\n", escape(row.setting()))
}

fn draw_cell(text: &str) -> String {
    match text {
        MISSING => format!("<td class=\"missing\" aria-label=\"not measured\">{MISSING}</td>"),
        text => format!("<td>{}</td>", escape(text)),
    }
}

/// Draws a square in the colour of the setting's curve, if there is a curve, so that table and curves agree.
fn setting_swatch(result: &ResultFile, setting: &str) -> String {
    let index = result.curves.iter().position(|curve| curve.setting == setting);
    index.map_or_else(String::new, |index| {
        format!("<span class=\"swatch series-{}\" aria-hidden=\"true\"></span>", index % SERIES)
    })
}

/// Returns an empty frame for signals over time, which the script fills. On the page, signals come before the charts
/// that are computed from them.
fn series_frame(result: &ResultFile) -> &'static str {
    if result.series.is_empty() {
        return "";
    }
    "<noscript><p>Signals over time need JavaScript; everything else on this page does not.</p></noscript>\n\
     <div id=\"series\" hidden></div>"
}

/// Returns empty frames for curves and timelines; the script shows the frames that it fills.
fn chart_frames(result: &ResultFile) -> String {
    if result.curves.is_empty() && result.timelines.is_empty() {
        return String::new();
    }
    let without_script = "<noscript><p>The latency curves and lane timelines need JavaScript; \
        everything else on this page does not.</p></noscript>\n";
    without_script.to_owned() + "<div id=\"curves\" hidden></div>\n<div id=\"timelines\" hidden></div>"
}

fn draw_machine(machine: &Machine) -> String {
    let pair = match machine.pair {
        Pair::Smt => "SMT: both lanes are on one core",
        Pair::Declared => "declared: the two lanes share no core",
    };
    let gates = match machine.gates.is_empty() {
        true => "none".to_owned(),
        false => machine.gates.join(", "),
    };
    let measured_on = [
        ("CPU", machine.cpu.clone()),
        ("Lanes online", machine.lanes.to_string()),
        ("Lane pair", pair.to_owned()),
        ("Kernel", machine.kernel.clone()),
        ("Virtual machine", yes_no_unknown(machine.virtual_machine).to_owned()),
        ("Hardware counters", yes_no_unknown(Some(machine.pmu)).to_owned()),
        ("Gates", gates),
        ("Stolen by the hypervisor", steal_time_text(machine)),
    ];
    let noted = machine.notes.iter().map(|note| ("Note", note.clone()));
    let named = measured_on.into_iter().chain(noted);
    description_list(named.map(|(name, text)| (name.to_owned(), text)))
}

fn yes_no_unknown(fact: Option<bool>) -> &'static str {
    match fact {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not known",
    }
}

fn steal_time_text(machine: &Machine) -> String {
    let gap = machine.stolen_gap_max_us.map(|gap_us| format!(", at most {:.2} ms at once", gap_us / 1e3));
    let percent = machine.stolen_percent.map(|percent| format!("{percent:.2} % of the CPUs' time"));
    percent.map_or("not known".to_owned(), |percent| percent + &gap.unwrap_or_default())
}

fn draw_settings(result: &ResultFile) -> String {
    let is_text = |key: &str| ["title", "finding", "explanation"].contains(&key);
    let shown = result.settings.iter().filter(|(key, _)| !is_text(key));
    description_list(shown.map(|(key, value)| setting_text(key, value)))
}

/// Returns name and text of a setting. A number whose key ends in a unit is shown as in the table, any other value
/// unchanged.
fn setting_text(key: &str, value: &Value) -> (String, String) {
    match (Unit::from_key(key), value) {
        (Some(unit), Value::Number(number)) => (title_of_key(key), unit.human_or_missing(number.as_f64())),
        (_, Value::String(text)) => (key.replace('_', " "), text.clone()),
        (_, Value::Array(texts)) if texts.iter().all(Value::is_string) => {
            let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
            (key.replace('_', " "), texts.join(", "))
        }
        (_, value) => (key.replace('_', " "), value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// Returns the JSON that is embedded in a page.
    fn embedded_json(page: &str) -> &str {
        let (_, after) = page.split_once(r#"<script type="application/json" id="data">"#).unwrap();
        after.split_once("</script>").unwrap().0
    }

    #[test]
    fn texts_of_a_result_are_escaped_in_the_page() {
        let evil = "</script><script>alert(1)</script>{{style}}<!--";
        let mut result = sample::demo();
        result.notes = vec![evil.to_owned()];
        result.checks[0].name = evil.to_owned();
        result.settings.insert("title".into(), evil.into());
        let page = page(&result);
        assert!(!page.contains("<script>alert"));
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;{{style}}&lt;!--"));
        assert_eq!(serde_json::from_str::<ResultFile>(embedded_json(&page)).unwrap(), result);
    }

    #[test]
    fn checks_and_table_need_no_script() {
        let page = page(&sample::demo());
        let (html, _) = page.split_once("<script").unwrap();
        assert!(html.contains("1 of 4 checks does not hold"));
        assert!(html.contains("<td>0.24 %</td><td>≤ 0.20 %</td>"));
        assert!(html.contains("<th scope=\"col\">batch share of idle</th>"));
        assert!(html.contains("<td>3.1 ms</td>"));
        assert!(html.contains("declared: the two lanes share no core"));
        assert!(html.contains("The same load ran four times"));
    }

    #[test]
    fn page_opens_with_its_finding_and_names_undecided_checks() {
        let page = page(&sample::undecided_result());
        let (html, _) = page.split_once("<script type").unwrap();
        let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}"));
        let order = ["<h1>", "class=\"finding\">Batch beside search", "id=\"curves\"", "id=\"checks\"", "id=\"rows\""];
        assert!(order.map(place).is_sorted(), "{:?}", order.map(place));
        assert!(place("id=\"rows\"") < place("The same load ran four times"));
        assert!(html.contains("<h1>Sidelane demo (emulated sibling, 40 %)</h1>"));
        assert!(html.contains("1 of 2 checks is undecided; what would decide it: run it without --quick"));
        assert!(html.contains("aria-label=\"undecided\">?</span>"));
        assert!(html.contains("<small title=\"95 %: median, by order statistics\">1.01× to 1.11×</small>"));
    }

    #[test]
    fn trace_page_has_causes_and_advice_without_script() {
        let page = page(&sample::trace_result());
        let (html, _) = page.split_once("<script type").unwrap();
        let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}"));
        let order = [
            "1 of 2 requests took longer",
            "give it a CPU of its own",
            "id=\"spread\"",
            "id=\"slowest\"",
            "id=\"trace\"",
        ];
        assert!(order.map(place).is_sorted(), "{:?}", order.map(place));
        assert!(html.contains("no records of disks") && !html.contains("nothing was checked"));
        assert!(html.contains("data-request=\"7\"") && html.contains("100 µs (usual)"));
    }

    #[test]
    fn texts_of_a_trace_are_escaped_in_the_page() {
        let evil = "\"><script>alert(1)</script>";
        let mut result = sample::trace_result();
        let trace = result.trace.as_mut().unwrap();
        trace.limit_name = evil.into();
        trace.found[0].advice = evil.into();
        trace.found[0].evidence = vec![evil.into()];
        trace.cannot_tell[0].why = evil.into();
        for words in &mut trace.causes {
            (words.name, words.meaning) = (evil.into(), evil.into());
        }
        trace.requests[0].spans[0].words = evil.into();
        let page = page(&result);
        assert!(!page.contains("<script>alert"));
        assert_eq!(serde_json::from_str::<ResultFile>(embedded_json(&page)).unwrap(), result);
    }

    #[test]
    fn charts_need_no_script_and_their_texts_are_escaped() {
        let mut result = sample::demo();
        result.intervals = vec![sample::intervals()];
        result.multiples = vec![sample::multiples()];
        let page = page(&result);
        let (html, _) = page.split_once("<script").unwrap();
        assert!(html.contains("How fast a lane sleeps") && html.contains("to wake, from the paper"));
        assert!(html.contains("class=\"ring series-0\"") && html.contains("class=\"dot series-1\""));
        assert_eq!(html.matches("class=\"panel\"").count(), 2);
        assert!(html.contains("SLO 25 ms") && html.contains("&lt;borrow idle&gt;"));
        assert!(!html.contains("NaN"), "a place that is none");
    }

    #[test]
    fn observation_page_needs_script_for_its_time_line_only() {
        let page = page(&sample::observation());
        let (html, _) = page.split_once("<script type").unwrap();
        assert!(html.contains("&lt;hits&gt; against misses") && html.contains("40 k"));
        assert_eq!(html.matches("<rect class=\"heat\" x=").count(), 3);
        assert!(html.contains("<title>&lt;hits&gt; below 1 k/s; misses 100 k/s to 150 k/s: 3</title>"));
        assert!(html.contains("&lt;read&gt;") && html.contains("<span>75.0 %</span><i style=\"width: 100.0%\">"));
        assert!(html.contains("aria-label=\"not measured\""), "a rate that a value never had");
        assert!(html.contains("id=\"series\"") && html.contains("Signals over time need JavaScript"));
        assert!(!html.contains("NaN"), "a place that is none");
    }

    #[test]
    fn page_loads_no_external_resource() {
        for result in [sample::demo(), sample::observation()] {
            let page = page(&result);
            assert!(page.contains("default-src 'none'"));
            for word in ["src=", "@import", "url(", "fetch(", "//cdn"] {
                assert!(!page.contains(word), "the page has `{word}`");
            }
        }
    }

    #[test]
    fn missing_parts_leave_no_empty_heading() {
        let mut result = sample::demo();
        (result.checks, result.rows, result.notes) = Default::default();
        (result.curves, result.timelines) = Default::default();
        let page = page(&result);
        let (html, _) = page.split_once("<script").unwrap();
        for id in ["checks", "rows", "notes", "curves", "timelines", "series"] {
            assert!(!html.contains(&format!("id=\"{id}\"")), "{id}");
        }
        assert!(html.contains("nothing was checked"));
    }
}
