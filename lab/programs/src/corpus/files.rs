//! Functions that find and read the files of a text corpus, compressed or not.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::read::MultiGzDecoder;

/// File name endings of text files in documentation packages, before any `.gz`.
const TEXT_ENDINGS: [&str; 2] = ["txt", "rst"];

/// Returns all text files below `folder`. They are sorted, so that document numbers do not depend on the order of
/// directory entries.
pub fn text_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect_text_files(folder, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect_text_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        let kind = entry.file_type().with_context(|| format!("cannot look at {}", entry.path().display()))?;
        if kind.is_dir() {
            collect_text_files(&entry.path(), found)?;
        } else if kind.is_file() && is_text(&entry.path()) {
            found.push(entry.path());
        }
    }
    Ok(())
}

fn is_text(path: &Path) -> bool {
    let plain = if is_gzip(path) { path.with_extension("") } else { path.to_owned() };
    plain.extension().is_some_and(|ending| TEXT_ENDINGS.iter().any(|text| ending == *text))
}

/// Returns whether a file is compressed with gzip. `.dz` is dictzip, which is gzip with an index in a header field.
fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gz" || ending == "dz")
}

/// Reads and decompresses a file.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut bytes = Vec::new();
    let outcome = if is_gzip(path) {
        MultiGzDecoder::new(std::io::BufReader::new(file)).read_to_end(&mut bytes)
    } else {
        { file }.read_to_end(&mut bytes)
    };
    outcome.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes)
}

/// Reads a file as text. Bytes that are not UTF-8 become replacement characters: old files have a few, which do no harm
/// in a corpus.
pub fn read_text(path: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&read_bytes(path)?).into_owned())
}

/// FNV-1a hash over the names, sizes and modification times of files.
#[derive(Debug)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Returns the fingerprint of an empty set of files.
    pub fn new() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }

    /// Adds the name, size and modification time of one file.
    pub fn add_file(&mut self, path: &Path) -> Result<()> {
        let status = fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
        self.add(path.as_os_str().as_bytes());
        self.add(&status.size().to_le_bytes());
        self.add(&status.mtime().to_le_bytes());
        self.add(&status.mtime_nsec().to_le_bytes());
        Ok(())
    }

    /// Returns the hash of all added files.
    pub fn value(&self) -> u64 {
        self.0
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn finds_and_reads_plain_and_compressed_text() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("b.txt"), "plain").unwrap();
        fs::write(folder.path().join("picture.svg"), "<svg/>").unwrap();
        let packed = File::create(folder.path().join("sub/a.rst.gz")).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
        encoder.write_all(b"packed").unwrap();
        encoder.finish().unwrap();

        let files = text_files(folder.path()).unwrap();
        let texts: Vec<String> = files.iter().map(|file| read_text(file).unwrap()).collect();
        assert_eq!(texts, ["plain", "packed"]);
    }

    #[test]
    fn error_names_the_unreadable_file() {
        let error = read_bytes(Path::new("no/such/file.gz")).unwrap_err();
        assert!(error.to_string().contains("no/such/file.gz"));
    }
}
