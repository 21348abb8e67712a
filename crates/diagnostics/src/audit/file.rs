//! File of an audit log: whole lines, and an exact count of lost ones.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// File of an audit log. It may be missing for a time.
pub struct AuditFile {
    path: PathBuf,
    lines: WholeLines<File>,
    /// Error because of which the file is missing; `None` if it is there.
    error: Option<io::Error>,
}

impl AuditFile {
    /// Creates the file at `path`, or empties it.
    ///
    /// # Errors
    /// Fails if the path itself is wrong: no directory, no permission. A full or failing disk is no error here: the
    /// file is opened later.
    pub fn create(path: PathBuf) -> io::Result<Self> {
        Self::open_with(path, OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Opens the file at `path` to append to it, or creates it.
    ///
    /// # Errors
    /// Fails like [`AuditFile::create`].
    pub fn append(path: PathBuf) -> io::Result<Self> {
        Self::open_with(path, OpenOptions::new().append(true).create(true))
    }

    fn open_with(path: PathBuf, options: &OpenOptions) -> io::Result<Self> {
        let (file, error) = match options.open(&path) {
            Ok(file) => (Some(file), None),
            Err(error) if is_transient(&error) => (None, Some(error)),
            Err(error) => return Err(error),
        };
        let mut lines = WholeLines::with_output(file);
        lines.detect_unfinished_line(&path);
        Ok(Self { path, lines, error })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file that is at the path now, for example after a rename of the old file.
    pub(super) fn open_again(&mut self) -> io::Result<()> {
        let opened = OpenOptions::new().append(true).create(true).open(&self.path);
        let known = self.lines.out.as_ref().and_then(device_and_inode);
        self.error = None;
        match opened {
            Ok(file) if known.is_some() && device_and_inode(&file) == known => Ok(()),
            Ok(file) => {
                self.lines.switch_output(Some(file));
                self.lines.detect_unfinished_line(&self.path);
                Ok(())
            }
            Err(error) => {
                self.lines.switch_output(None);
                Err(error)
            }
        }
    }

    /// Ensures that later lines go to a file that has a name: if the log file was removed, it is created again.
    pub(super) fn ensure_file_exists(&mut self) -> io::Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let is_there = self.lines.out.as_ref().is_some_and(|file| file.metadata().is_ok_and(|file| file.nlink() > 0));
        if is_there { Ok(()) } else { self.open_again() }
    }

    pub(super) fn lines(&mut self) -> &mut WholeLines<File> {
        &mut self.lines
    }
}

/// Returns whether the error comes from the disk or the machine, and may pass; other errors are about the path.
fn is_transient(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        None | Some(
            libc::ENOENT
                | libc::ENOTDIR
                | libc::EISDIR
                | libc::EACCES
                | libc::EPERM
                | libc::ELOOP
                | libc::ENAMETOOLONG
                | libc::EINVAL
        )
    )
}

fn device_and_inode(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// Returns whether the file at `path` lacks a line end at its end, because an earlier writer was stopped within a line.
fn ends_with_unfinished_line(path: &Path) -> bool {
    let last = || -> io::Result<u8> {
        let mut file = File::open(path)?;
        let mut byte = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut byte)?;
        Ok(byte[0])
    };
    // Only a regular file is read: a read from a pipe or a device could block.
    path.metadata().is_ok_and(|file| file.is_file() && file.len() > 0) && last().is_ok_and(|byte| byte != b'\n')
}

/// Writer of whole lines to the output `W`, which may accept only a part of the bytes in each write.
pub struct WholeLines<W> {
    out: Option<W>,
    /// Bytes that are still to be written of a line whose beginning is in the output already.
    rest: Vec<u8>,
    /// Whether an earlier writer left its last line unfinished in the file, so that a line end is due before the next
    /// line.
    has_unfinished_line: bool,
    /// Number of lines that were lost since the log last reported a loss.
    unreported_lines: u64,
    /// Number of all lost lines.
    lost: u64,
}

impl<W: Write> WholeLines<W> {
    /// Creates a writer of lines to `out`.
    pub fn with_output(out: Option<W>) -> Self {
        Self { out, rest: Vec::new(), has_unfinished_line: false, unreported_lines: 0, lost: 0 }
    }

    /// Returns the number of all lost lines.
    pub fn lost_lines(&self) -> u64 {
        self.lost
    }

    /// Counts `lines` as lost.
    pub fn count_lost(&mut self, lines: u64) {
        self.unreported_lines += lines;
        self.lost += lines;
    }

    /// Changes the output to `out`. A line that was begun in the old output is lost.
    pub fn switch_output(&mut self, out: Option<W>) {
        self.out = out;
        if !std::mem::take(&mut self.rest).is_empty() {
            self.count_lost(1);
        }
    }

    /// Makes the writer continue the file at `path`. If an earlier writer could not finish the last line there, that
    /// line is ended.
    pub fn detect_unfinished_line(&mut self, path: &Path) {
        self.has_unfinished_line = ends_with_unfinished_line(path);
    }

    /// Finishes an incomplete line, and reports lost lines with the line that `lost_lines_notice` returns for their
    /// number.
    pub fn write_pending(&mut self, lost_lines_notice: impl FnOnce(u64) -> Vec<u8>) -> io::Result<()> {
        if std::mem::take(&mut self.has_unfinished_line) {
            self.rest.insert(0, b'\n');
        }
        let rest = std::mem::take(&mut self.rest);
        let (written, result) = self.write(&rest);
        self.rest = rest[written..].to_vec();
        result?;
        if self.unreported_lines == 0 {
            return Ok(());
        }
        let line = lost_lines_notice(self.unreported_lines);
        let (written, result) = self.write(&line);
        if written > 0 {
            self.unreported_lines = 0;
            self.rest = line[written..].to_vec();
        }
        result
    }

    /// Writes whole lines. A line of which nothing could be written is counted as lost.
    pub fn write_lines(&mut self, text: &[u8]) -> io::Result<()> {
        let (written, result) = self.write(text);
        let is_within = written > 0 && text[written - 1] != b'\n';
        let rest = &text[written..];
        let end =
            if is_within { rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1) } else { 0 };
        self.rest = rest[..end].to_vec();
        self.count_lost(rest[end..].iter().filter(|byte| **byte == b'\n').count() as u64);
        result
    }

    /// Writes bytes. Returns how many were written, and the error that stopped the write.
    fn write(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let Some(out) = &mut self.out else { return (0, Err(ErrorKind::NotFound.into())) };
        let mut written = 0;
        while written < bytes.len() {
            match out.write(&bytes[written..]) {
                Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Output that fails like a full disk after the number of bytes for which it has room.
    #[derive(Default)]
    struct Disk {
        text: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            self.text.extend_from_slice(&bytes[..taken]);
            self.room -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        /// Each write accepts a random number of bytes. Lines are whole and in order, and each is either written or
        /// counted.
        #[test]
        fn each_line_is_whole_or_counted_as_lost(rooms in prop::collection::vec(0..40_usize, 1..60)) {
            let mut lines = WholeLines::with_output(Some(Disk::default()));
            for (number, room) in rooms.iter().enumerate() {
                lines.out.as_mut().unwrap().room = *room;
                let text = format!("line {number}\nalso {number}\n");
                match lines.write_pending(|lost| format!("lost {lost}\n").into_bytes()) {
                    Ok(()) => drop(lines.write_lines(text.as_bytes())),
                    Err(_) => lines.count_lost(2),
                }
            }
            lines.out.as_mut().unwrap().room = usize::MAX;
            lines.write_pending(|lost| format!("lost {lost}\n").into_bytes()).unwrap();
            let text = String::from_utf8(lines.out.as_ref().unwrap().text.clone()).unwrap();
            let told: u64 = text.lines().filter_map(|line| line.strip_prefix("lost ")?.parse::<u64>().ok()).sum();
            let written = text.lines().filter(|line| !line.starts_with("lost ")).count() as u64;
            prop_assert_eq!((told, told + written), (lines.lost_lines(), 2 * rooms.len() as u64));
            let whole = |line: &str| matches!(line.split_once(' '), Some(("line" | "also" | "lost", number)) if number.parse::<u64>().is_ok());
            prop_assert!(text.ends_with('\n') && text.lines().all(whole), "{}", text);
        }
    }

    #[test]
    fn line_begun_in_a_removed_file_is_lost() {
        let mut lines = WholeLines::with_output(Some(Disk { room: 3, ..Disk::default() }));
        assert!(lines.write_lines(b"line 1\nline 2\n").is_err());
        assert_eq!((lines.lost_lines(), lines.rest.as_slice()), (1, &b"e 1\n"[..]));
        lines.switch_output(Some(Disk { room: 100, ..Disk::default() }));
        lines.write_pending(|lost| format!("lost {lost}\n").into_bytes()).unwrap();
        assert_eq!((lines.lost_lines(), lines.out.unwrap().text.as_slice()), (2, &b"lost 2\n"[..]));
    }

    #[test]
    fn a_wrong_path_is_an_error_and_a_full_disk_is_not() {
        let dir = tempfile::tempdir().unwrap();
        for wrong in [dir.path().join("none/log"), dir.path().to_owned()] {
            assert!(AuditFile::append(wrong.clone()).is_err() && AuditFile::create(wrong).is_err());
        }
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::EIO, libc::EROFS, libc::ENFILE, libc::ESTALE] {
            assert!(is_transient(&io::Error::from_raw_os_error(errno)), "{errno}");
        }
    }

    #[test]
    fn removed_log_file_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/log");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let mut file = AuditFile::append(path.clone()).unwrap();
        file.ensure_file_exists().unwrap();
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        assert!(file.ensure_file_exists().is_err() && file.ensure_file_exists().is_err());
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        file.ensure_file_exists().unwrap();
        file.lines().write_lines(b"again\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"again\n");
    }

    #[test]
    fn a_line_that_an_earlier_writer_left_unfinished_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "torn").unwrap();
        let mut file = AuditFile::append(path.clone()).unwrap();
        file.lines().write_pending(|_| unreachable!("nothing is lost")).unwrap();
        file.lines().write_lines(b"whole\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"torn\nwhole\n");
    }
}
