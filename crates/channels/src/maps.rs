//! The mappings of a process: the lines of /proc/PID/maps.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address of the mapping.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// Whether the process can read the mapping.
    pub is_readable: bool,
    /// Whether the mapping holds code.
    pub is_executable: bool,
    /// Whether writes go to the file, so that other processes see them.
    pub is_shared: bool,
    /// Offset of the mapping in its file, in bytes.
    pub offset: u64,
    /// Device and inode number of the mapped file; the inode is 0 for anonymous memory.
    pub file: (String, u64),
    /// Path of the file in the process's view, or a name such as `[heap]`.
    pub path: PathBuf,
}

/// Returns the mappings of a process, by ascending address. Requires the right to trace the process.
pub fn regions(pid: u32) -> io::Result<Vec<Region>> {
    // A path may have any bytes, also invalid UTF-8.
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(String::from_utf8_lossy(&maps).lines().filter_map(parse).collect())
}

/// Parses a line of the form `start-end perms offset dev inode path`.
fn parse(line: &str) -> Option<Region> {
    let mut rest = line;
    let mut next = || {
        let (field, after) = rest.split_once(' ')?;
        rest = after.trim_start();
        Some(field)
    };
    let (range, permissions, offset, device) = (next()?, next()?, next()?, next()?);
    let (inode, path) = rest.split_once(' ').map_or((rest, ""), |(inode, path)| (inode, path.trim_start()));
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-').and_then(|(start, end)| Some((hex(start)?, hex(end)?)))?;
    if end < start {
        return None;
    }
    Some(Region {
        start,
        end,
        is_readable: permissions.starts_with('r'),
        is_executable: permissions.get(2..3) == Some("x"),
        is_shared: permissions.ends_with('s'),
        offset: hex(offset)?,
        file: (device.to_owned(), inode.parse().ok()?),
        path: path.into(),
    })
}

impl Region {
    /// Returns whether the mapping is of a file.
    pub fn has_file(&self) -> bool {
        self.file.1 != 0
    }

    /// Opens the mapped file for reading, even if it was deleted or replaced since.
    pub fn open(&self, pid: u32) -> io::Result<File> {
        let link = format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end);
        // Only root may follow a link in `map_files`. For other users the path is looked up in the process's root
        // directory.
        File::open(link).or_else(|_| self.open_path(pid))
    }

    fn open_path(&self, pid: u32) -> io::Result<File> {
        let below = self.path.strip_prefix("/").unwrap_or(&self.path);
        let path = Path::new(&format!("/proc/{pid}/root")).join(below);
        let file = File::open(&path)?;
        if file.metadata()?.ino() == self.file.1 {
            return Ok(file);
        }
        let replaced =
            format!("{} was replaced after the process mapped it; run as root to read the old file", path.display());
        Err(io::Error::new(io::ErrorKind::NotFound, replaced))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_anonymous_mappings_are_parsed() {
        let line = "7f01a000-7f01c000 rw-s 00003000 fe:01 1234                       /tmp/a file (deleted)";
        let region = parse(line).unwrap();
        assert_eq!((region.start, region.end, region.offset), (0x7f01_a000, 0x7f01_c000, 0x3000));
        assert_eq!((region.is_readable, region.is_shared, region.has_file()), (true, true, true));
        assert_eq!(region.path, Path::new("/tmp/a file (deleted)"));
        let anonymous = parse("7ffd0000-7ffd2000 ---p 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.is_readable, anonymous.is_shared, anonymous.has_file()), (false, false, false));
        assert_eq!(parse("7ffd0000-7ffd2000 ---p 00000000 00:00 0").unwrap().path, Path::new(""));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn mapped_file_of_a_region_can_be_opened() {
        let own = std::env::current_exe().unwrap();
        let pid = std::process::id();
        let region = regions(pid).unwrap().into_iter().find(|region| region.path == own).unwrap();
        let number = fs::metadata(own).unwrap().ino();
        assert_eq!(region.open(pid).unwrap().metadata().unwrap().ino(), number);
        assert_eq!(region.open_path(pid).unwrap().metadata().unwrap().ino(), number);
    }

    #[test]
    fn fuzzed_maps_lines_are_parsed_or_skipped() {
        sidelane_testing::fuzz("maps", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            for region in text.lines().filter_map(parse) {
                assert!(region.start <= region.end, "{region:?}");
            }
        });
    }
}
