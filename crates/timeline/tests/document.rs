//! docs/causes.md says what the code says.

use sidelane_timeline::advice::usual;
use sidelane_timeline::cause::Cause;

const DOCUMENT: &str = include_str!("../../../docs/causes.md");

/// A cause's row in the table of that document.
fn row(cause: Cause) -> String {
    let kinds: Vec<String> = cause.needs().iter().map(|kind| format!("{kind:?}")).collect();
    let precedence = match cause.precedence() {
        0 => String::new(),
        precedence => precedence.to_string(),
    };
    format!("| {} | {precedence} | {} | {} |", cause.words(), kinds.join(", "), usual(cause))
}

#[test]
fn each_cause_has_its_row() {
    let rows: Vec<String> = Cause::ALL.into_iter().map(row).collect();
    let missing: Vec<&String> = rows.iter().filter(|row| !DOCUMENT.lines().any(|line| line == row.as_str())).collect();
    assert!(missing.is_empty(), "docs/causes.md has no such rows:\n{missing:#?}");
    let written = DOCUMENT.lines().filter(|line| line.starts_with("| ")).count();
    assert_eq!(written, rows.len() + 1, "docs/causes.md has a row of no cause");
}
