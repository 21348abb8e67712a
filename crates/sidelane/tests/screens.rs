//! Tests that the output of commands of README fits terminals of 60 and of 100 columns.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use common::SPIN;
use common::agent::SIDELANE;
use common::lanes::LANES;
use common::redis::busy_redis;
use common::screen::lines_of;
use sidelane_report::grid::display_width;

const WIDTHS: [u16; 2] = [60, 100];
/// Number of columns at which no line is wrapped.
const WITHOUT_END: u16 = 10_000;

/// Returns the absolute path of a file of the repository.
fn repository_path(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).display().to_string()
}

/// Returns the lines of these commands that are longer than the terminal, each with its command.
fn lines_too_long<'a>(commands: impl IntoIterator<Item = Vec<&'a str>>, columns: u16) -> Vec<String> {
    let of_one = |arguments: Vec<&str>| {
        let lines = lines_of(&arguments, columns);
        let shown = lines.iter().any(|line| !line.is_empty());
        assert!(shown, "nothing is shown by {arguments:?}");
        let long = lines.into_iter().filter(|line| display_width(line) > usize::from(columns));
        long.map(|line| format!("{columns}: {}: {line}", arguments[1..].join(" "))).collect::<Vec<_>>()
    };
    commands.into_iter().flat_map(of_one).collect()
}

/// Returns commands as in README, but with shorter measurements.
fn commands_of_a_service<'a>(service: &'a str, log: &'a str) -> Vec<Vec<&'a str>> {
    let beside = |verb: &'static str, more: &[&'static str]| [&[SIDELANE, verb, "--service", service], more].concat();
    let borrow = |verb: &'static str, more: &[&'static str]| beside(verb, &[&["--lanes", LANES], more].concat());
    let rounds = ["--rounds", "1", "--round", "300ms", "--settle", "100ms", "--", "sh", "-c", SPIN];
    let observe = ["--signal", "lane,request", "--period", "10us", "--for", "500ms", "--log"];
    let proxy = ["proxy", "--listen", "127.0.0.1:0", "--active", "127.0.0.1:9001", "--backup", "127.0.0.1:9002"];
    vec![
        vec![SIDELANE, "doctor", "--quick"],
        vec![SIDELANE, "doctor", "--quick", "-v"],
        borrow("run", &["--dry-run", "--", "true"]),
        borrow("run", &["--status", "100ms", "--", "timeout", "1", "sh", "-c", SPIN]),
        borrow("run", &["--slo", "p99=5ms", "--", "timeout", "1", "sh", "-c", SPIN]),
        borrow("run", &["--adopt", "pid:1", "--audit", "/no/such/directory/for/the/audit/log/of/this/run"]),
        borrow("compare", &rounds),
        beside("requests", &["--for", "500ms"]),
        beside("requests", &["--for", "500ms", "-v"]),
        beside("trace", &["--slo", "2ms", "--for", "1s"]),
        beside("hurry", &["--big", "0", "--little", "1", "--for", "1s"]),
        vec![SIDELANE, "list", service],
        [beside("observe", &observe), vec![log]].concat(),
        vec![SIDELANE, "report", log, "--from", "100ms", "--to", "300ms"],
        vec![SIDELANE, "report", log, "-v"],
        [&["timeout", "-s", "INT", "1", SIDELANE], &proxy[..]].concat(),
    ]
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let Some((_turn, server, _client)) = busy_redis() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("redis.log").display().to_string();
    let service = format!("port:{}", server.address().port());
    let commands = |columns| lines_too_long(commands_of_a_service(&service, &log), columns);
    let too_long: Vec<String> = WIDTHS.into_iter().flat_map(commands).collect();
    assert!(too_long.is_empty(), "{}", too_long.join("\n"));
}

/// Returns commands that need no lanes, whose output is the same each time.
fn commands_with_repeatable_output(folder: &Path) -> Vec<Vec<String>> {
    let scenario = |name: &str| repository_path(&format!("lab/scenarios/{name}.toml"));
    let log = |name: &str| repository_path(&format!("crates/sidelane/tests/fixtures/observed/{name}"));
    let file = folder.join("sidelane.toml").display().to_string();
    let example = Command::new(SIDELANE).args(["agent", "example"]).stderr(Stdio::null()).output().unwrap();
    std::fs::write(&file, example.stdout).unwrap();
    let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    vec![
        words(&[SIDELANE, "agent", "check", &file]),
        words(&[SIDELANE, "run", "--service", "port:1", "--", "true"]),
        words(&[SIDELANE, "status"]),
        words(&[SIDELANE, "sim", &scenario("elfen-fig11"), "--quick"]),
        words(&[SIDELANE, "sim", &scenario("chain"), "--quick"]),
        words(&[SIDELANE, "report", &log("jvm.log")]),
        words(&[SIDELANE, "report", &log("jvm.log"), "-v"]),
    ]
}

/// Returns the sequences of letters in these lines. Whole words are not compared, because a long word may be broken at
/// its hyphens and slashes.
fn letter_sequences(lines: &[String]) -> BTreeSet<String> {
    let words = lines.iter().flat_map(|line| line.split(|letter: char| !letter.is_alphabetic()));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[test]
fn no_word_is_cut() {
    let scratch = tempfile::tempdir().unwrap();
    let mut cut = Vec::new();
    for command in commands_with_repeatable_output(scratch.path()) {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let whole = letter_sequences(&lines_of(&command, WITHOUT_END));
        for columns in WIDTHS {
            let lines = lines_of(&command, columns);
            cut.extend(
                letter_sequences(&lines).difference(&whole).map(|word| format!("{columns}: {command:?}: {word}")),
            );
            let long = lines.into_iter().filter(|line| display_width(line) > usize::from(columns));
            cut.extend(long.map(|line| format!("{columns}: {command:?}: {line}")));
        }
    }
    assert!(cut.is_empty(), "{}", cut.join("\n"));
}
