//! Memory that another process shares: a sealed memfd among that process's open files.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use sidelane_formats::{Shared, view};

/// A sealed memfd of another process, mapped for reading.
pub struct SealedFile {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, holds atomics and is only read.
unsafe impl Send for SealedFile {}
// SAFETY: the mapping belongs to this value alone, holds atomics and is only read.
unsafe impl Sync for SealedFile {}

impl SealedFile {
    /// Finds the memfds of this name, of at least `bytes` bytes, that the process `pid` has open. Files that could
    /// shrink are left out, since reading them could fail.
    pub fn find(pid: u32, name: &str, bytes: usize) -> impl Iterator<Item = Self> {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let named = files.map(|file| file.path()).filter(move |path| is_named(path, name));
        named.filter_map(move |path| Self::open(&path, bytes))
    }

    fn open(path: &Path, bytes: usize) -> Option<Self> {
        // Opening a pipe blocks, and a process in its own mount namespace can give a pipe any name.
        if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
            return None;
        }
        let file = File::open(path).ok()?;
        let large = file.metadata().ok()?.len() >= bytes as u64;
        if !large || !cannot_shrink(&file) {
            return None;
        }
        Some(Self { start: map(&file, bytes).ok()?, bytes })
    }

    /// Returns `count` words, from byte `offset` of the file on.
    ///
    /// # Panics
    ///
    /// If the words are outside the file or not aligned. The file format must exclude both.
    pub fn at<W: Shared>(&self, offset: usize, count: usize) -> &[W] {
        let length = count * size_of::<W>();
        assert!(offset + length <= self.bytes, "inside the file");
        // SAFETY: within the mapping (just checked), which lives as long as self; the file cannot
        // shrink (its seal was checked), and this process only loads from it, atomically.
        let words = unsafe { view::<W>(self.start.as_ptr().add(offset), length) };
        words.expect("the format is aligned")
    }
}

impl Drop for SealedFile {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length; no reference outlives self.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn is_named(path: &Path, name: &str) -> bool {
    let wanted = format!("/memfd:{name}");
    // The kernel appends " (deleted)" to the name of a memfd.
    fs::read_link(path).is_ok_and(|target| target.to_string_lossy().split(' ').next() == Some(&wanted))
}

fn cannot_shrink(file: &File) -> bool {
    // SAFETY: plain system call on an open file.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

fn map(file: &File, bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh mapping chosen by the kernel; nothing else refers to it.
    let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
    Ok(NonNull::new(start.cast()).expect("mmap returns no null pointer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe is skipped because opening it would wait for a writer.
    #[test]
    fn a_pipe_under_the_wanted_name_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("memfd:sidelane");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if !made.is_ok_and(|status| status.success()) {
            return sidelane_testing::skip("needs mkfifo");
        }
        assert!(SealedFile::open(&pipe, 1).is_none());
    }
}
