//! How text reads. Each count may only fall: a change that lowers one lowers its limit here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Item, Visibility};

use crate::documents::documents;
use crate::modules::{modules, parse, root};

/// Words that hide what a sentence is about.
const VAGUE: [&str; 7] = ["whoever", "nobody", "somebody", "the other one", "so many", "so often", "meanwhile"];
/// Lines of comments and documents with such a word.
const VAGUE_LINES: usize = 57;
/// Words of the longest sentence that can be read once.
const SENTENCE_WORDS: usize = 30;
/// Longer sentences in documents.
const LONG_SENTENCES: usize = 54;
/// Public types whose name another public type of the same crate has.
const SAME_NAMES: usize = 58;

/// Returns the files below a folder with one of these endings, without build results.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let (folders, own): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_own = |path: &PathBuf| !path.ends_with("target") && !path.ends_with("node_modules");
    let wanted = |path: &PathBuf| path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one));
    let below: Vec<PathBuf> =
        folders.iter().filter(|path| is_own(path)).flat_map(|path| files(path, endings)).collect();
    own.into_iter().filter(wanted).chain(below).collect()
}

/// Returns whether a line has one of the vague words, as whole words.
fn is_vague(line: &str) -> bool {
    let words: Vec<String> = line
        .split(|letter: char| !letter.is_alphanumeric())
        .map(str::to_lowercase)
        .filter(|word| !word.is_empty())
        .collect();
    let text = format!(" {} ", words.join(" "));
    VAGUE.iter().any(|word| text.contains(&format!(" {word} ")))
}

/// Returns the lines of this file that are text for readers: comments of a source, all lines of a document.
fn text_lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let is_document = path.extension().is_some_and(|ending| ending == "md");
    let is_text =
        |line: &&str| is_document || ["//", "*", "/*", "#"].iter().any(|mark| line.trim_start().starts_with(mark));
    text.lines().filter(is_text).map(str::to_owned).collect()
}

#[test]
fn text_says_which_thing_it_is_about() {
    let folders = ["crates", "lab", "bpf", "abi", "runtime", "kmod"].map(|folder| root().join(folder));
    let sources = folders.iter().flat_map(|folder| files(folder, &["rs", "c", "h", "java"]));
    let mut vague = Vec::new();
    for path in sources.chain(documents()) {
        let lines = text_lines(&path).into_iter().filter(|line| is_vague(line));
        vague.extend(
            lines.map(|line| format!("{}: {}", path.strip_prefix(root()).unwrap_or(&path).display(), line.trim())),
        );
    }
    let count = vague.len();
    assert!(count <= VAGUE_LINES, "{count} lines with {VAGUE:?}; {VAGUE_LINES} are allowed:\n{}", vague.join("\n"));
    assert!(count == VAGUE_LINES, "set VAGUE_LINES to {count}");
}

/// Returns the sentences of a document's prose: no code, tables, headings or link targets.
fn sentences(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut paragraphs = vec![String::new()];
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let is_prose = !is_code && !line.starts_with("    ") && !line.trim_start().starts_with(['|', '#', '`']);
        let begins = line.trim().is_empty() || line.trim_start().starts_with("- ") || !is_prose;
        if begins {
            paragraphs.push(String::new());
        }
        if is_prose {
            let last = paragraphs.last_mut().expect("there is one");
            last.push(' ');
            last.push_str(line.trim());
        }
    }
    let split =
        |paragraph: String| paragraph.split_inclusive([':', '.', '!', '?']).map(str::to_owned).collect::<Vec<_>>();
    let mut found = Vec::new();
    for parts in paragraphs.into_iter().map(split) {
        let mut sentence = String::new();
        for part in parts {
            // A mark within a word, as in `0.5` or `a.rs`, ends no sentence.
            let ends_before = sentence.ends_with(['.', ':', '!', '?']) && part.starts_with(' ');
            if ends_before {
                found.push(std::mem::take(&mut sentence));
            }
            sentence.push_str(&part);
        }
        found.push(sentence);
    }
    found
}

#[test]
fn sentences_of_documents_are_short() {
    let mut long = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).expect("a readable document");
        let words = |sentence: &String| sentence.split_whitespace().count();
        let own = sentences(&text).into_iter().filter(|sentence| words(sentence) > SENTENCE_WORDS);
        long.extend(
            own.map(|sentence| {
                format!("{}: {}", path.strip_prefix(root()).unwrap_or(&path).display(), sentence.trim())
            }),
        );
    }
    let count = long.len();
    assert!(count <= LONG_SENTENCES, "{count} sentences of over {SENTENCE_WORDS} words:\n{}", long.join("\n"));
    assert!(count == LONG_SENTENCES, "set LONG_SENTENCES to {count}");
}

fn public_types(items: &[Item], found: &mut Vec<String>) {
    for item in items {
        let named = match item {
            Item::Struct(item) => Some((&item.vis, &item.ident)),
            Item::Enum(item) => Some((&item.vis, &item.ident)),
            Item::Trait(item) => Some((&item.vis, &item.ident)),
            Item::Type(item) => Some((&item.vis, &item.ident)),
            Item::Mod(item) => {
                item.content.iter().for_each(|(_, items)| public_types(items, found));
                None
            }
            _ => None,
        };
        found.extend(named.filter(|(vis, _)| matches!(vis, Visibility::Public(_))).map(|(_, name)| name.to_string()));
    }
}

#[test]
fn a_public_type_has_its_name_alone_in_its_crate() {
    let mut seen = BTreeMap::<(String, String), usize>::new();
    for (path, file) in &modules() {
        let mut names = Vec::new();
        public_types(&parse(file).items, &mut names);
        names.into_iter().for_each(|name| *seen.entry((path[0].clone(), name)).or_default() += 1);
    }
    let same: Vec<String> = seen
        .iter()
        .filter(|(_, count)| **count > 1)
        .map(|((of, name), count)| format!("{of}: {count} {name}"))
        .collect();
    let count: usize = seen.values().filter(|count| **count > 1).map(|count| count - 1).sum();
    assert!(count <= SAME_NAMES, "{count} public types have the name of another one:\n{}", same.join("\n"));
    assert!(count == SAME_NAMES, "set SAME_NAMES to {count}");
}
