//! Pages of the reference: their sections, tables and generated parts.

use std::fs;
use std::path::PathBuf;

use crate::files::root;

/// Environment variable. If it is set, these tests write the pages instead of comparing them.
const WRITE: &str = "SIDELANE_WRITE_REFERENCE";
/// Text before the name of a generated part, at the begin of that part.
const BEGIN: &str = "<!-- generated: ";
/// Text after the name of a generated part.
const NAMED: &str = " -->";
/// Line that ends a generated part.
const END: &str = "<!-- end -->";

/// Part of a page under one heading, up to the next heading of any level.
#[derive(Debug)]
pub struct Section {
    /// Heading, with its backticks.
    pub heading: String,
    /// Text without the heading.
    pub text: String,
}

/// Returns the path of a page.
fn path(page: &str) -> PathBuf {
    root().join("docs").join(page)
}

/// Returns the text of a page under `docs`.
pub fn read_page(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("docs/{name}: {error}"))
}

/// Returns the sections of a page, with the text before the first heading under an empty heading.
pub fn sections(text: &str) -> Vec<Section> {
    let mut sections = vec![Section { heading: String::new(), text: String::new() }];
    for line in text.lines() {
        match line.strip_prefix('#') {
            Some(rest) => {
                let heading = rest.trim_start_matches('#').trim().to_owned();
                sections.push(Section { heading, text: String::new() });
            }
            None => {
                let last = sections.last_mut().expect("there is one");
                last.text.push_str(line);
                last.text.push('\n');
            }
        }
    }
    sections
}

/// Returns the text under a heading of a page.
pub fn section(name: &str, heading: &str) -> String {
    let found = sections(&read_page(name)).into_iter().find(|section| section.heading == heading);
    found.unwrap_or_else(|| panic!("docs/{name} has no section \"{heading}\"")).text
}

/// A table: its header, and its rows.
#[derive(Debug)]
pub struct Table {
    /// Cells of the first row.
    pub header: Vec<String>,
    /// Cells of the rows below the header.
    pub rows: Vec<Vec<String>>,
}

/// Returns the tables of a text.
pub fn tables(text: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut is_in_table = false;
    for line in text.lines() {
        let Some(row) = line.strip_prefix('|') else {
            is_in_table = false;
            continue;
        };
        let cells = cells(row);
        match tables.last_mut().filter(|_| is_in_table) {
            None => tables.push(Table { header: cells, rows: Vec::new() }),
            Some(_) if row.starts_with("---") => {}
            Some(table) => table.rows.push(cells),
        }
        is_in_table = true;
    }
    tables
}

/// Returns the cells of a table row, which is given without its leading `|`.
fn cells(row: &str) -> Vec<String> {
    const ESCAPED: &str = "\u{0}";
    let row = row.replace("\\|", ESCAPED);
    let cells = row.trim_end().trim_end_matches('|').split('|');
    cells.map(|cell| cell.trim().replace(ESCAPED, "|")).collect()
}

/// Returns the code spans of a text.
pub fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Returns whether `name` fits a pattern, in which `*` stands for any text.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|name| {
            let ends = (0..=name.len()).filter(|at| name.is_char_boundary(*at));
            ends.map(|at| &name[at..]).any(|name| matches_pattern(rest, name))
        }),
    }
}

/// Escapes a text for a cell of a table.
pub fn escape_for_cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Fails if a page differs from its generated text; with [`WRITE`], writes the page instead.
pub fn check_generated_page(name: &str, generated: &str) {
    let now = fs::read_to_string(path(name)).unwrap_or_default();
    if now == generated {
        return;
    }
    if std::env::var_os(WRITE).is_some() {
        // Other tests read the page at the same time, and must not see half of it.
        let new = path(name).with_extension("new");
        let written = fs::write(&new, generated).and_then(|()| fs::rename(&new, path(name)));
        return written.unwrap_or_else(|error| panic!("docs/{name}: {error}"));
    }
    let pairs = now.lines().map(Some).chain([None]).zip(generated.lines().map(Some).chain([None]));
    let (line, (is, must)) = pairs.enumerate().find(|(_, (is, must))| is != must).unwrap_or_default();
    panic!(
        "docs/{name} is not what the code says; write it with `{WRITE}=1 cargo test -p sidelane --test reference`\n\
         line {}: {}\nmust be: {}",
        line + 1,
        is.unwrap_or("(end)"),
        must.unwrap_or("(end)")
    );
}

/// Fails if the generated parts of a page differ from `parts` in name or text; with [`WRITE`], writes them instead.
pub fn check_generated_parts(name: &str, parts: &[(String, String)]) {
    let mut text = String::new();
    let mut seen = Vec::new();
    let now = read_page(name);
    let mut lines = now.lines();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let Some(part) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(NAMED)) else { continue };
        let known = parts.iter().find(|(known, _)| known == part);
        let (_, content) = known.unwrap_or_else(|| panic!("docs/{name}: there is no {part} any more"));
        assert!(lines.any(|line| line == END), "docs/{name}: {END} is missing after {part}");
        text.push_str(content);
        text.push_str(END);
        text.push('\n');
        seen.push(part);
    }
    let missing = parts.iter().find(|(part, _)| !seen.contains(&part.as_str()));
    if let Some((part, _)) = missing {
        panic!("docs/{name}: write a section with the lines \"{BEGIN}{part}{NAMED}\" and \"{END}\"");
    }
    check_generated_page(name, &text);
}

#[test]
fn a_pattern_fits_names() {
    assert!(
        matches_pattern("a*c", "abc")
            && matches_pattern("a*c", "ac")
            && matches_pattern("*", "")
            && matches_pattern("p*_ns", "p99_ns")
    );
    assert!(!matches_pattern("a*c", "abd") && !matches_pattern("a", "ab"));
}

#[test]
fn cells_of_tables_are_parsed() {
    let found = tables("text\n| a | b |\n|---|---|\n| `x\\|y` | |\n\n| c |\n|---|\n| 1 |\n");
    assert_eq!((found[0].header.join(","), found[0].rows[0].join(",")), ("a,b".to_owned(), "`x|y`,".to_owned()));
    assert_eq!((found.len(), found[1].rows.len()), (2, 1));
}
