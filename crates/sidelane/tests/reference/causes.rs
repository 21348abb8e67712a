//! `docs/reference/causes.md` has each cause of slow requests, with what to do.

use std::collections::BTreeSet;

use sidelane_timeline::advice::general_advice;
use sidelane_timeline::cause::Cause;

use crate::pages::{check_generated_parts, code_spans, escape_for_cell, section, tables};

const PAGE: &str = "reference/causes.md";
const PART: &str = "causes";
const HEADER: &str = "| key | cause | precedence | records | what to do |\n|---|---|---|---|---|\n";

/// Returns the key of a cause in results: `run-queue`.
fn key(cause: Cause) -> String {
    let name = format!("{cause:?}");
    let dash = |at: usize, letter: char| (at > 0 && letter.is_ascii_uppercase()).then_some('-');
    let letters = name.char_indices().flat_map(|(at, letter)| [dash(at, letter), Some(letter.to_ascii_lowercase())]);
    letters.flatten().collect()
}

fn row(cause: Cause) -> String {
    let kinds: Vec<String> = cause.required_kinds().iter().map(|kind| format!("{kind:?}")).collect();
    let precedence = match cause.precedence() {
        0 => String::new(),
        precedence => precedence.to_string(),
    };
    let (words, kinds, advice) =
        (escape_for_cell(cause.name()), kinds.join(", "), escape_for_cell(general_advice(cause)));
    format!("| `{}` | {words} | {precedence} | {kinds} | {advice} |\n", key(cause))
}

#[test]
fn each_cause_has_its_row() {
    let rows: String = Cause::ALL.into_iter().map(row).collect();
    check_generated_parts(PAGE, &[(PART.to_owned(), format!("{HEADER}{rows}"))]);
}

#[test]
fn each_cause_has_its_meaning() {
    let rows = tables(&section(PAGE, "What each means")).into_iter().flat_map(|table| table.rows);
    let named: BTreeSet<String> = rows.filter_map(|row| code_spans(&row[0]).next().map(str::to_owned)).collect();
    assert_eq!(named, Cause::ALL.into_iter().map(key).collect(), "rows of docs/{PAGE}, and causes of the code");
}
