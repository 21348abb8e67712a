//! Numbers in files of /proc and cgroups, read anew for each sample through one open file.

mod field;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::file::field::{Field, NumberError, field_names, find_field, parse};
use crate::signal::Signal;
use crate::{Channel, ChannelEnd, Kind, Reader, SyscallReader};

/// Maximum number of bytes that are read from a file. Useful files of /proc and cgroups are shorter.
const BYTES_MAX: usize = 256 << 10;

/// Reason why a number in a file cannot be observed.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum FileError {
    /// File that the system refuses to open or read.
    #[error("cannot read {}: {source}", .path.display())]
    Open { path: PathBuf, source: io::Error },
    /// File that is not regular: a read could block, or never end.
    #[error("cannot observe {}: it is not a regular file; name one of /proc or of a cgroup", .path.display())]
    NotAFile { path: PathBuf },
    /// File without the requested field.
    #[error("cannot observe {}: it has no field {field}; name one that it has: {have}", .path.display())]
    NoField { path: PathBuf, field: String, have: String },
    /// Field that is not a number.
    #[error("cannot observe {field} of {}: it is {text}, {why}", .path.display())]
    NotANumber { path: PathBuf, field: String, text: String, why: &'static str },
}

/// Returns the channel of the signal `file:PATH[#FIELD]`.
pub fn channel(signal: &Signal, path: &Path, field: Option<&str>) -> Result<Channel, FileError> {
    let kind = signal.kind.map_or(Kind::Tag, Kind::channel_kind);
    let reader = Reader::Call(Box::new(FileNumber::open(path, field)?));
    Ok(Channel { name: signal.name.clone(), kind, reader, meaning: None, notes: vec![] })
}

/// Number in a file, read anew for each sample.
pub struct FileNumber {
    file: File,
    field: Field,
    content: Vec<u8>,
    /// Length of the content that was read last, in bytes.
    length: usize,
}

impl FileNumber {
    /// Opens the file, and reads it once to check that the number exists.
    pub fn open(path: &Path, field: Option<&str>) -> Result<Self, FileError> {
        let failed = |source| FileError::Open { path: path.to_owned(), source };
        // Reading a file that is not regular could block the observer.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(FileError::NotAFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(failed)?;
        let mut number = Self { file, field: Field::parse(field), content: vec![0; BYTES_MAX], length: 0 };
        let value = number.value().map_err(failed)?;
        value.map_err(|wrong| to_file_error(wrong, path, field, &number.content[..number.length]))?;
        Ok(number)
    }

    /// Reads the file from its start, as far as the field requires.
    fn value(&mut self) -> io::Result<Result<u64, NumberError>> {
        self.length = 0;
        loop {
            let read = self.file.read_at(&mut self.content[self.length..], self.length as u64)?;
            self.length += read;
            let content = &self.content[..self.length];
            let is_all = read == 0 || self.length == self.content.len();
            // The kernel returns one page at a time. A number at the end of the bytes read so far may continue on the
            // next page.
            match find_field(content, &self.field) {
                Some(place) if is_all || place.end < self.length => return Ok(parse(&content[place])),
                None if is_all => return Ok(Err(NumberError::Missing)),
                _ => {}
            }
        }
    }
}

impl SyscallReader for FileNumber {
    fn read(&mut self) -> Result<u64, ChannelEnd> {
        let value = self.value().map_err(|error| match error.raw_os_error() {
            // Errors of /proc for a process that has ended, and of a removed cgroup.
            Some(libc::ESRCH | libc::ENODEV) => ChannelEnd::Target,
            _ => ChannelEnd::Error(error),
        })?;
        value.map_err(|wrong| ChannelEnd::Error(io::Error::new(io::ErrorKind::InvalidData, wrong.why())))
    }
}

fn to_file_error(error: NumberError, path: &Path, field: Option<&str>, content: &[u8]) -> FileError {
    let (path, field) = (path.to_owned(), field.map_or_else(|| "its first word".into(), str::to_owned));
    match error {
        NumberError::Missing => FileError::NoField { path, field, have: field_names(content) },
        NumberError::NotANumber { text, why } => FileError::NotANumber { path, field, text, why },
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

    fn temp_file_with(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    fn read_field(content: &str, field: Option<&str>) -> Result<u64, String> {
        let file = temp_file_with(content);
        let mut number = FileNumber::open(file.path(), field).map_err(|error| error.to_string())?;
        Ok(number.read().unwrap())
    }

    #[test]
    fn a_field_is_named_by_the_word_before_it() {
        assert_eq!(read_field(CPU_STAT, Some("nr_throttled")), Ok(2));
        assert_eq!(read_field(STATUS, Some("VmRSS")), Ok(1234));
        assert_eq!(read_field(STATUS, Some("VmRSS:")), Ok(1234));
        assert_eq!(read_field(PRESSURE, Some("total")), Ok(777));
        assert_eq!(read_field("cpu  10 20\ncpu0 1 2\n", Some("cpu0")), Ok(1));
    }

    #[test]
    fn first_number_is_read_without_a_field() {
        assert_eq!(read_field("4096\n", None), Ok(4096));
        assert_eq!(read_field(CPU_STAT, None), Ok(500));
    }

    #[test]
    fn stat_fields_are_counted_as_in_the_proc_manual() {
        assert_eq!(read_field(STAT, Some("1")), Ok(17));
        assert_eq!(read_field(STAT, Some("4")), Ok(1));
        assert_eq!(read_field(STAT, Some("10")), Ok(99));
        assert!(read_field(STAT, Some("2")).unwrap_err().contains("it is (a) b (c)), no number"));
        assert!(read_field(STAT, Some("8")).unwrap_err().contains("it is -1, a negative number"));
    }

    #[test]
    fn missing_field_error_lists_the_existing_fields() {
        let error = read_field(CPU_STAT, Some("usage")).unwrap_err();
        assert!(
            error.contains("has no field usage; name one that it has: usage_usec, user_usec, nr_throttled"),
            "{error}"
        );
        assert!(read_field(PRESSURE, Some("totals")).unwrap_err().contains("that it has: total"));
        assert!(read_field("1 2 3", Some("4")).unwrap_err().contains("the words 1 to 3"));
        assert!(read_field("", None).unwrap_err().contains("that it has: nothing"));
        assert!(read_field(PRESSURE, Some("avg10")).unwrap_err().contains("0.12, not a whole number"));
        assert!(
            FileNumber::open(Path::new("/no/such"), None).err().unwrap().to_string().contains("cannot read /no/such")
        );
        assert!(
            FileNumber::open(Path::new("/dev/zero"), None).err().unwrap().to_string().contains("not a regular file")
        );
    }

    #[test]
    fn each_read_returns_the_current_number_in_the_file() {
        let file = temp_file_with("count 1\n");
        let mut number = FileNumber::open(file.path(), Some("count")).unwrap();
        assert_eq!(number.read().unwrap(), 1);
        std::fs::write(file.path(), "count 22").unwrap();
        assert_eq!(number.read().unwrap(), 22);
        std::fs::write(file.path(), "").unwrap();
        assert!(
            matches!(number.read(), Err(ChannelEnd::Error(error)) if error.to_string().contains("does not have the field"))
        );
    }

    #[test]
    fn own_cpu_time_is_found_in_proc() {
        let mut faults = FileNumber::open(Path::new("/proc/self/stat"), Some("10")).unwrap();
        let before = faults.read().unwrap();
        let touched = vec![1_u8; 4 << 20];
        assert!(faults.read().unwrap() > before, "{}", touched.len());
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_written(value in any::<u64>()) {
            prop_assert_eq!(read_field(&format!("before\nkey: {value} kB\n"), Some("key")), Ok(value));
        }
    }
}
