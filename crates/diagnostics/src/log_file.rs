//! Common format of logs: a name of the format, a head in JSON that describes the content, and chunks, of which the
//! last one may be cut off.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::log_note::LogNote;

/// First bytes of a log: its format and version, and a line end.
pub type Magic = [u8; 8];
/// Largest head of a log that is read, in bytes.
const HEAD_BYTES_MAX: u32 = 1 << 20;

/// Writes the beginning of a log: `magic`, the length of the head, and the head as JSON.
pub fn write_head(file: &mut impl Write, magic: &Magic, head: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(head)?;
    file.write_all(magic)?;
    file.write_all(&(json.len() as u32).to_le_bytes())?;
    file.write_all(&json)
}

/// Reads the beginning of a log. The error says why the input is not a log of the format that `magic` names.
pub fn read_head<T: DeserializeOwned>(input: &mut impl Read, magic: &Magic) -> Result<T, String> {
    let mut first = Magic::default();
    input.read_exact(&mut first).map_err(|_| "it is too short".to_owned())?;
    if first != *magic {
        return Err("it does not begin like a log".to_owned());
    }
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes).map_err(|_| "its head is cut off".to_owned())?;
    let length = u32::from_le_bytes(bytes);
    if length > HEAD_BYTES_MAX {
        return Err(format!("its head has an impossible length of {length} bytes"));
    }
    let mut json = vec![0; length as usize];
    input.read_exact(&mut json).map_err(|_| "its head is cut off".to_owned())?;
    serde_json::from_slice(&json).map_err(|error| format!("its head cannot be parsed: {error}"))
}

/// Reason why a log cannot be read.
#[derive(Debug, Error)]
pub enum LogError {
    /// The file cannot be read.
    #[error("cannot read the log {path}")]
    Io {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file does not begin like a log of the expected format.
    #[error("cannot read {path}: it is not a log of `sidelane {verb}` ({what})")]
    Head {
        /// Path of the file.
        path: String,
        /// Subcommand of `sidelane` that writes such logs.
        verb: &'static str,
        /// Description of the problem.
        what: String,
    },
}

/// Opens the log at `path`; `read_beginning` reads its beginning.
pub fn open<L>(
    path: &Path,
    subcommand: &'static str,
    read_beginning: impl FnOnce(BufReader<File>) -> Result<L, String>,
) -> Result<L, LogError> {
    let name = || path.display().to_string();
    let file = File::open(path).map_err(|source| LogError::Io { path: name(), source })?;
    read_beginning(BufReader::with_capacity(1 << 20, file)).map_err(|what| LogError::Head {
        path: name(),
        verb: subcommand,
        what,
    })
}

/// Reads the head of the next chunk into `head`. Returns false if the log ends before it.
pub fn read_chunk_head(input: &mut impl Read, head: &mut [u8]) -> Result<bool, LogNote> {
    match input.read(&mut head[..1]) {
        Ok(1) => input.read_exact(&mut head[1..]).map(|()| true).map_err(|_| LogNote::LogCutOff),
        Ok(_) => Ok(false),
        Err(error) => Err(LogNote::LogUnreadable { error: error.to_string() }),
    }
}

/// Reads the bytes of a chunk. Returns them, and whether they are complete. The buffer grows with the bytes that exist,
/// so a wrong length in the head is harmless.
pub fn read_chunk_body(input: &mut impl Read, length: u64) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let read = input.take(length).read_to_end(&mut bytes);
    (bytes, read.is_ok_and(|read| read as u64 == length))
}
