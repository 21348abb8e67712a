//! `docs/reference/results.md`, and pages of logs: each key that a verb writes has its line in the sections about it.

use std::collections::BTreeSet;
use std::fs;

use sidelane_report::Unit;

use crate::files::root;
use crate::pages::{Section, Table, code_spans, matches_pattern, read_page, sections, tables};
use crate::sources::{Crate, facts_by_crate_folder, product};

/// Pages that describe JSON, and files that `sim` reads.
const PAGES: [&str; 5] = [
    "reference/results.md",
    "reference/files.md",
    "reference/trace-records.md",
    "reference/observation-log.md",
    "reference/scenarios.md",
];
/// Crates that write JSON, each with the headings, or pages, under which its keys are.
const SECTIONS: [(&str, &[&str]); 18] = [
    ("agent", &["`agent show`", "`status`", "Audit log", "Recorded interference", "Pods of a node"]),
    ("compare", &["`compare`", "Results files"]),
    ("diagnostics", &["Audit log"]),
    ("doctor", &["`doctor`", "`calibrate`", "Results files"]),
    ("estimate", &["`estimate`", "Results files"]),
    ("hazards", &["Lines of hazards"]),
    ("hurry", &["`hurry`", "Audit log"]),
    ("lanes", &["`run`", "`status`", "Work of the kernel", "Audit log", "Results files"]),
    ("observe", &["`observe`", "`list`", "Results files", "reference/observation-log.md"]),
    ("proxy", &["`proxy`", "A request of a proxy", "Access log", "Results files"]),
    ("report", &["Results files", "Checks", "Pictures", "`trace`", "Directory of a run", "Exported requests"]),
    ("requests", &["`requests`", "Request log"]),
    ("sim", &["`sim`", "Recording", "Results files", "`doctor`", "Request log", "reference/scenarios.md"]),
    ("stats", &["`report`", "Results files"]),
    ("timeline", &["`trace`"]),
    ("top", &["Files of options"]),
    ("trace", &["`trace`", "The log", "Results files"]),
    ("tracker", &["`run`", "Ledger"]),
];
/// Crates that write no JSON, or whose JSON only Sidelane's own processes or Kubernetes read.
const WITHOUT_KEYS: [&str; 3] = ["rollback", "host", "kube"];
/// Texts that end like a key, but are names of the kernel or of kernel programs.
const OTHER_NAMES: [&str; 4] = ["lane_cycles", "preempt_count", "sched_rt_period_us", "sched_rt_runtime_us"];

/// Returns each section with its page.
fn all_sections() -> Vec<(&'static str, Section)> {
    PAGES.iter().flat_map(|name| sections(&read_page(name)).into_iter().map(|section| (*name, section))).collect()
}

/// Returns whether the heading or the page of a section is among `headings`.
fn is_among(headings: &[&str], (page, section): &(&str, Section)) -> bool {
    headings.iter().any(|heading| heading == page || *heading == section.heading)
}

/// Returns the names in the code spans of a text. A span such as `groups[].signals[]` has several names.
fn names_in_code_spans(text: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let names = code_spans(text).flat_map(|span| span.split(move |letter| !is_name(letter)));
    names.filter(|name| !name.is_empty()).map(|name| name.trim_end_matches('_').to_owned()).collect()
}

/// Converts a text of the code to a pattern of keys, in which each value stands for any text. `None` if the text cannot
/// be a key.
fn to_key_pattern(text: &str) -> Option<String> {
    let mut pattern = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        pattern.push_str(before);
        pattern.push('*');
        rest = after.split_once('}')?.1;
    }
    pattern.push_str(rest);
    let is_key = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_*".contains(letter);
    // A pattern without letters would fit any key.
    let has_letters = pattern.contains(|letter: char| letter.is_ascii_lowercase());
    (pattern.chars().all(is_key) && !pattern.starts_with('_') && has_letters).then_some(pattern)
}

/// Returns the keys that a crate writes, as patterns. The keys of rows end in their unit.
fn written_key_patterns(source_crate: &Crate, writes_json: bool, has_rows: bool) -> BTreeSet<String> {
    let is_row = |text: &&String| Unit::from_key(text).is_some() && !OTHER_NAMES.contains(&text.as_str());
    let rows = source_crate.texts.iter().filter(is_row).filter_map(|text| to_key_pattern(text)).filter(|_| has_rows);
    rows.chain(source_crate.keys.iter().filter(|_| writes_json).cloned())
        .chain(source_crate.fields.iter().cloned())
        .collect()
}

/// Returns whether a crate writes JSON itself, and not only rows of a result.
fn writes_json(name: &str) -> bool {
    fs::read_to_string(root().join("crates").join(name).join("Cargo.toml"))
        .is_ok_and(|text| text.contains("serde_json"))
}

#[test]
fn each_key_of_a_result_has_its_line() {
    let sections = all_sections();
    let mut missing = Vec::new();
    let mut seen = 0;
    for (name, found) in product().filter(|(name, _)| !WITHOUT_KEYS.contains(name)) {
        // The crate `report` shows the rows of all verbs, so keys of rows in its source are not keys that it writes.
        let keys = written_key_patterns(found, writes_json(name), name != "report");
        let headings = SECTIONS.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, headings)| headings);
        let own = sections.iter().filter(|section| is_among(headings, section));
        let known: BTreeSet<String> = own.flat_map(|(_, section)| names_in_code_spans(&section.text)).collect();
        seen += keys.len();
        let lacks = keys.iter().filter(|key| !known.iter().any(|known| matches_pattern(key, known)));
        missing.extend(lacks.map(|key| format!("crates/{name}: {key}")));
    }
    assert!(seen > 300, "{seen} keys were seen");
    assert!(missing.is_empty(), "these keys have no line in the sections of their crate:\n{}", missing.join("\n"));
}

/// Returns the names of keys in a table that has a column for keys.
fn keys_of(table: &Table) -> BTreeSet<String> {
    let column = table.header.iter().position(|cell| cell == "key" || cell.starts_with("key of "));
    let cells = column.iter().flat_map(|column| table.rows.iter().map(|row| row[*column].as_str()));
    cells.flat_map(names_in_code_spans).collect()
}

/// Returns all names that the crates of a section could write. For a section of no crate, returns the names of all
/// crates.
fn names_section_may_use(section: &(&'static str, Section)) -> BTreeSet<String> {
    let own: Vec<&str> =
        SECTIONS.iter().filter(|(_, headings)| is_among(headings, section)).map(|(name, _)| *name).collect();
    let is_own = |folder: &str| own.is_empty() || own.iter().any(|name| folder == format!("crates/{name}"));
    let of = facts_by_crate_folder().iter().filter(|(folder, _)| is_own(folder)).map(|(_, found)| found);
    of.flat_map(|found| found.texts.iter().filter_map(|text| to_key_pattern(text)).chain(found.fields.iter().cloned()))
        .collect()
}

#[test]
fn each_key_in_the_page_exists_in_the_code() {
    let mut seen = 0;
    let mut gone = Vec::new();
    for section in all_sections() {
        let keys: BTreeSet<String> = tables(&section.1.text).iter().flat_map(keys_of).collect();
        let code = if keys.is_empty() { BTreeSet::new() } else { names_section_may_use(&section) };
        let is_known = |name: &&String| {
            // Capitals in a key of the page stand for any name, as in `EVENT_ratio`. So only the text after them is
            // compared.
            let own = name.trim_start_matches(|letter: char| letter.is_ascii_uppercase() || letter == '_');
            let fits_one = || code.iter().any(|key| key.contains('*') && matches_pattern(key, name));
            own.is_empty() || code.contains(own) || fits_one()
        };
        seen += keys.len();
        gone.extend(keys.iter().filter(|key| !is_known(key)).map(|key| format!("{}: {key}", section.1.heading)));
    }
    assert!(seen > 300, "{seen} keys were seen");
    assert!(gone.is_empty(), "the code knows no such keys:\n{}", gone.join("\n"));
}
