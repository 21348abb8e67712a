//! Reader of sysfs, below a root that tests may choose.
//!
//! Kernels, architectures and VMs omit different files, so a missing file is normal: it is read as `None`. A file
//! that exists but cannot be parsed is an error that names the file.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::cpulist::{CpuListError, CpuSet};

/// Reason why sysfs could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No CPU is listed: the files `present` and `online` are missing or empty.
    #[error("cannot read CPUs from {}: no such file; check that sysfs is mounted there", dir.display())]
    NoCpus {
        /// Directory in which `present` and `online` are expected.
        dir: PathBuf,
    },
    /// A file exists but cannot be read.
    #[error("cannot read {}; check its permissions", path.display())]
    Unreadable {
        /// Path of the unreadable file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file does not have the expected cpulist.
    #[error("cannot read CPUs from {}: it is no CPU list; check that sysfs is mounted there", path.display())]
    NotAList {
        /// Path of the file without a cpulist.
        path: PathBuf,
        /// Error of the parser for cpulists.
        source: CpuListError,
    },
    /// A file does not have the expected number.
    #[error("cannot read a number from {}: it has `{text}`; check that sysfs is mounted there", path.display())]
    NotANumber {
        /// Path of the file without a number.
        path: PathBuf,
        /// Content of the file.
        text: String,
    },
}

/// A sysfs mount; paths are relative to its root.
pub(crate) struct Sysfs<'a> {
    root: &'a Path,
}

impl<'a> Sysfs<'a> {
    /// Returns the sysfs mount at `root`, normally `/sys`.
    pub fn new(root: &'a Path) -> Self {
        Self { root }
    }

    /// Returns the CPUs present, and the CPUs that the kernel schedules on.
    ///
    /// `possible` cannot replace `present`: VMs declare many more possible CPUs than they ever get.
    pub fn present_and_online(&self) -> Result<(CpuSet, CpuSet), ReadError> {
        let present = self.list("devices/system/cpu/present")?;
        let online = self.list("devices/system/cpu/online")?;
        let (present, online) = match (present, online) {
            (Some(present), Some(online)) => (present, online),
            (Some(only), None) | (None, Some(only)) => (only.clone(), only),
            (None, None) => (CpuSet::default(), CpuSet::default()),
        };
        if online.is_empty() {
            return Err(ReadError::NoCpus { dir: self.path("devices/system/cpu") });
        }
        Ok((present.union(&online), online))
    }

    /// Returns the union of the CPU lists that exist.
    pub fn read_cpu_lists(&self, paths: &[&str]) -> Result<CpuSet, ReadError> {
        let mut all = CpuSet::default();
        for path in paths {
            all.extend(self.list(path)?.unwrap_or_default().iter());
        }
        Ok(all)
    }

    /// Reads a list of CPUs; `None` if there is no such file.
    pub fn list(&self, path: &str) -> Result<Option<CpuSet>, ReadError> {
        let Some(text) = self.text(path)? else {
            return Ok(None);
        };
        let not_a_list = |source| ReadError::NotAList { path: self.path(path), source };
        text.parse().map(Some).map_err(not_a_list)
    }

    /// Reads a number; `None` if there is no such file, or it has the kernel's `-1` for an unknown number.
    pub fn number<T: FromStr>(&self, path: &str) -> Result<Option<T>, ReadError> {
        match self.text(path)? {
            None => Ok(None),
            Some(text) if text == "-1" => Ok(None),
            Some(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(ReadError::NotANumber { path: self.path(path), text }),
            },
        }
    }

    /// Returns the names in a directory; none if there is no such directory.
    pub fn names(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let path = self.path(path);
        let entries = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        match entries {
            Ok(entries) => Ok(entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect()),
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            Err(source) => Err(ReadError::Unreadable { path, source }),
        }
    }

    /// Reads a file without its final line end; `None` if there is no such file.
    pub fn text(&self, path: &str) -> Result<Option<String>, ReadError> {
        let path = self.path(path);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if is_absent(&error) => Ok(None),
            Err(source) => Err(ReadError::Unreadable { path, source }),
        }
    }

    /// Returns the full path of a file in sysfs.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
