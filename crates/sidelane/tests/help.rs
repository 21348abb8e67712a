//! Tests that the help of every verb fits into narrow terminals, and is complete.

use std::process::Command;

use clap::{Command as Verb, CommandFactory, Parser};
use sidelane::cli::Cli;

const SIDELANE: &str = env!("CARGO_BIN_EXE_sidelane");

/// Returns each verb with its parent verbs, as a user types them.
fn verb_paths(verb: &Verb, parents: &[String]) -> Vec<Vec<String>> {
    let shown = verb.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    let below = shown.flat_map(|verb| verb_paths(verb, &[parents, &[verb.get_name().to_owned()]].concat()));
    std::iter::once(parents.to_vec()).chain(below).collect()
}

fn help(verb: &[String], columns: usize) -> String {
    let output = Command::new(SIDELANE).args(verb).arg("--help").env("COLUMNS", columns.to_string()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn no_line_of_help_is_wider_than_the_terminal() {
    let verbs = verb_paths(&Cli::command(), &[]);
    assert!(verbs.len() > 15, "{verbs:?}");
    let mut wide = Vec::new();
    for columns in [60, 100] {
        for verb in &verbs {
            let help = help(verb, columns);
            assert!(help.contains("Usage:"), "{verb:?}: {help}");
            // A usage line contains a command, which may have any length.
            let prose = help.lines().filter(|line| !line.starts_with("Usage: "));
            let lines = prose.filter(|line| line.chars().count() > columns);
            wide.extend(lines.map(|line| format!("{columns}: {}: {line}", verb.join(" "))));
        }
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

/// A help text with its own line breaks would leave some lines half empty.
#[test]
fn sentences_of_help_fill_each_line() {
    let goes_on = |line: &str| line.starts_with(char::is_alphanumeric) && !line.ends_with(['.', ':']);
    let length = |text: &str| text.chars().count();
    let mut broken = Vec::new();
    for columns in [60, 100] {
        for verb in verb_paths(&Cli::command(), &[]) {
            let help = help(&verb, columns);
            let lines: Vec<&str> = help.lines().collect();
            let pairs = lines.windows(2).filter(|pair| goes_on(pair[0]) && pair[1].starts_with(char::is_alphanumeric));
            let has_room = |pair: &&[&str]| {
                let word = pair[1].split(' ').next().unwrap_or_default();
                length(pair[0]) + 1 + length(word) <= columns
            };
            broken.extend(pairs.filter(has_room).map(|pair| format!("{columns}: {}: {}", verb.join(" "), pair[0])));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_word_of_help_is_there_at_any_width() {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for verb in verb_paths(&Cli::command(), &[]) {
        assert_eq!(words(&help(&verb, 60)), words(&help(&verb, 100)), "{verb:?}");
    }
}

/// A new user reads only the first lines of help.
#[test]
fn help_begins_with_two_valid_commands() {
    for verb in verb_paths(&Cli::command(), &[]) {
        let help = help(&verb, 200);
        let (first, _) = help.split_once("Usage:").unwrap();
        let commands: Vec<&str> = first.lines().filter_map(|line| line.strip_prefix("  sidelane ")).collect();
        assert_eq!(commands.len(), 2, "{verb:?}: {first}");
        for command in commands {
            let (command, _) = command.split_once(" >").unwrap_or((command, ""));
            // The formula of `calibrate` is quoted, and comes last.
            let words: Vec<&str> = match command.split_once(" '") {
                Some((before, quoted)) => before.split(' ').chain([quoted.trim_end_matches('\'')]).collect(),
                None => command.split(' ').collect(),
            };
            let parsed = Cli::try_parse_from(std::iter::once("sidelane").chain(words));
            assert!(parsed.is_ok(), "{verb:?}: {command}: {}", parsed.unwrap_err());
        }
    }
}
