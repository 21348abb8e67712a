//! Search for the library that self-checking programs load.

use std::env;
use std::path::PathBuf;

use thiserror::Error;

const NAME: &str = "libsidelane_gate.so";
/// Environment variable with the library's path, which replaces the search; for packages and tests.
const OVERRIDE: &str = "SIDELANE_GATE_LIBRARY";

/// Reason why the library for self-checking programs cannot be used.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// Library that was not found.
    #[error(
        "cannot use --gate instrumented: there is no {NAME} at {looked}; build it with `cargo build --release \
         --workspace`, name its path in {OVERRIDE}, or use --gate holder"
    )]
    NoLibrary {
        /// Directories that were searched.
        looked: String,
    },
    /// Path that the loader would split at a blank or colon.
    #[error("cannot preload {0}: the loader takes no path with a blank or a colon; move the library")]
    UnusablePath(PathBuf),
}

/// Finds the library for self-checking programs.
pub(super) fn find_gate_library() -> Result<PathBuf, LibraryError> {
    let places = candidate_paths();
    let found = places.iter().find(|path| path.is_file());
    let Some(found) = found else {
        let looked = places.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        return Err(LibraryError::NoLibrary { looked: looked.join(", ") });
    };
    let path = found.canonicalize().unwrap_or_else(|_| found.clone());
    if path.to_string_lossy().contains([' ', ':', '\t', '\n']) {
        Err(LibraryError::UnusablePath(path))
    } else {
        Ok(path)
    }
}

fn candidate_paths() -> Vec<PathBuf> {
    if let Some(path) = env::var_os(OVERRIDE) {
        return vec![path.into()];
    }
    let own = env::current_exe().unwrap_or_default();
    let dir = own.parent().map(PathBuf::from).unwrap_or_default();
    vec![dir.join(NAME), dir.join("../lib").join(NAME)]
}
