//! Numbers in files: what /proc and cgroups tell, read anew for each sample through one open file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::{Call, Channel, Gone, Kind, Reader};
use crate::observe::signal::Signal;

/// Longer files are read as far as this: the longest of a machine's that are of use, with room to spare.
const BYTES_MAX: usize = 256 << 10;
/// How many names of fields an error shows.
const SHOWN: usize = 24;

/// Why a number in a file cannot be observed.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum FileError {
    /// The system's own words.
    #[error("{} cannot be read: {source}", .path.display())]
    Open { path: PathBuf, source: io::Error },
    /// Reading it could wait, or never end.
    #[error("{} is no regular file: only files whose content is there at once can be observed", .path.display())]
    NotAFile { path: PathBuf },
    /// There is no such field.
    #[error("{} has no field {field}; it has {have}", .path.display())]
    NoField { path: PathBuf, field: String, have: String },
    /// The field is no number that can be observed.
    #[error("{}: {field} is {text}, {why}", .path.display())]
    NotANumber { path: PathBuf, field: String, text: String, why: &'static str },
}

/// The channel of `file:PATH[#FIELD]`.
pub fn channel(signal: &Signal, path: &Path, field: Option<&str>) -> Result<Channel, FileError> {
    let kind = signal.kind.map_or(Kind::Tag, Kind::of_channel);
    let reader = Reader::Call(Box::new(Number::open(path, field)?));
    Ok(Channel { name: signal.name.clone(), kind, reader, meaning: None, notes: vec![] })
}

/// A number in a file.
pub struct Number {
    file: File,
    field: Field,
    content: Vec<u8>,
}

/// How a number is found in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    /// The first one.
    First,
    /// The word of this number, from 1 on, as proc(5) counts them.
    Index(usize),
    /// The word behind this one, or in one with it (`total=7`).
    Key(String),
}

impl Field {
    fn parse(field: Option<&str>) -> Self {
        match field {
            None => Field::First,
            Some(field) => match field.parse::<usize>() {
                Ok(index) if index > 0 => Field::Index(index),
                _ => Field::Key(field.trim_end_matches([':', '=']).to_owned()),
            },
        }
    }
}

impl Number {
    /// Opens the file, and reads it once to see that the number is there.
    pub fn open(path: &Path, field: Option<&str>) -> Result<Self, FileError> {
        let failed = |source| FileError::Open { path: path.to_owned(), source };
        // What is not regular could make the observer wait.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(FileError::NotAFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(failed)?;
        let mut number = Self { file, field: Field::parse(field), content: vec![0; BYTES_MAX] };
        let length = number.fill().map_err(failed)?;
        let wrong = |error| described(error, path, field, &number.content[..length]);
        number.find(length).map_err(wrong)?;
        Ok(number)
    }

    /// Reads the file from its start, as far as the field needs it.
    fn fill(&mut self) -> io::Result<usize> {
        let mut length = 0;
        loop {
            let read = self.file.read_at(&mut self.content[length..], length as u64)?;
            length += read;
            // The kernel hands out a page at a time. A number that ends before the last byte is whole.
            let is_found = self.find_place(length).is_ok_and(|place| place.end < length);
            if read == 0 || is_found || length == self.content.len() {
                return Ok(length);
            }
        }
    }

    fn find(&self, length: usize) -> Result<u64, Wrong> {
        parse(&self.content[self.find_place(length)?])
    }

    fn find_place(&self, length: usize) -> Result<Range<usize>, Wrong> {
        place(&self.content[..length], &self.field).ok_or(Wrong::Missing)
    }
}

impl Call for Number {
    fn read(&mut self) -> Result<u64, Gone> {
        let length = self.fill().map_err(|error| match error.raw_os_error() {
            // What /proc says of a process that has ended, and a cgroup that was removed.
            Some(libc::ESRCH | libc::ENODEV) => Gone::Target,
            _ => Gone::Error(error),
        })?;
        self.find(length).map_err(|error| Gone::Error(io::Error::new(io::ErrorKind::InvalidData, error.why())))
    }
}

/// What is wrong with a field.
enum Wrong {
    Missing,
    NotANumber { text: String, why: &'static str },
}

impl Wrong {
    fn why(&self) -> &'static str {
        match self {
            Wrong::Missing => "the field is not in the file any more",
            Wrong::NotANumber { why, .. } => why,
        }
    }
}

fn described(error: Wrong, path: &Path, field: Option<&str>, content: &[u8]) -> FileError {
    let (path, field) = (path.to_owned(), field.map_or_else(|| "its first word".into(), str::to_owned));
    match error {
        Wrong::Missing => FileError::NoField { path, field, have: fields(content) },
        Wrong::NotANumber { text, why } => FileError::NotANumber { path, field, text, why },
    }
}

/// The number of the field, as a place in `content`.
fn place(content: &[u8], field: &Field) -> Option<Range<usize>> {
    match field {
        Field::First => words(content, 0).find(|word| parse(&content[word.clone()]).is_ok()),
        Field::Index(index) => nth(content, *index),
        Field::Key(key) => behind(content, key.as_bytes()),
    }
}

/// The words from `start` on.
fn words(content: &[u8], start: usize) -> impl Iterator<Item = Range<usize>> {
    let mut at = start;
    std::iter::from_fn(move || {
        let start = at + content[at..].iter().position(|byte| !byte.is_ascii_whitespace())?;
        let length = content[start..].iter().position(u8::is_ascii_whitespace);
        at = length.map_or(content.len(), |length| start + length);
        Some(start..at)
    })
}

/// The word of a number, where the second one of a process's `stat` is its name, in parentheses, whatever
/// that holds.
fn nth(content: &[u8], index: usize) -> Option<Range<usize>> {
    let first = words(content, 0).next()?;
    let is_stat = parse(&content[first.clone()]).is_ok() && content[first.end..].starts_with(b" (");
    let name_end = is_stat.then(|| content.iter().rposition(|byte| *byte == b')')).flatten();
    match (name_end, index) {
        (Some(_), 1) | (None, _) => words(content, 0).nth(index - 1),
        (Some(end), 2) => Some(first.end + 1..end + 1),
        (Some(end), _) => words(content, end + 1).nth(index - 3),
    }
}

/// The word behind `key`, or what stands behind `key=` in the same word.
fn behind(content: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let mut words = words(content, 0);
    while let Some(word) = words.next() {
        match content[word.clone()].strip_prefix(key) {
            Some(b"" | b":") => return words.next(),
            Some([b'=', ..]) => return Some(word.start + key.len() + 1..word.end),
            _ => {}
        }
    }
    None
}

/// Units behind a number are other words, so they do not matter.
fn parse(word: &[u8]) -> Result<u64, Wrong> {
    let mut value = Some(0_u64);
    for byte in word {
        value = match byte {
            b'0'..=b'9' => value.and_then(|value| value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))),
            _ => return Err(no_number(word)),
        };
    }
    value.filter(|_| !word.is_empty()).ok_or_else(|| no_number(word))
}

fn no_number(word: &[u8]) -> Wrong {
    let why = match word {
        [b'-', b'0'..=b'9', ..] => "negative: only numbers from 0 on can be observed",
        [b'0'..=b'9', ..] if word.contains(&b'.') => "no whole number",
        [b'0'..=b'9', ..] => "no number below 2^64 in decimal digits",
        _ => "no number",
    };
    Wrong::NotANumber { text: word.escape_ascii().to_string(), why }
}

/// The fields that a file has, for an error.
fn fields(content: &[u8]) -> String {
    let is_number = |word: &Range<usize>| parse(&content[word.clone()]).is_ok();
    let all: Vec<Range<usize>> = words(content, 0).collect();
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
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    const STATUS: &str = "Name:\tmy (odd) name 7\nVmRSS:\t    1234 kB\nThreads:\t3\n";
    const STAT: &str = "17 (a) b (c)) S 1 17 17 0 -1 4194560 99 0";
    const CPU_STAT: &str = "usage_usec 500\nuser_usec 300\nnr_throttled 2\n";
    const PRESSURE: &str = "some avg10=0.12 avg60=0.00 total=777\nfull avg10=0.00 total=5\n";

    fn file(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    fn read(content: &str, field: Option<&str>) -> Result<u64, String> {
        let file = file(content);
        let mut number = Number::open(file.path(), field).map_err(|error| error.to_string())?;
        Ok(number.read().unwrap())
    }

    #[test]
    fn a_field_is_named_by_the_word_before_it() {
        assert_eq!(read(CPU_STAT, Some("nr_throttled")), Ok(2));
        assert_eq!(read(STATUS, Some("VmRSS")), Ok(1234));
        assert_eq!(read(STATUS, Some("VmRSS:")), Ok(1234));
        assert_eq!(read(PRESSURE, Some("total")), Ok(777));
        assert_eq!(read("cpu  10 20\ncpu0 1 2\n", Some("cpu0")), Ok(1));
    }

    #[test]
    fn without_a_field_it_is_the_first_number() {
        assert_eq!(read("4096\n", None), Ok(4096));
        assert_eq!(read(CPU_STAT, None), Ok(500));
    }

    #[test]
    fn fields_of_a_process_are_counted_as_in_its_manual() {
        assert_eq!(read(STAT, Some("1")), Ok(17));
        assert_eq!(read(STAT, Some("4")), Ok(1));
        assert_eq!(read(STAT, Some("10")), Ok(99));
        assert!(read(STAT, Some("2")).unwrap_err().contains("2 is (a) b (c)), no number"));
        assert!(read(STAT, Some("8")).unwrap_err().contains("8 is -1, negative"));
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        let error = read(CPU_STAT, Some("usage")).unwrap_err();
        assert!(error.contains("has no field usage; it has usage_usec, user_usec, nr_throttled"), "{error}");
        assert!(read(PRESSURE, Some("totals")).unwrap_err().contains("it has total"));
        assert!(read("1 2 3", Some("4")).unwrap_err().contains("the words 1 to 3"));
        assert!(read("", None).unwrap_err().contains("it has nothing"));
        assert!(read(PRESSURE, Some("avg10")).unwrap_err().contains("0.12, no whole number"));
        assert!(
            Number::open(Path::new("/no/such"), None).err().unwrap().to_string().contains("/no/such cannot be read")
        );
        assert!(Number::open(Path::new("/dev/zero"), None).err().unwrap().to_string().contains("no regular file"));
    }

    #[test]
    fn each_read_sees_the_file_as_it_is() {
        let file = file("count 1\n");
        let mut number = Number::open(file.path(), Some("count")).unwrap();
        assert_eq!(number.read().unwrap(), 1);
        std::fs::write(file.path(), "count 22").unwrap();
        assert_eq!(number.read().unwrap(), 22);
        std::fs::write(file.path(), "").unwrap();
        assert!(matches!(number.read(), Err(Gone::Error(error)) if error.to_string().contains("not in the file")));
    }

    #[test]
    fn own_cpu_time_is_found_in_proc() {
        let mut faults = Number::open(Path::new("/proc/self/stat"), Some("10")).unwrap();
        let before = faults.read().unwrap();
        let touched = vec![1_u8; 4 << 20];
        assert!(faults.read().unwrap() > before, "{}", touched.len());
    }

    proptest! {
        #[test]
        fn any_content_is_read_without_a_panic(
            content in proptest::collection::vec(any::<u8>(), 0..200), index in 1_usize..9, key in "[a-z:=]{0,3}"
        ) {
            for field in [Field::First, Field::Index(index), Field::Key(key)] {
                if let Some(place) = place(&content, &field) {
                    let _ = parse(&content[place]);
                }
            }
            let _ = fields(&content);
        }

        #[test]
        fn numbers_are_read_as_written(value in any::<u64>()) {
            prop_assert_eq!(read(&format!("before\nkey: {value} kB\n"), Some("key")), Ok(value));
        }
    }
}
