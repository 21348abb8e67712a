//! Memory that another process shares: a sealed memfd among that process's open files.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicU8;

use crate::shared_mapping::SharedMapping;

/// Returns the files of this name that the process `pid` has open, mapped for reading: their first `length_bytes`
/// bytes. Files that are shorter, or could shrink, are left out, since reading them could fail.
pub fn map_sealed_files(pid: u32, name: &str, length_bytes: usize) -> impl Iterator<Item = SharedMapping<AtomicU8>> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let named = files.map(|file| file.path()).filter(move |path| is_named(path, name));
    named.filter_map(move |path| map_sealed_file(&path, length_bytes))
}

fn map_sealed_file(path: &Path, bytes: usize) -> Option<SharedMapping<AtomicU8>> {
    // Opening a pipe blocks, and a process in its own mount namespace can give a pipe any name.
    if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return None;
    }
    let file = File::open(path).ok()?;
    let large = file.metadata().ok()?.len() >= bytes as u64;
    if !large || !cannot_shrink(&file) {
        return None;
    }
    SharedMapping::read_only(&file, 0, bytes).ok()
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
        assert!(map_sealed_file(&pipe, 1).is_none());
    }
}
