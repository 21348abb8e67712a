//! Functions that split text into documents: paragraphs of prose, and entries of DICT dictionaries.

use anyhow::{Context, Result};

/// Shortest paragraph in bytes. Shorter blocks are headings or markup, and join the next block.
const PARAGRAPH_BYTES_MIN: usize = 60;

/// Prefix of the entries that describe the dictionary itself.
const DATABASE_PREFIX: &str = "00-database";

/// Returns the paragraphs of a text: blocks between blank lines, each together with the short blocks before it.
pub fn paragraphs(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.trim_start();
        if start.is_empty() {
            return None;
        }
        let (paragraph, after) = start.split_at(paragraph_end(start));
        rest = after;
        Some(paragraph.trim_end())
    })
}

/// Returns the end of the first paragraph of `text`: the first blank line after enough bytes.
fn paragraph_end(text: &str) -> usize {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        if line.trim().is_empty() && end >= PARAGRAPH_BYTES_MIN {
            break;
        }
        end += line.len();
    }
    end
}

/// Returns the entries of a DICT dictionary, in the order of the text. Each index line holds a headword, an offset and
/// a length, in base 64 and separated by tabs. Headwords may share an entry.
pub fn dictionary_entries(index: &str, text: &[u8]) -> Result<Vec<String>> {
    let mut spans = index
        .lines()
        .filter(|line| !line.starts_with(DATABASE_PREFIX))
        .map(|line| parse_entry_span(line).with_context(|| format!("the dictionary's index has a bad line: {line:?}")))
        .collect::<Result<Vec<_>>>()?;
    spans.sort_unstable();
    spans.dedup();
    spans.into_iter().map(|span| entry_text(text, span)).collect()
}

fn entry_text(text: &[u8], (offset, length): (usize, usize)) -> Result<String> {
    let bytes = text
        .get(offset..offset.saturating_add(length))
        .with_context(|| format!("the dictionary's index points to byte {offset}, past the end of its text"))?;
    Ok(String::from_utf8_lossy(bytes).trim().to_owned())
}

/// Returns offset and length from an index line.
fn parse_entry_span(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split('\t').skip(1);
    let offset = base64_number(fields.next()?)?;
    let length = base64_number(fields.next()?)?;
    Some((offset, length))
}

/// Parses a number in base-64 digits, the most significant digit first.
fn base64_number(digits: &str) -> Option<usize> {
    digits.bytes().try_fold(0usize, |number, digit| {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        number.checked_mul(64)?.checked_add(usize::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_end_paragraphs() {
        let long = "words and more words, enough of them to be a paragraph of their own";
        let text = format!("\n\n{long}\nsecond line\n\n  \n{long}\n");
        let found: Vec<&str> = paragraphs(&text).collect();
        assert_eq!(found, [format!("{long}\nsecond line").as_str(), long]);
    }

    #[test]
    fn headings_join_the_next_paragraph() {
        let text = "Title\n=====\n\nThe text under the title, long enough to stand on its own.\n\nLast\n";
        let found: Vec<&str> = paragraphs(text).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("Title") && found[0].ends_with("on its own."));
        assert_eq!(found[1], "Last");
    }

    #[test]
    fn no_text_has_no_paragraphs() {
        assert_eq!(paragraphs(" \n\n ").count(), 0);
    }

    #[test]
    fn base64_digits_are_parsed_as_numbers() {
        assert_eq!(base64_number("A"), Some(0));
        assert_eq!(base64_number("Kj"), Some(10 * 64 + 35));
        assert_eq!(base64_number("/+"), Some(63 * 64 + 62));
        assert_eq!(base64_number("a b"), None);
    }

    #[test]
    fn entry_of_two_headwords_is_returned_once() {
        let text = b"about\nfirst entry\nsecond entry\n";
        let index = "00-database-info\tA\tG\nuno\tG\tM\none\tG\tM\ntwo\tS\tN\n";
        let entries = dictionary_entries(index, text).unwrap();
        assert_eq!(entries, ["first entry", "second entry"]);
    }

    #[test]
    fn a_bad_index_is_an_error() {
        assert!(dictionary_entries("word", b"text").is_err());
        assert!(dictionary_entries("word\tZZZ\tB", b"text").is_err());
    }
}
