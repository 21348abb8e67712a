//! `docs/reference/exit-codes.md` has each exit code, and each verb.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory};
use sidelane::cli::Cli;

use crate::pages::{code_spans, read_page, section, tables};
use crate::sources::product;

const PAGE: &str = "reference/exit-codes.md";

#[test]
fn each_exit_code_has_its_row() {
    let mut constants: BTreeSet<i64> = product().flat_map(|(_, found)| found.exit_codes.values().copied()).collect();
    // The library that parses the command line has a code of its own.
    let wrong = Cli::command().try_get_matches_from(["sidelane", "--no-such-option"]).expect_err("it is refused");
    constants.insert(wrong.exit_code().into());
    let text = read_page(PAGE);
    let table = tables(&text).into_iter().find(|table| table.header[0] == "code").expect("a table of codes");
    // `128 + number` is no code of Sidelane.
    let cells = table.rows.iter().filter(|row| !row[0].contains('+')).flat_map(|row| row[0].split(", "));
    let codes: BTreeSet<i64> = cells.map(|code| code.parse().expect("a number")).collect();
    assert_eq!(codes, constants, "codes of docs/{PAGE}, and constants EXIT_… of the code");
}

/// Returns the verbs that users see, as they are typed.
fn visible_verbs(command: &Command, parent_verbs: &str) -> Vec<String> {
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    let name = |verb: &Command| format!("{parent_verbs}{}", verb.get_name());
    shown.flat_map(|verb| [name(verb)].into_iter().chain(visible_verbs(verb, &format!("{} ", name(verb))))).collect()
}

#[test]
fn each_verb_has_its_exit_codes() {
    // `sidelane agent example` cannot fail on any machine, so the page has no row for it.
    let known: BTreeSet<String> =
        visible_verbs(&Cli::command(), "").into_iter().filter(|verb| verb != "agent example").collect();
    let rows = tables(&section(PAGE, "By verb")).into_iter().flat_map(|table| table.rows);
    let named: BTreeSet<String> =
        rows.flat_map(|row| code_spans(&row[0]).map(str::to_owned).collect::<Vec<_>>()).collect();
    assert_eq!(named, known, "verbs of docs/{PAGE}, and of --help");
}
