//! Lock of a program's own code in memory.
//!
//! Code is mapped from files and read when it first runs; under memory pressure it is dropped and read again. A
//! thread that needs such a page sleeps until it is there, whatever its priority, and its CPU goes to another thread.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Range;

use rustix::mm::{Advice, madvise, mlock};

/// Identity of a file: its device and its inode.
type FileId<'a> = (&'a str, &'a str);

struct Mapping<'a> {
    bytes: Range<usize>,
    runs: bool,
    file: FileId<'a>,
}

/// Brings all code of this process into memory, with the constants and variables of the same files, and locks it
/// there.
///
/// # Errors
/// If it may not be locked (neither CAP_IPC_LOCK nor a sufficient RLIMIT_MEMLOCK). Code that was not locked is in
/// memory all the same, and may be dropped again under memory pressure.
pub fn keep_code_in_memory() -> io::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    code_mappings(&maps).map(|bytes| lock_in_memory(&bytes)).reduce(io::Result::and).unwrap_or(Ok(()))
}

fn lock_in_memory(address_range: &Range<usize>) -> io::Result<()> {
    let (start, length) = (address_range.start as *mut _, address_range.len());
    // SAFETY: `mlock` changes neither the content of the memory nor its access rights.
    let locked = unsafe { mlock(start, length) };
    if locked.is_err() {
        // Kernels before 5.14 do not know this advice; on them a page is read when it is first needed.
        // SAFETY: this advice changes neither the content of the memory nor its access rights.
        let _ = unsafe { madvise(start, length, Advice::LinuxPopulateRead) };
    }
    Ok(locked?)
}

/// Returns where files with executable parts are mapped, from the text of `/proc/PID/maps`.
fn code_mappings(maps: &str) -> impl Iterator<Item = Range<usize>> {
    let mappings = || maps.lines().filter_map(parse_mapping);
    let code: BTreeSet<FileId> = mappings().filter(|mapping| mapping.runs).map(|mapping| mapping.file).collect();
    mappings().filter(move |mapping| code.contains(&mapping.file)).map(|mapping| mapping.bytes)
}

/// Parses one line of `/proc/PID/maps`; `None` for memory that belongs to no file, or that may not be read.
fn parse_mapping(line: &str) -> Option<Mapping<'_>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let address = |hex| usize::from_str_radix(hex, 16).ok();
    let rights = fields.next().filter(|rights| rights.starts_with('r'))?;
    let file = (fields.nth(1)?, fields.next().filter(|inode| *inode != "0")?);
    Some(Mapping { bytes: address(start)?..address(end)?, runs: rights.contains('x'), file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_mappings_of_an_executable_are_its_code() {
        let maps = "1000-2000 r--p 00000000 08:01 7 /bin/one\n\
                    2000-5000 r-xp 00001000 08:01 7 /bin/one\n\
                    5000-6000 rw-p 00004000 08:01 7 /bin/one\n\
                    6000-7000 ---p 00005000 08:01 7 /bin/one\n\
                    7000-8000 rw-p 00000000 00:00 0 [heap]\n\
                    8000-9000 r--p 00000000 08:01 8 /usr/share/words\n\
                    9000-a000 r--s 00000000 08:02 7 /other/disk\n\
                    a000-b000 r-xp 00000000 00:00 0 [vdso]\n\
                    nonsense\n";
        assert_eq!(code_mappings(maps).collect::<Vec<_>>(), [0x1000..0x2000, 0x2000..0x5000, 0x5000..0x6000]);
    }

    #[test]
    fn kept_code_is_resident_and_locked() {
        if let Err(error) = keep_code_in_memory() {
            return sidelane_testing::skip(format!("may not lock memory: {error}"));
        }
        let here = kept_code_is_resident_and_locked as fn() as usize;
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut own =
            smaps.lines().skip_while(|line| !parse_mapping(line).is_some_and(|found| found.bytes.contains(&here)));
        let mut told = |name: &str| own.find_map(|line| line.strip_prefix(name)).expect(name).trim().to_owned();
        let [size, resident, flags] = ["Size:", "Rss:", "VmFlags:"].map(&mut told);
        assert_eq!(resident, size);
        assert!(flags.split(' ').any(|flag| flag == "lo"), "{flags}");
    }
}
