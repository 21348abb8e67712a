//! Tests of the language of comments and documents. Each count may only fall: a change that lowers one lowers its limit
//! here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::{Item, Visibility};

use crate::documents::documents;
use crate::modules::{files, modules, parse, root};

/// Words that hide what a sentence is about.
const VAGUE: [&str; 7] = ["whoever", "nobody", "somebody", "the other one", "so many", "so often", "meanwhile"];
/// Number of lines of comments and documents that may contain one of the words in [`VAGUE`].
const VAGUE_LINES: usize = 0;
/// Largest number of letters in the name of a test.
const TEST_NAME_LETTERS: usize = 60;
/// Words that no name of a test may contain.
const VAGUE_IN_TESTS: [&str; 5] = ["whoever", "nobody", "somebody", "meanwhile", "anybody"];
/// Largest number of words in a sentence that can be read once.
const SENTENCE_WORDS: usize = 30;
/// Number of sentences in documents that may have more than [`SENTENCE_WORDS`] words.
const LONG_SENTENCES: usize = 0;

/// Fails if there are more than `limit` entries in `found`, and if there are fewer: then the limit has to fall.
fn check_count_equals_limit(what: &str, limit: usize, found: &[String]) {
    let count = found.len();
    assert!(count <= limit, "{count} {what}; {limit} are allowed:\n{}", found.join("\n"));
    assert!(count == limit, "only {count} {what} are left: lower the limit of {limit}");
}

/// Returns a finding with the path of its file.
fn format_finding(path: &Path, text: &str) -> String {
    format!("{}: {}", path.strip_prefix(root()).unwrap_or(path).display(), text.trim())
}

/// Returns whether a line contains one of the vague words, as a whole word.
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
fn texts_contain_no_vague_words() {
    let folders = ["crates", "lab", "bpf", "abi", "runtime", "kmod"].map(|folder| root().join(folder));
    let sources = folders.iter().flat_map(|folder| files(folder, &["rs", "c", "h", "java"]));
    let mut vague = Vec::new();
    for path in sources.chain(documents()) {
        let lines = text_lines(&path).into_iter().filter(|line| is_vague(line));
        vague.extend(lines.map(|line| format_finding(&path, &line)));
    }
    check_count_equals_limit(&format!("lines with {VAGUE:?}"), VAGUE_LINES, &vague);
}

/// Returns whether this is the attribute `test` of any path, as in `#[tokio::test(start_paused = true)]`.
fn is_test(attribute: &Group) -> bool {
    let path = attribute.stream().into_iter().take_while(|token| !matches!(token, TokenTree::Group(_)));
    attribute.delimiter() == Delimiter::Bracket && path.last().is_some_and(|token| token.to_string() == "test")
}

/// Adds the names of the tests among these tokens, also of those inside macros, which `syn` does not parse.
fn add_tests(tokens: TokenStream, tests: &mut Vec<String>) {
    let (mut has_attribute, mut is_next) = (false, false);
    for token in tokens {
        match &token {
            TokenTree::Group(group) if is_test(group) => has_attribute = true,
            TokenTree::Group(group) => add_tests(group.stream(), tests),
            TokenTree::Ident(name) if is_next && has_attribute => {
                tests.push(name.to_string());
                has_attribute = false;
            }
            _ => {}
        }
        is_next = matches!(&token, TokenTree::Ident(word) if word == "fn");
    }
}

#[test]
fn names_of_tests_are_short_and_without_vague_words() {
    let folders = ["crates", "lab"].map(|folder| root().join(folder));
    let mut wrong = Vec::new();
    for path in folders.iter().flat_map(|folder| files(folder, &["rs"])) {
        let text = fs::read_to_string(&path).expect("a readable source");
        let mut tests = Vec::new();
        add_tests(text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display())), &mut tests);
        let is_vague = |test: &str| test.split('_').any(|word| VAGUE_IN_TESTS.contains(&word));
        let is_wrong = |test: &&String| test.len() > TEST_NAME_LETTERS || is_vague(test);
        wrong.extend(tests.iter().filter(is_wrong).map(|test| format_finding(&path, test)));
    }
    let rule = format!("names of tests have at most {TEST_NAME_LETTERS} letters and none of {VAGUE_IN_TESTS:?}");
    assert!(wrong.is_empty(), "{rule}:\n{}", wrong.join("\n"));
}

#[test]
fn tests_are_found_in_modules_and_macros() {
    let source = "fn a() {} #[test] fn b() {} mod m { #[tokio::test(start_paused = true)] async fn c() {} }
                  proptest! { #[test] /// d
                  fn d(x in 0..9) {} } #[cfg(test)] fn e() {}";
    let mut tests = Vec::new();
    add_tests(source.parse().expect("tokens"), &mut tests);
    assert_eq!(tests, ["b", "c", "d"]);
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
        long.extend(own.map(|sentence| format_finding(&path, &sentence)));
    }
    check_count_equals_limit(&format!("sentences of over {SENTENCE_WORDS} words"), LONG_SENTENCES, &long);
}

/// Adds the names of the public types among these items.
fn add_public_type_names(items: &[Item], names: &mut Vec<String>) {
    for item in items {
        let named = match item {
            Item::Struct(item) => Some((&item.vis, &item.ident)),
            Item::Enum(item) => Some((&item.vis, &item.ident)),
            Item::Trait(item) => Some((&item.vis, &item.ident)),
            Item::Type(item) => Some((&item.vis, &item.ident)),
            Item::Mod(item) => {
                item.content.iter().for_each(|(_, items)| add_public_type_names(items, names));
                None
            }
            _ => None,
        };
        names.extend(named.filter(|(vis, _)| matches!(vis, Visibility::Public(_))).map(|(_, name)| name.to_string()));
    }
}

#[test]
fn public_type_names_are_unique_in_their_crate() {
    let mut seen = BTreeSet::new();
    let mut same = Vec::new();
    for (path, file) in &modules() {
        let mut names = Vec::new();
        add_public_type_names(&parse(file).items, &mut names);
        let again = names.into_iter().filter(|name| !seen.insert((path[0].clone(), name.clone())));
        same.extend(again.map(|name| format_finding(file, &name)));
    }
    assert!(same.is_empty(), "rename these types, another one of their crate has the name:\n{}", same.join("\n"));
}
