//! docs/reference/causes.md says what the code says.

use sidelane_timeline::advice::usual;
use sidelane_timeline::cause::Cause;

const DOCUMENT: &str = include_str!("../../../docs/reference/causes.md");

/// Returns the key of a cause in results: `run-queue`.
fn key(cause: Cause) -> String {
    let name = format!("{cause:?}");
    let dash = |at: usize, letter: char| (at > 0 && letter.is_ascii_uppercase()).then_some('-');
    let letters = name.char_indices().flat_map(|(at, letter)| [dash(at, letter), Some(letter.to_ascii_lowercase())]);
    letters.flatten().collect()
}

/// Returns a cause's row in the first table of that document.
fn row(cause: Cause) -> String {
    let kinds: Vec<String> = cause.needs().iter().map(|kind| format!("{kind:?}")).collect();
    let precedence = match cause.precedence() {
        0 => String::new(),
        precedence => precedence.to_string(),
    };
    format!("| `{}` | {} | {precedence} | {} | {} |", key(cause), cause.words(), kinds.join(", "), usual(cause))
}

#[test]
fn each_cause_has_its_row() {
    let rows: Vec<String> = Cause::ALL.into_iter().map(row).collect();
    let missing: Vec<&String> = rows.iter().filter(|row| !DOCUMENT.lines().any(|line| line == row.as_str())).collect();
    assert!(missing.is_empty(), "docs/reference/causes.md has no such rows:\n{missing:#?}");
    let beginnings: Vec<String> = Cause::ALL.into_iter().map(|cause| format!("| `{}` |", key(cause))).collect();
    let is_of_none = |line: &&str| line.starts_with("| `") && !beginnings.iter().any(|known| line.starts_with(known));
    let of_none: Vec<&str> = DOCUMENT.lines().filter(is_of_none).collect();
    assert!(of_none.is_empty(), "docs/reference/causes.md has rows of no cause:\n{of_none:#?}");
}
