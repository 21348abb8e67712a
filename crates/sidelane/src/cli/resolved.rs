//! Options of a command line with their values, also those that have a default.

use clap::{Arg, ArgAction, ArgMatches, CommandFactory};
use serde_json::{Map, Value};

use super::Cli;

/// Options that name files, or say how much is printed: they do not change what is measured.
const OUTPUTS: [&str; 16] = [
    "out",
    "json",
    "page",
    "csv",
    "perfetto",
    "otlp",
    "open",
    "verbose",
    "quiet",
    "status",
    "log",
    "audit",
    "audit_level",
    "access_log",
    "log_format",
    "dry_run",
];

/// Returns the verb of a command line, and its options with their values. Options that were left out and have no
/// default are not there.
pub fn resolved_options(matches: &ArgMatches) -> (String, Map<String, Value>) {
    let Some((verb, matches)) = matches.subcommand() else { return (String::new(), Map::new()) };
    let command = Cli::command();
    let arguments = command.find_subcommand(verb).into_iter().flat_map(|verb| verb.get_arguments());
    let measured = arguments.filter(|arg| !OUTPUTS.contains(&arg.get_id().as_str()));
    let options = measured.filter_map(|arg| Some((name(arg), value(arg, matches)?)));
    (verb.to_owned(), options.collect())
}

/// Returns the name of an option as it is typed, or the name of another argument.
fn name(arg: &Arg) -> String {
    let positional = || arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    arg.get_long().map_or_else(positional, |long| format!("--{long}"))
}

/// Returns the value of an argument: `true` for a flag that is set, else a text, or a list of several.
fn value(arg: &Arg, matches: &ArgMatches) -> Option<Value> {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return matches.get_flag(arg.get_id().as_str()).then_some(Value::Bool(true));
    }
    let given = matches.try_get_raw(arg.get_id().as_str()).ok().flatten()?;
    let mut texts: Vec<Value> = given.map(|text| Value::from(text.to_string_lossy())).collect();
    Some(if texts.len() == 1 { texts.remove(0) } else { Value::Array(texts) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(line: &str) -> (String, Map<String, Value>) {
        resolved_options(&Cli::command().get_matches_from(line.split(' ')))
    }

    #[test]
    fn defaults_are_resolved_and_output_files_left_out() {
        let (verb, options) = resolved("sidelane requests --service port:1 --json out.json --out dir -v");
        assert_eq!(verb, "requests");
        let expected = [("--service", "port:1"), ("--for", "10s")];
        assert_eq!(options, expected.map(|(name, value)| (name.to_owned(), Value::from(value))).into_iter().collect());
    }

    #[test]
    fn flags_lists_and_the_command_are_resolved() {
        let (_, options) = resolved("sidelane run --service port:1 --service port:2 --pin-service -- make -j2");
        assert_eq!(options["--pin-service"], Value::Bool(true));
        assert_eq!(options["--service"], Value::from(vec!["port:1", "port:2"]));
        assert_eq!(options["COMMAND"], Value::from(vec!["make", "-j2"]));
        assert!(!options.contains_key("--allow-realtime") && options["--gate"].is_string());
    }

    #[test]
    fn each_output_is_an_option_of_a_verb() {
        let command = Cli::command();
        let ids: Vec<&str> =
            command.get_subcommands().flat_map(|verb| verb.get_arguments()).map(|arg| arg.get_id().as_str()).collect();
        let unknown: Vec<&&str> = OUTPUTS.iter().filter(|id| !ids.contains(id)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
