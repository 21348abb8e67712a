//! Small disk that can be filled and emptied.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// File system of 64 KiB in memory. Dropping it unmounts it.
pub struct Disk(TempDir);

impl Disk {
    /// Mounts a disk. If that is not allowed, the test is skipped and the result is `None`.
    pub fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(dir.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            sidelane_testing::skip("needs to mount a tmpfs");
            return None;
        }
        Some(Self(dir))
    }

    /// Returns the path of a file on the disk.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Fills the disk.
    pub fn fill(&self) {
        let mut file = File::create(self.filler()).expect("a file can be made on it");
        while file.write_all(&[0; 512]).is_ok() {}
    }

    /// Removes the file that fills the disk.
    pub fn remove_filler(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.path("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Returns the entries of the audit log at `path`.
pub fn audit_entries_at(path: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("`{line}` is not JSON: {error}"));
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(parse).collect()
}
