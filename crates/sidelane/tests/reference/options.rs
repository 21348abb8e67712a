//! `docs/reference/options.md`: the tables of options are those of `--help`.

use std::collections::{BTreeMap, BTreeSet};

use clap::builder::{PossibleValue, StyledStr};
use clap::{Arg, ArgAction, Command, CommandFactory};
use sidelane::cli::Cli;

use crate::pages::{check_generated_parts, code_spans, escape_for_cell, read_page, sections, tables};

const PAGE: &str = "reference/options.md";
const HEADER: &str = "| option | value | default | meaning |\n|---|---|---|---|\n";
/// Name of the part with the options of several verbs, and the link to it.
const OF_SEVERAL: &str = "options of several verbs";
const SEE_SEVERAL: &str = "[as of several verbs](#options-of-several-verbs)";
/// An option with the same row in this number of verbs is one of several verbs.
const SEVERAL: usize = 3;
const MUST_BE_GIVEN: &str = "must be given";
/// Number of examples of a verb.
const EXAMPLES: usize = 2;

/// Sections of the page that explain the values of an option in a table headed by its name: heading and values.
type ExplainedValues = BTreeMap<String, (String, BTreeSet<String>)>;

/// Row of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// Longest name of the option, with backticks.
    name: String,
    cells: [String; 4],
    /// Whether the option may be listed among the options of several verbs.
    may_be_shared: bool,
}

impl Row {
    fn new(verb: &Command, arg: &Arg, explained: &ExplainedValues) -> Self {
        let (default, help) = default_and_help(arg);
        let may_be_shared = !arg.is_positional() && default != MUST_BE_GIVEN;
        let meaning = meaning(verb, arg, &help, explained);
        Self { name: name(arg), cells: [names(arg), possible_values_cell(arg), default, meaning], may_be_shared }
    }

    fn line(&self) -> String {
        let cells = self.cells.iter().map(|cell| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") });
        format!("|{}\n", cells.collect::<String>())
    }
}

fn read_explained_values() -> ExplainedValues {
    let mut explained = ExplainedValues::new();
    for section in sections(&read_page(PAGE)) {
        for table in tables(&section.text) {
            let option = table.header[0].trim_matches('`').to_owned();
            if option.starts_with("--") {
                let values = table.rows.iter().flat_map(|row| code_spans(&row[0])).map(str::to_owned).collect();
                explained.insert(option, (section.heading.clone(), values));
            }
        }
    }
    explained
}

fn plain_text(styled: Option<&StyledStr>) -> String {
    let text = styled.map(StyledStr::to_string).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the verbs that users see, each after its parent verbs.
fn visible_verbs(command: &Command) -> Vec<Command> {
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    shown.flat_map(|verb| [verb.clone()].into_iter().chain(visible_verbs(verb))).collect()
}

/// Returns the arguments of a verb that users see, without those that clap adds to each verb.
fn arguments(verb: &Command) -> impl Iterator<Item = &Arg> {
    let of_clap = |arg: &Arg| matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong);
    verb.get_arguments().filter(move |arg| !arg.is_hide_set() && !of_clap(arg))
}

/// Returns all names of an option.
fn names(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("`-{short}`"));
    short.into_iter().chain([name(arg)]).collect::<Vec<_>>().join(", ")
}

/// Returns the name of an option, or of another argument.
fn name(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| format!("`{}`", value_name(arg)), |long| format!("`--{long}`"))
}

fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// Returns the table cell with the possible values of an option.
fn possible_values_cell(arg: &Arg) -> String {
    if !takes_value(arg) || arg.is_positional() {
        return String::new();
    }
    let possible = arg.get_possible_values();
    let names: Vec<String> =
        possible.iter().filter(|it| !it.is_hide_set()).map(|it| format!("`{}`", it.get_name())).collect();
    let value = match names.split_last() {
        None => format!("`{}`", value_name(arg)),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    };
    let is_optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
    if is_optional { format!("{value}, or none") } else { value }
}

/// Returns the table cell with an option's default, and the help text without the default.
fn default_and_help(arg: &Arg) -> (String, String) {
    let help = plain_text(arg.get_long_help().or(arg.get_help()));
    let said = help.split_once(" [default: ").and_then(|(help, rest)| Some((help, rest.strip_suffix(']')?)));
    if let Some((help, default)) = said {
        return (escape_for_cell(&options_in_backticks(default)), help.to_owned());
    }
    let values: Vec<String> = arg.get_default_values().iter().map(|value| value.display().to_string()).collect();
    let default = match (arg.is_required_set(), &values[..]) {
        (true, _) => MUST_BE_GIVEN.to_owned(),
        (_, _) if !takes_value(arg) => "off".to_owned(),
        (_, []) => "none".to_owned(),
        (_, values) => format!("`{}`", values.join(",")),
    };
    (default, help)
}

/// Returns the meaning of each value of an option, or a link to the section that explains the values.
fn value_meanings(arg: &Arg, explained: &ExplainedValues) -> Option<String> {
    let possible: Vec<_> = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect();
    if let Some((heading, known)) = explained.get(name(arg).trim_matches('`')) {
        let missing: Vec<_> = possible.iter().filter(|value| !known.contains(value.get_name())).collect();
        assert!(missing.is_empty(), "docs/{PAGE}: {heading} lacks {missing:?}");
        let link = heading.to_lowercase().replace(' ', "-").replace('`', "");
        return Some(format!("See [{}](#{link})", heading.to_lowercase()));
    }
    let about =
        |value: &PossibleValue| Some(format!("`{}`: {}", value.get_name(), plain_text(Some(value.get_help()?))));
    let values: Vec<String> = possible.iter().filter_map(about).collect();
    (!values.is_empty()).then(|| values.join("; "))
}

/// Returns the table cell with an option's meaning: its help, its values, the options that it needs, and those that it
/// excludes.
fn meaning(verb: &Command, arg: &Arg, help: &str, explained: &ExplainedValues) -> String {
    let mut sentences = vec![help.to_owned()];
    sentences.extend(value_meanings(arg, explained));
    let is_said = |other: &&Arg| help.contains(name(other).trim_matches('`'));
    let among = |ids: &[String]| {
        let others = arguments(verb).filter(|other| ids.contains(&other.get_id().to_string()));
        others.filter(|other| !is_said(other)).map(name).collect::<Vec<_>>().join(", ")
    };
    let conflicts: Vec<String> =
        verb.get_arg_conflicts_with(arg).iter().map(|other| other.get_id().to_string()).collect();
    let (needed, excluded) = (among(&ids_required_by(arg)), among(&conflicts));
    sentences.extend((!needed.is_empty()).then(|| format!("Needs {needed}")));
    sentences.extend((!excluded.is_empty()).then(|| format!("Not with {excluded}")));
    escape_for_cell(&options_in_backticks(&sentences.join(". ")))
}

/// Returns the ids of the arguments that `arg` requires. clap shows these ids only in its debug output.
fn ids_required_by(arg: &Arg) -> Vec<String> {
    let debug = format!("{arg:?}");
    let list = debug.split_once(", requires: [").and_then(|(_, rest)| rest.split_once(']')).map(|(list, _)| list);
    list.into_iter().flat_map(|list| list.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Returns a text in which options such as `--json` are in backticks.
fn options_in_backticks(text: &str) -> String {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let mut words = Vec::new();
    for word in text.split(' ') {
        let begin = word.find("--").filter(|_| !word.contains('`'));
        words.push(match begin {
            Some(begin) if word[begin + 2..].starts_with(|letter: char| letter.is_ascii_lowercase()) => {
                let rest = &word[begin..];
                let end = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
                format!("{}`{}`{}", &word[..begin], &rest[..end], &rest[end..])
            }
            _ => word.to_owned(),
        });
    }
    words.join(" ")
}

/// Returns the first commands among the examples of a verb's help, each after a comment that says what it is for.
fn examples(verb: &Command) -> Vec<String> {
    let texts = [verb.get_before_help(), verb.get_after_help()].into_iter().flatten().map(StyledStr::to_string);
    let mut lines = Vec::new();
    let mut title = None;
    for line in texts.collect::<Vec<_>>().iter().flat_map(|text| text.lines()) {
        let command = line.strip_prefix("  ").filter(|line| line.starts_with("sidelane "));
        match (command, line.strip_suffix(':')) {
            (Some(command), _) => lines.push((title.take(), command.to_owned())),
            (None, about) => title = about.filter(|about| *about != "Examples").map(|about| format!("# {about}")),
        }
    }
    lines.into_iter().take(EXAMPLES).flat_map(|(title, command)| title.into_iter().chain([command])).collect()
}

/// Returns the forms of a verb's command line.
fn usage(verb: &Command) -> Vec<String> {
    let usage = verb.clone().render_usage().to_string();
    let lines = usage.trim_start_matches("Usage:").lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Returns the generated part of the page about a verb whose options have these rows.
fn verb_section(verb: &Command, rows: &[Row], shared_rows: &[Row]) -> String {
    let indented = |lines: Vec<String>| lines.iter().map(|line| format!("    {line}\n")).collect::<String>();
    let mut part = format!("{}.\n\n{}", options_in_backticks(&plain_text(verb.get_about())), indented(usage(verb)));
    let examples = examples(verb);
    if !examples.is_empty() {
        part.push_str(&format!("\nFor example:\n\n{}", indented(examples)));
    }
    if !rows.is_empty() {
        part.push_str(&format!("\n{HEADER}"));
    }
    let (shared, own): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| shared_rows.contains(row));
    own.iter().for_each(|row| part.push_str(&row.line()));
    if !shared.is_empty() {
        let names: Vec<&str> = shared.iter().map(|row| row.name.as_str()).collect();
        part.push_str(&format!("| {} | | | {SEE_SEVERAL} |\n", names.join(", ")));
    }
    part
}

#[test]
fn the_help_of_each_verb_has_two_commands() {
    let mut cli = Cli::command();
    cli.build();
    let count = |verb: &Command| examples(verb).iter().filter(|line| line.starts_with("sidelane ")).count();
    let few: Vec<String> = visible_verbs(&cli)
        .iter()
        .filter(|verb| count(verb) < EXAMPLES)
        .map(|verb| verb.get_name().to_owned())
        .collect();
    assert!(few.is_empty(), "write {EXAMPLES} commands into the help of {few:?}");
}

#[test]
fn each_option_has_its_row() {
    let mut cli = Cli::command();
    cli.build();
    let explained = read_explained_values();
    let with_rows = |verb: Command| {
        let rows: Vec<Row> = arguments(&verb).map(|arg| Row::new(&verb, arg, &explained)).collect();
        (verb, rows)
    };
    let verbs: Vec<(Command, Vec<Row>)> = visible_verbs(&cli).into_iter().map(with_rows).collect();
    assert!(verbs.len() > 15, "{verbs:?}");
    let mut of_several: Vec<Row> = Vec::new();
    for row in verbs.iter().flat_map(|(_, rows)| rows).filter(|row| row.may_be_shared) {
        let count = verbs.iter().filter(|(_, rows)| rows.contains(row)).count();
        if count >= SEVERAL && !of_several.contains(row) {
            of_several.push(row.clone());
        }
    }
    let table = of_several.iter().map(Row::line).collect::<String>();
    let mut parts = vec![(OF_SEVERAL.to_owned(), format!("{HEADER}{table}"))];
    let name = |verb: &Command| verb.get_bin_name().unwrap_or_default().to_owned();
    parts.extend(verbs.iter().map(|(verb, rows)| (name(verb), verb_section(verb, rows, &of_several))));
    check_generated_parts(PAGE, &parts);
}
