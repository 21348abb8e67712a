//! Finds out from the file of a command whether it checks its lane itself.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Functions that self-checking programs call, as they stand in their symbol table.
const CALLED: [&[u8]; 4] = [b"mcount\0", b"__fentry__\0", b"__cyg_profile_func_enter\0", b"sidelane_gate_join\0"];
/// Name of the C library's loader that the gate's library needs.
const LOADER: &[u8] = b"/ld-linux-x86-64.so.2\0";
const ELF: &[u8] = b"\x7fELF";
/// Limit of a program's size in bytes. Larger programs are not built with checks, and take long to read.
const SIZE_MAX: u64 = 1 << 26;

/// Returns whether `program`, as a shell would find it, is a program for this machine that checks its lane itself.
pub(super) fn is_self_checking(program: &OsStr) -> bool {
    let file = find_executable(program).filter(|path| fs::metadata(path).is_ok_and(|found| found.len() <= SIZE_MAX));
    let bytes = file.and_then(|path| fs::read(path).ok()).unwrap_or_default();
    // A program without a loader cannot load a library.
    bytes.starts_with(ELF) && contains_bytes(&bytes, LOADER) && CALLED.iter().any(|name| contains_bytes(&bytes, name))
}

fn contains_bytes(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

fn find_executable(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(Path::new(program).to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_without_checks_are_not_self_checking() {
        for program in ["sh", "/etc/passwd", "/no/such/program", "", "/"] {
            assert!(!is_self_checking(OsStr::new(program)), "{program}");
        }
    }
}
