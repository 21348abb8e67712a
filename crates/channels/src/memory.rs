//! Variables of a process, read from its memory without stopping it.
//!
//! A read is a system call (0.9 µs in a virtual machine), since the memory is private to the process. It uses
//! /proc/PID/mem, which takes a quarter less time than process_vm_readv there. The open file also belongs to one
//! process, so a later process with the same id is not read. The kernel copies an aligned number of up to 8 bytes in
//! one piece on all processors that were tested, but does not guarantee it: a value that changes during the copy may be
//! torn. Memory that the process shares through a file is mapped here too, so that a read is one load.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use thiserror::Error;

use crate::mapping::Mapping;
use crate::maps::regions;
use crate::signal::{MemoryLocation, Signal};
use crate::symbols::{SymbolError, Variable, permission_hint};
use crate::{
    Channel, ChannelEnd, Kind, Reader, SyscallReader, Width, Word, add_pid_to_name, most_informative_error, symbols,
};

/// Reason why a variable cannot be observed.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum MemoryError {
    /// Variable that is not found.
    #[error(transparent)]
    Symbol(#[from] SymbolError),
    /// Variable that is longer than a word.
    #[error("cannot observe {name} as a whole, which has {}; name a field, or a width, as in mem:{name}/u64 for its \
             first 8 bytes", bytes_in_words(*.bytes))]
    NoWidth { name: String, bytes: Option<u64> },
    /// Address without the width of the value.
    #[error("cannot observe {place} without a width; write one, as in mem:{place}/u64")]
    AddressWithoutWidth { place: String },
    /// Field that extends past the variable's end.
    #[error("cannot read {wanted} bytes at offset {offset} of {name}: it has {bytes} bytes")]
    Outside { name: String, bytes: u64, offset: u64, wanted: u64 },
    /// Address that is ambiguous, because the target has several processes.
    #[error(
        "cannot choose a process for address 0x{address:x}, since the target has several; name one, as in \
             mem:{pid}:0x{address:x}/u64"
    )]
    WhoseAddress { pid: u32, address: u64 },
    /// Place in memory for which no process was named.
    #[error("no process was named for {place}; add its id, as in mem:PID:{place}")]
    NoProcess { place: String },
    /// Memory that the system refuses to read.
    #[error("cannot read {place} of process {pid}: {source}{}", reading_hint(.source))]
    Read { pid: u32, place: String, source: io::Error },
}

impl MemoryError {
    fn is_not_found(&self) -> bool {
        matches!(self, MemoryError::Symbol(SymbolError::NotFound { .. }))
    }
}

fn bytes_in_words(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "no known length".into(), |bytes| format!("{bytes} bytes"))
}

fn reading_hint(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EIO) => "; nothing is mapped there".into(),
        Some(libc::ESRCH | libc::ENOENT) => "; it has ended".into(),
        _ => permission_hint(error),
    }
}

/// Returns the channels of `mem:[PID:]PLACE[/WIDTH]`. Reads process `pid` if it is given, or else each of `pids` that
/// has the place.
pub fn channels(
    signal: &Signal,
    pid: Option<u32>,
    place: &MemoryLocation,
    width: Option<Width>,
    pids: &BTreeSet<u32>,
) -> Result<Vec<Channel>, MemoryError> {
    let kind = signal.kind.map_or(Kind::Tag, Kind::channel_kind);
    let pids: Vec<u32> = pid.map_or_else(|| pids.iter().copied().collect(), |pid| vec![pid]);
    if let ([first, _, ..], MemoryLocation::Address(address)) = (&pids[..], place) {
        return Err(MemoryError::WhoseAddress { pid: *first, address: *address });
    }
    let (found, errors): (Vec<_>, Vec<_>) =
        pids.iter().map(|pid| MemoryWord::open(*pid, place, width)).partition(Result::is_ok);
    let found: Vec<MemoryWord> = found.into_iter().flatten().collect();
    if found.is_empty() {
        let errors = errors.into_iter().filter_map(Result::err).collect();
        let none = MemoryError::NoProcess { place: place.to_string() };
        return Err(most_informative_error(errors, MemoryError::is_not_found).unwrap_or(none));
    }
    let are_several = found.len() > 1;
    let channel = |memory: MemoryWord| {
        let (pid, reader, notes) = (memory.pid, memory.reader(), vec![]);
        let mut channel = Channel { name: signal.name.clone(), kind, reader, meaning: None, notes };
        if are_several {
            add_pid_to_name(&mut channel, pid);
        }
        channel
    };
    Ok(found.into_iter().map(channel).collect())
}

/// Word in the memory of a process.
#[derive(Debug)]
pub struct MemoryWord {
    pid: u32,
    memory: File,
    address: u64,
    width: Width,
}

impl MemoryWord {
    /// Finds the word, and reads it once as a test.
    pub fn open(pid: u32, location: &MemoryLocation, width: Option<Width>) -> Result<Self, MemoryError> {
        let (address, width) = match location {
            MemoryLocation::Address(address) => (*address, width.ok_or_else(|| missing_width_error(location))?),
            MemoryLocation::Symbol { name, offset } => locate_word(&symbols::find(pid, name)?, *offset, width)?,
        };
        let failed = |source| MemoryError::Read { pid, place: location.to_string(), source };
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(failed)?;
        let memory = Self { pid, memory, address, width };
        memory.value().map_err(failed)?;
        Ok(memory)
    }

    /// Returns the fastest reader of the word.
    fn reader(self) -> Reader {
        self.map_shared_word().map_or_else(|| Reader::Call(Box::new(self)), Reader::Word)
    }

    /// Returns the word in shared memory; `None` if this process cannot map it.
    fn map_shared_word(&self) -> Option<Word> {
        let page_bytes = rustix::param::page_size() as u64;
        let (page, within) = (self.address & !(page_bytes - 1), self.address & (page_bytes - 1));
        let is_aligned = self.address.is_multiple_of(self.width.bytes() as u64);
        let regions = regions(self.pid).ok()?;
        let region = regions.into_iter().find(|region| (region.start..region.end).contains(&self.address))?;
        if !is_aligned || !region.is_shared || !region.is_readable || !region.has_file() {
            return None;
        }
        let file = region.open(self.pid).ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()))?;
        let mapping = Mapping::new(&file, region.offset + (page - region.start), page_bytes as usize).ok()?;
        let place = mapping.address_at(within as usize)?;
        // SAFETY: the word is aligned, so it is within the mapped page. The word keeps that page, which stays readable
        // whatever happens to the file.
        Some(unsafe { Word::new(place, self.width, Arc::new(mapping)) })
    }

    /// Returns the value of the word now.
    fn value(&self) -> io::Result<u64> {
        let (mut bytes, wanted) = ([0_u8; 8], self.width.bytes());
        match self.memory.read_at(&mut bytes[..wanted], self.address)? {
            0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            read if read < wanted => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(u64::from_le_bytes(bytes)),
        }
    }
}

impl SyscallReader for MemoryWord {
    fn read(&mut self) -> Result<u64, ChannelEnd> {
        self.value().map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => ChannelEnd::Target,
            Some(libc::EIO) => ChannelEnd::Error(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                format!("process {} has unmapped the memory at 0x{:x}", self.pid, self.address),
            )),
            _ => ChannelEnd::Error(error),
        })
    }
}

/// Returns the address and the width of a word in a variable.
fn locate_word(variable: &Variable, offset: u64, width: Option<Width>) -> Result<(u64, Width), MemoryError> {
    let Variable { name, address, bytes, .. } = variable;
    let width = match width {
        Some(width) => width,
        None if offset > 0 => return Err(MemoryError::AddressWithoutWidth { place: format!("{name}+{offset}") }),
        None => Width::from_bytes(*bytes).ok_or_else(|| MemoryError::NoWidth { name: name.clone(), bytes: *bytes })?,
    };
    let wanted = width.bytes() as u64;
    match bytes {
        Some(bytes) if offset.checked_add(wanted).is_none_or(|end| end > *bytes) => {
            Err(MemoryError::Outside { name: name.clone(), bytes: *bytes, offset, wanted })
        }
        _ => Ok((address.wrapping_add(offset), width)),
    }
}

fn missing_width_error(place: &MemoryLocation) -> MemoryError {
    MemoryError::AddressWithoutWidth { place: place.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable_with_length(bytes: Option<u64>) -> Variable {
        Variable { name: "stats".into(), address: 0x1000, bytes, object: "demo".into() }
    }

    #[test]
    fn default_width_is_the_length_of_the_variable() {
        assert_eq!(locate_word(&variable_with_length(Some(4)), 0, None).unwrap(), (0x1000, Width::U32));
        assert_eq!(locate_word(&variable_with_length(Some(64)), 8, Some(Width::U64)).unwrap(), (0x1008, Width::U64));
        assert_eq!(locate_word(&variable_with_length(None), 8, Some(Width::U8)).unwrap(), (0x1008, Width::U8));
    }

    #[test]
    fn variable_without_a_width_is_refused_with_an_example() {
        let error =
            |bytes, offset, width| locate_word(&variable_with_length(bytes), offset, width).unwrap_err().to_string();
        assert!(error(Some(24), 0, None).contains("has 24 bytes; name a field"));
        assert!(error(None, 0, None).contains("mem:stats/u64"));
        assert!(error(Some(64), 8, None).contains("mem:stats+8/u64"));
        assert!(error(Some(8), 4, Some(Width::U64)).contains("cannot read 8 bytes at offset 4"));
        assert!(error(Some(8), u64::MAX, Some(Width::U8)).contains("cannot read 1 bytes at offset"));
    }

    #[test]
    fn own_memory_is_read_and_unmapped_memory_is_an_error() {
        let word = 0x1122_3344_5566_7788_u64;
        let place = |address| MemoryLocation::Address(address);
        let here = place((&raw const word).addr() as u64);
        let me = std::process::id();
        assert_eq!(MemoryWord::open(me, &here, Some(Width::U64)).unwrap().read().unwrap(), word);
        assert_eq!(MemoryWord::open(me, &here, Some(Width::U16)).unwrap().read().unwrap(), 0x7788);
        let error = MemoryWord::open(me, &place(16), Some(Width::U8)).unwrap_err().to_string();
        assert!(error.contains("0x10 of process") && error.contains("nothing is mapped there"), "{error}");
        assert!(MemoryWord::open(me, &here, None).unwrap_err().to_string().contains("/u64"));
    }
}
