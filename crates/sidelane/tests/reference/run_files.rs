//! `docs/reference/files.md` has each file, socket, group and environment variable.

use std::collections::BTreeSet;

use crate::pages::{code_spans, matches_pattern, read_page, section, tables};
use crate::sources::product;

const PAGE: &str = "reference/files.md";
/// Sections whose rows begin with a name that Sidelane gives to a file, cgroup or memory.
const NAMED: [&str; 3] = ["Files in `/run`", "Cgroups", "Shared memory"];
/// Prefix of each name that Sidelane gives to a file, cgroup or memory.
const OWN: &str = "sidelane-";
/// Names that are no files: an HTTP header field, and the proxy as a service in exported traces.
const OTHERS: [&str; 2] = ["sidelane-request", "sidelane-proxy"];

/// Returns the names in the code as patterns. A value in a name stands for any text, and any text may follow a name
/// that ends with `-`.
fn sidelane_file_patterns() -> BTreeSet<String> {
    let texts = product().flat_map(|(_, found)| &found.texts);
    let names = texts.filter_map(|text| text.strip_prefix("/run/").or(Some(text)).filter(|text| text.starts_with(OWN)));
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-.{}_".contains(letter);
    let names = names.filter(|name| !OTHERS.contains(name) && name.chars().all(is_name));
    names.map(pattern).collect()
}

fn pattern(name: &str) -> String {
    let mut pattern = String::new();
    let mut is_value = false;
    for letter in name.chars() {
        match letter {
            '{' => is_value = true,
            '}' => {
                is_value = false;
                pattern.push('*');
            }
            letter if !is_value => pattern.push(letter),
            _ => {}
        }
    }
    if pattern.ends_with('-') { pattern + "*" } else { pattern }
}

/// Returns the names in a text's code spans that begin with `sidelane-`, without their folders.
fn sidelane_file_names(text: &str) -> BTreeSet<String> {
    let last = |span: &str| span.rsplit('/').next().unwrap_or(span).to_owned();
    code_spans(text).map(last).filter(|name| name.starts_with(OWN)).collect()
}

#[test]
fn each_file_and_group_has_its_row() {
    let patterns = sidelane_file_patterns();
    assert!(patterns.len() > 10, "{patterns:?}");
    let documented = sidelane_file_names(&read_page(PAGE));
    let missing: Vec<&String> =
        patterns.iter().filter(|pattern| !documented.iter().any(|name| matches_pattern(pattern, name))).collect();
    let rows = NAMED.iter().flat_map(|heading| sidelane_file_names(&section(PAGE, heading)));
    let gone: Vec<String> =
        rows.filter(|name| !patterns.iter().any(|pattern| matches_pattern(pattern, name))).collect();
    assert!(missing.is_empty() && gone.is_empty(), "docs/{PAGE} lacks {missing:?}; the code has no {gone:?}");
}

#[test]
fn each_environment_variable_has_its_row() {
    let is_own = |text: &&String| {
        text.strip_prefix("SIDELANE_").is_some_and(|rest| rest.chars().all(|it| it.is_ascii_uppercase() || it == '_'))
    };
    let (mut read, mut all) = (BTreeSet::new(), BTreeSet::new());
    for (_, found) in product() {
        read.extend(found.variables.iter().chain(found.texts.iter().filter(is_own)).map(String::as_str));
        all.extend(found.texts.iter().map(String::as_str));
    }
    let text = section(PAGE, "Environment variables");
    let tables = tables(&text);
    let rows: BTreeSet<&str> =
        tables.iter().flat_map(|table| &table.rows).filter_map(|row| code_spans(&row[0]).next()).collect();
    let missing: Vec<_> = read.difference(&rows).collect();
    let gone: Vec<_> = rows.difference(&all).collect();
    assert!(missing.is_empty() && gone.is_empty(), "docs/{PAGE} lacks {missing:?}; the code has no {gone:?}");
}
