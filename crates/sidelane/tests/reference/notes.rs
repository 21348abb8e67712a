//! `docs/reference/notes.md`: each note of the code, with what to do. `docs/guides/messages.md` names some of them.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{File, Item};

use crate::files::{crate_folders, parse, root};
use crate::pages::{check_generated_page, code_spans, escape_for_cell, matches_pattern, read_page};
use crate::sources::{sources, text_of_token};

const PAGE: &str = "reference/notes.md";
const GUIDE: &str = "guides/messages.md";
const HEAD: &str = "# Notes

All notes of results, of `sidelane status`, of logs and of standard error. Words in *italics*, and `…`, stand for names and figures.
[Messages](../guides/messages.md) has the usual ones, by what you see. A note without advice needs nothing done. An error
says itself what to do.
";

/// Note: its sentence, and what to do.
struct Note {
    what: String,
    advice: Option<String>,
}

/// Notes of one feature, as its source declares them.
struct Table {
    /// Feature in words, such as `the agent`.
    about: String,
    /// Variant of the enum `Section` for the feature, which determines the order of features.
    section: String,
    notes: Vec<Note>,
}

/// Returns the texts of a list of notes: each ends with `;`, and its texts come after `=>`.
fn notes(list: TokenStream) -> Vec<Note> {
    let tokens: Vec<TokenTree> = list.into_iter().collect();
    let ends = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';');
    let texts = tokens.split(ends).map(|entry| entry.iter().filter_map(text_of_token));
    texts.filter_map(|mut texts| Some(Note { what: texts.next()?, advice: texts.next() })).collect()
}

/// Returns the table that a `diagnostics!` declares.
fn table(tokens: TokenStream) -> Table {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut table = Table { about: String::new(), section: String::new(), notes: Vec::new() };
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(attribute) if attribute.delimiter() == Delimiter::Bracket => {
                let doc = attribute.stream().into_iter().find_map(|token| text_of_token(&token)).unwrap_or_default();
                let about = doc.trim().trim_start_matches("Note of ").trim_end_matches('.').to_owned();
                table.about = about;
            }
            TokenTree::Group(list) if list.delimiter() == Delimiter::Brace => table.notes.extend(notes(list.stream())),
            TokenTree::Ident(word) if word == "in" => table.section = tokens[at + 1].to_string(),
            _ => {}
        }
    }
    table
}

/// Returns the tables of all crates, in the order in which Sidelane lists the notes of several features.
fn all_tables() -> Vec<Table> {
    let mut all = Vec::new();
    for folder in crate_folders() {
        for (_, file) in sources(&folder) {
            let macros =
                file.items.into_iter().filter_map(|item| if let Item::Macro(it) = item { Some(it.mac) } else { None });
            let own = macros.filter(|it| it.path.segments.last().is_some_and(|name| name.ident == "diagnostics"));
            all.extend(own.map(|it| table(it.tokens)));
        }
    }
    let order = section_order(&parse(&root().join("crates/diagnostics/src/note.rs")));
    let place = |table: &Table| order.iter().position(|name| *name == table.section);
    all.iter().for_each(|table| assert!(place(table).is_some(), "{} has no place", table.section));
    all.sort_by_key(place);
    all
}

/// Returns the variants of the enum `Section` in a parsed file, in their order.
fn section_order(file: &File) -> Vec<String> {
    let sections = file.items.iter().find_map(|item| match item {
        Item::Enum(item) if item.ident == "Section" => Some(item),
        _ => None,
    });
    sections.expect("features have an order").variants.iter().map(|variant| variant.ident.to_string()).collect()
}

/// Replaces each value in braces in a text by the result of `value`, which gets the name of the value.
fn replace_placeholders(text: &str, value: impl Fn(&str) -> String) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, name, after)) =
        rest.split_once('{').and_then(|(before, rest)| rest.split_once('}').map(|(name, after)| (before, name, after)))
    {
        shown.push_str(before);
        shown.push_str(&value(name.split(':').next().unwrap_or(name)));
        rest = after;
    }
    shown + rest
}

/// Converts the text of a note for a page: values are in italics, and values within code are `…` as in the guide.
fn to_page_text(text: &str) -> String {
    let in_italics = |part: &str| replace_placeholders(part, |name| format!("*{}*", name.replace('_', " ")));
    let in_code = |part: &str| replace_placeholders(part, |_| "…".to_owned());
    let parts = text.split('`').enumerate();
    let parts: Vec<String> =
        parts.map(|(at, part)| if at % 2 == 0 { in_italics(part) } else { in_code(part) }).collect();
    escape_for_cell(&parts.join("`"))
}

/// Returns whether a text consists of values alone, so that its words are in another place of the code.
fn has_only_values(text: &str) -> bool {
    !replace_placeholders(text, |_| String::new()).contains(char::is_alphabetic)
}

#[test]
fn each_note_has_its_row_with_what_to_do() {
    let tables = all_tables();
    assert!(tables.len() > 10, "{} tables of notes", tables.len());
    let mut text = HEAD.to_owned();
    for table in tables {
        let mut letters = table.about.chars();
        let about =
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>();
        text.push_str(&format!("\n## {about}\n\n| note | what to do |\n|---|---|\n"));
        for note in table.notes.iter().filter(|note| !has_only_values(&note.what)) {
            let advice = match note.advice.as_deref() {
                None => String::new(),
                Some(advice) if has_only_values(advice) => " what the note says".to_owned(),
                Some(advice) => format!(" {}", to_page_text(advice)),
            };
            text.push_str(&format!("| {} |{advice} |\n", to_page_text(&note.what)));
        }
    }
    check_generated_page(PAGE, &text);
}

/// A line of the guide begins with the first words of the notes that it explains; `…` stands for values.
#[test]
fn the_guide_names_no_note_that_is_gone() {
    let notes: Vec<String> = all_tables().into_iter().flat_map(|table| table.notes).map(|note| note.what).collect();
    let notes: Vec<String> = notes.iter().map(|note| replace_placeholders(note, |_| "…".to_owned())).collect();
    let text = read_page(GUIDE);
    let lines = text.lines().filter(|line| line.starts_with("- `"));
    let begins = lines.map(|line| line.split("`: ").next().unwrap_or(line).to_owned() + "`");
    let named: Vec<String> = begins.flat_map(|line| code_spans(&line).map(str::to_owned).collect::<Vec<_>>()).collect();
    let is_known = |words: &&String| {
        let pattern = format!("*{}*", words.replace('…', "*"));
        notes.iter().any(|note| matches_pattern(&pattern, note))
    };
    let gone: Vec<&String> = named.iter().filter(|words| !is_known(words)).collect();
    assert!(named.len() > 10, "{named:?}");
    assert!(gone.is_empty(), "docs/{GUIDE}: no note has these words:\n{gone:#?}");
}
