//! How text reads. Each count may only fall: a change that lowers one lowers its limit here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use syn::{Item, Visibility};

use crate::documents::documents;
use crate::modules::{files, modules, parse, root};

/// Words that hide what a sentence is about.
const VAGUE: [&str; 7] = ["whoever", "nobody", "somebody", "the other one", "so many", "so often", "meanwhile"];
/// Lines of comments and documents with such a word.
const VAGUE_LINES: usize = 41;
/// Words of the longest sentence that can be read once.
const SENTENCE_WORDS: usize = 30;
/// Longer sentences in documents.
const LONG_SENTENCES: usize = 27;
/// Public types whose name another public type of the same crate has.
const SAME_NAMES: usize = 58;

/// Fails if there are more than `limit` of `found`, and if there are fewer: then the limit has to fall.
fn must_only_fall(what: &str, limit: usize, found: &[String]) {
    let count = found.len();
    assert!(count <= limit, "{count} {what}; {limit} are allowed:\n{}", found.join("\n"));
    assert!(count == limit, "only {count} {what} are left: lower the limit of {limit}");
}

/// Returns a finding with the file that it is in.
fn found(path: &Path, text: &str) -> String {
    format!("{}: {}", path.strip_prefix(root()).unwrap_or(path).display(), text.trim())
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
        vague.extend(lines.map(|line| found(&path, &line)));
    }
    must_only_fall(&format!("lines with {VAGUE:?}"), VAGUE_LINES, &vague);
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
    let mut sentences = Vec::new();
    for parts in paragraphs.into_iter().map(split) {
        let mut sentence = String::new();
        for part in parts {
            // A mark within a word, as in `0.5` or `a.rs`, ends no sentence.
            let ends_before = sentence.ends_with(['.', ':', '!', '?']) && part.starts_with(' ');
            if ends_before {
                sentences.push(std::mem::take(&mut sentence));
            }
            sentence.push_str(&part);
        }
        sentences.push(sentence);
    }
    sentences
}

#[test]
fn sentences_of_documents_are_short() {
    let mut long = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).expect("a readable document");
        let words = |sentence: &String| sentence.split_whitespace().count();
        let own = sentences(&text).into_iter().filter(|sentence| words(sentence) > SENTENCE_WORDS);
        long.extend(own.map(|sentence| found(&path, &sentence)));
    }
    must_only_fall(&format!("sentences of over {SENTENCE_WORDS} words"), LONG_SENTENCES, &long);
}

/// Adds the names of the public types among these items.
fn public_types(items: &[Item], names: &mut Vec<String>) {
    for item in items {
        let named = match item {
            Item::Struct(item) => Some((&item.vis, &item.ident)),
            Item::Enum(item) => Some((&item.vis, &item.ident)),
            Item::Trait(item) => Some((&item.vis, &item.ident)),
            Item::Type(item) => Some((&item.vis, &item.ident)),
            Item::Mod(item) => {
                item.content.iter().for_each(|(_, items)| public_types(items, names));
                None
            }
            _ => None,
        };
        names.extend(named.filter(|(vis, _)| matches!(vis, Visibility::Public(_))).map(|(_, name)| name.to_string()));
    }
}

#[test]
fn a_public_type_has_its_name_alone_in_its_crate() {
    let mut seen = BTreeSet::new();
    let mut same = Vec::new();
    for (path, file) in &modules() {
        let mut names = Vec::new();
        public_types(&parse(file).items, &mut names);
        let again = names.into_iter().filter(|name| !seen.insert((path[0].clone(), name.clone())));
        same.extend(again.map(|name| found(file, &name)));
    }
    must_only_fall("public types with the name of another one in their crate", SAME_NAMES, &same);
}
