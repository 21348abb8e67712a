//! `docs/reference/agent-file.md` has a row for each key that the agent's file may have, with its default.

use std::collections::{BTreeMap, BTreeSet};

use sidelane_agent::config::{Config, Problem};

use crate::pages::{code_spans, read_page, sections, tables};

const PAGE: &str = "reference/agent-file.md";
/// Key that no table has.
const NO_KEY: &str = "zzzzzzzz";
/// Keys, each with its table, that the reader knows only to refuse them with a better reason.
const REFUSED: [(&str, &str); 1] = [("kubernetes", "cpus")];
/// File with each table, in which all settings with a default have it.
const WITH_DEFAULTS: &str = "
[[service]]
name = \"a\"
port = 1
slo = \"p99=1s\"
[[batch]]
cgroup = \"/b\"
[lanes]
[[proxy]]
listen = \":1\"
active = \"127.0.0.1:2\"
[trace]
dir = \"/d\"
[hurry]
";

fn problems(text: &str) -> Vec<Problem> {
    Config::parse("a.toml", text).map_or_else(|problems| problems.all, |_| Vec::new())
}

/// Returns the keys that a table may have: the reader names them when it refuses another. An empty `table` means the
/// top level of the file.
fn allowed_keys(table: &str) -> BTreeSet<String> {
    let path = if table.is_empty() { NO_KEY.to_owned() } else { format!("{table}.{NO_KEY}") };
    let headers = match table {
        "" => vec![String::new()],
        table => vec![format!("[{table}]\n"), format!("[[{table}]]\n")],
    };
    let found = headers.iter().flat_map(|header| problems(&format!("{header}{NO_KEY} = 1\n")));
    let refused: Vec<Problem> = found.filter(|problem| problem.key == path).collect();
    refused.iter().flat_map(|problem| code_spans(&problem.advice)).map(str::to_owned).collect()
}

/// Rows of the page, by table and key: the default is the cell under `default`.
fn rows() -> BTreeMap<(String, String), String> {
    let mut rows = BTreeMap::new();
    for section in sections(&read_page(PAGE)) {
        let of_section = code_spans(&section.heading).next().unwrap_or_default().to_owned();
        for table in tables(&section.text).iter().filter(|table| table.header[0] == "key") {
            let default = table.header.iter().position(|cell| cell == "default").expect("a table of keys has defaults");
            for row in &table.rows {
                let mut names = code_spans(&row[0]);
                let key = names.next().expect("a row begins with a key");
                let owner = names.next().unwrap_or(&of_section).trim_matches(['[', ']']);
                rows.insert((owner.to_owned(), key.to_owned()), row[default].clone());
            }
        }
    }
    rows
}

#[test]
fn each_key_of_the_agents_file_has_its_row() {
    let top = allowed_keys("");
    assert!(top.contains("service") && top.contains("policy"), "{top:?}");
    let of_table = |table: &String| allowed_keys(table).into_iter().map(|key| (table.clone(), key)).collect::<Vec<_>>();
    let is_refused = |(table, key): &(String, String)| REFUSED.contains(&(table, key));
    let known: BTreeSet<(String, String)> = top.iter().flat_map(of_table).filter(|key| !is_refused(key)).collect();
    let tables: BTreeSet<&String> = known.iter().map(|(table, _)| table).collect();
    assert_eq!(tables, top.iter().collect(), "each key of the file as a whole is a table");
    let rows: BTreeSet<(String, String)> = rows().into_keys().collect();
    let missing: Vec<_> = known.difference(&rows).collect();
    let gone: Vec<_> = rows.difference(&known).collect();
    assert!(missing.is_empty() && gone.is_empty(), "docs/{PAGE}: rows are missing: {missing:?}; of no key: {gone:?}");
}

/// A default that is a value is in the row of its key. The page describes other defaults in words.
#[test]
fn each_default_of_the_agents_file_is_in_its_row() {
    let config = Config::parse("a.toml", WITH_DEFAULTS).expect("it is right");
    let rows = rows();
    let is_value = |value: &str| value.starts_with(|letter: char| letter == '"' || letter.is_ascii_digit());
    let settings = config.settings.iter().filter(|setting| setting.line.is_none());
    let (mut seen, mut wrong) = (0, Vec::new());
    for setting in settings.filter(|setting| is_value(&setting.value) || setting.value.parse::<bool>().is_ok()) {
        let (table, key) = setting.key.rsplit_once('.').expect("a setting is in a table");
        let table = table.split('[').next().unwrap_or(table);
        let row = rows.get(&(table.to_owned(), key.to_owned()));
        seen += 1;
        if !row.is_some_and(|default| code_spans(default).any(|span| span == setting.value)) {
            wrong.push(format!("{}: {}, and the page says {}", setting.key, setting.value, row.map_or("", |it| it)));
        }
    }
    assert!(seen > 20, "{seen} defaults were seen");
    assert!(wrong.is_empty(), "docs/{PAGE}: other defaults:\n{}", wrong.join("\n"));
}
