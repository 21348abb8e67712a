//! Finds and parses a number in a file of /proc or of a cgroup.

use std::ops::Range;

/// Maximum number of field names that an error lists.
const SHOWN: usize = 24;

/// Position of a number in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// First number of the file.
    First,
    /// Word with this index, counted from 1 as in proc(5).
    Index(usize),
    /// Word after this key, or value in the same word (`total=7`).
    Key(String),
}

impl Field {
    pub(super) fn parse(field: Option<&str>) -> Self {
        match field {
            None => Field::First,
            Some(field) => match field.parse::<usize>() {
                Ok(index) if index > 0 => Field::Index(index),
                _ => Field::Key(field.trim_end_matches([':', '=']).to_owned()),
            },
        }
    }
}

/// Reason why a field has no number.
pub(super) enum NumberError {
    Missing,
    NotANumber { text: String, why: &'static str },
}

impl NumberError {
    pub(super) fn why(&self) -> &'static str {
        match self {
            NumberError::Missing => "the file does not have the field any more",
            NumberError::NotANumber { why, .. } => why,
        }
    }
}

/// Returns the byte range of the field's number in `content`.
pub(super) fn find_field(content: &[u8], field: &Field) -> Option<Range<usize>> {
    match field {
        Field::First => word_ranges(content, 0).find(|word| parse(&content[word.clone()]).is_ok()),
        Field::Index(index) => word_at(content, *index),
        Field::Key(key) => value_after_key(content, key.as_bytes()),
    }
}

/// Returns the byte ranges of the words from byte `start` on.
fn word_ranges(content: &[u8], start: usize) -> impl Iterator<Item = Range<usize>> {
    let mut at = start;
    std::iter::from_fn(move || {
        let start = at + content[at..].iter().position(|byte| !byte.is_ascii_whitespace())?;
        let length = content[start..].iter().position(u8::is_ascii_whitespace);
        at = length.map_or(content.len(), |length| start + length);
        Some(start..at)
    })
}

/// Returns the byte range of the word number `index`, counted from 1. The second word of a process's `stat` is its name
/// in parentheses, which may contain any characters.
fn word_at(content: &[u8], index: usize) -> Option<Range<usize>> {
    let first = word_ranges(content, 0).next()?;
    let is_stat = parse(&content[first.clone()]).is_ok() && content[first.end..].starts_with(b" (");
    let name_end = is_stat.then(|| content.iter().rposition(|byte| *byte == b')')).flatten();
    match (name_end, index) {
        (Some(_), 1) | (None, _) => word_ranges(content, 0).nth(index - 1),
        (Some(end), 2) => Some(first.end + 1..end + 1),
        (Some(end), _) => word_ranges(content, end + 1).nth(index - 3),
    }
}

/// Returns the byte range of the word after `key`, or of the part after `key=` in the same word.
fn value_after_key(content: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let mut words = word_ranges(content, 0);
    while let Some(word) = words.next() {
        match content[word.clone()].strip_prefix(key) {
            Some(b"" | b":") => return words.next(),
            Some([b'=', ..]) => return Some(word.start + key.len() + 1..word.end),
            _ => {}
        }
    }
    None
}

/// Parses the number in a word. A unit after the number is a word of its own, so it is ignored.
pub(super) fn parse(word: &[u8]) -> Result<u64, NumberError> {
    let mut value = Some(0_u64);
    for byte in word {
        value = match byte {
            b'0'..=b'9' => value.and_then(|value| value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))),
            _ => return Err(not_a_number_error(word)),
        };
    }
    value.filter(|_| !word.is_empty()).ok_or_else(|| not_a_number_error(word))
}

fn not_a_number_error(word: &[u8]) -> NumberError {
    let why = match word {
        [b'-', b'0'..=b'9', ..] => "a negative number; only numbers from 0 on can be observed",
        [b'0'..=b'9', ..] if word.contains(&b'.') => "not a whole number",
        [b'0'..=b'9', ..] => "not a number below 2^64 in decimal digits",
        _ => "no number",
    };
    NumberError::NotANumber { text: word.escape_ascii().to_string(), why }
}

/// Returns the names of the file's fields, for an error.
pub(super) fn field_names(content: &[u8]) -> String {
    let is_number = |word: &Range<usize>| parse(&content[word.clone()]).is_ok();
    let all: Vec<Range<usize>> = word_ranges(content, 0).collect();
    let mut names: Vec<String> = Vec::new();
    for pair in all.windows(2) {
        let name = content[pair[0].clone()].escape_ascii().to_string();
        if is_number(&pair[1]) && !is_number(&pair[0]) {
            names.push(name.trim_end_matches(':').to_owned());
        }
    }
    names.extend(all.iter().filter_map(|word| {
        let (name, value) = std::str::from_utf8(&content[word.clone()]).ok()?.split_once('=')?;
        parse(value.as_bytes()).ok().map(|_| name.to_owned())
    }));
    names.dedup();
    let words = format!("the words 1 to {}", all.len());
    match names.len() {
        _ if all.is_empty() => "nothing".into(),
        0 => words,
        count if count > SHOWN => format!("{}, {} more and {words}", names[..SHOWN].join(", "), count - SHOWN),
        _ => format!("{} and {words}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_content_is_read_without_a_panic(
            content in proptest::collection::vec(any::<u8>(), 0..200), index in 1_usize..9, key in "[a-z:=]{0,3}"
        ) {
            for field in [Field::First, Field::Index(index), Field::Key(key)] {
                if let Some(place) = find_field(&content, &field) {
                    let _ = parse(&content[place]);
                }
            }
            let _ = field_names(&content);
        }
    }

    #[test]
    fn fuzzed_file_content_gives_a_number_or_an_error() {
        let fields_asked =
            ["1", "2", "3", "22", "VmRSS", "total", "nr_throttled:", "(a)"].map(|name| Field::parse(Some(name)));
        sidelane_testing::fuzz("proc-file", |content| {
            for field in [Field::parse(None)].iter().chain(&fields_asked) {
                let _ = find_field(content, field).map(|place| parse(&content[place]));
            }
            let _ = field_names(content);
        });
    }
}
