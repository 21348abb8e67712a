//! Files that are written completely or not at all.
//!
//! A run of minutes ends in one write. A reader that watches the path, or a full disk, must never
//! see or cause half a file. So the bytes are written to a file in the same directory, which is
//! then renamed to the path.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Error of a file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct WriteError {
    /// Path of the file.
    pub path: PathBuf,
    /// Error of the operating system.
    pub source: io::Error,
}

/// Error of a file that cannot be written, found before a run.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: there is no directory {}; make it, or name another", path.display(), dir.display())]
pub struct NoDirectory {
    /// Path of the file.
    pub path: PathBuf,
    /// Directory of the file, which does not exist.
    pub dir: PathBuf,
}

/// Checks before a run that the directory of a file exists.
pub fn check_directory_exists(path: &Path) -> Result<(), NoDirectory> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match dir.is_dir() {
        true => Ok(()),
        false => Err(NoDirectory { path: path.to_owned(), dir: dir.to_owned() }),
    }
}

/// Writes `bytes` to `path` so that no reader sees a part of them.
///
/// An existing `path` that is not a regular file (`/dev/stdout`, a pipe) is written to directly: a
/// rename would replace the device by a file.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let written = match fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(bytes))
        }
        // A symbolic link stays a link; its target is replaced.
        Ok(_) => path.canonicalize().and_then(|target| replace(&target, bytes)),
        Err(_) => replace(path, bytes),
    };
    written.map_err(|source| WriteError { path: path.to_owned(), source })
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let neighbour = temporary_path(path)?;
    let written = write_synced(&neighbour, bytes).and_then(|()| fs::rename(&neighbour, path));
    if written.is_err() {
        // The write error is reported, not a failure to remove the file.
        let _ = fs::remove_file(&neighbour);
    }
    written
}

/// Returns a temporary name in the same directory, so that the rename stays within one file system.
fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    Ok(path.with_file_name(hidden))
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_and_no_temporary_file_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result.json");
        write_atomically(&path, b"first").unwrap();
        write_atomically(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn write_follows_a_symbolic_link() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_atomically(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }

    #[test]
    fn write_does_not_replace_a_device() {
        write_atomically(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn write_error_names_the_path() {
        let error = write_atomically(Path::new("/nowhere/at/all.json"), b"").unwrap_err();
        assert_eq!(error.to_string(), "cannot write /nowhere/at/all.json");
        assert_eq!(error.source.kind(), io::ErrorKind::NotFound);
    }
}
