//! How logs begin: a name of the format, and a head in JSON that says what follows.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first bytes of a log: its format and version, and a line end.
pub type Magic = [u8; 8];
/// The longest head that is read.
const HEAD_BYTES_MAX: u32 = 1 << 20;

/// Writes the beginning of a log.
pub fn write_head(file: &mut impl Write, magic: &Magic, head: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(head)?;
    file.write_all(magic)?;
    file.write_all(&(json.len() as u32).to_le_bytes())?;
    file.write_all(&json)
}

/// Reads the beginning of a log; an error in words if it is not one of this format.
pub fn read_head<T: DeserializeOwned>(input: &mut impl Read, magic: &Magic) -> Result<T, String> {
    let mut first = Magic::default();
    input.read_exact(&mut first).map_err(|_| "it is too short".to_owned())?;
    if first != *magic {
        return Err("it does not begin as a log does".to_owned());
    }
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes).map_err(|_| "its head is cut off".to_owned())?;
    let length = u32::from_le_bytes(bytes);
    if length > HEAD_BYTES_MAX {
        return Err(format!("its head claims to be {length} bytes long"));
    }
    let mut json = vec![0; length as usize];
    input.read_exact(&mut json).map_err(|_| "its head is cut off".to_owned())?;
    serde_json::from_slice(&json).map_err(|error| format!("its head cannot be parsed: {error}"))
}
