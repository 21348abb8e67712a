//! The client's records of its requests, written by `sidelane-lab ask`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Request as its client recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) planted: bool,
    pub(super) sent_ns: u64,
    pub(super) answered_ns: u64,
}

/// Reads all requests, in the order of time.
pub(super) fn read(file: &Path) -> Result<Vec<Asked>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    text.lines().map(|line| asked(line).with_context(|| format!("`{line}` is not about a request"))).collect()
}

fn asked(line: &str) -> Option<Asked> {
    let mut words = line.split(',').skip(1);
    let planted = words.next()? == "1";
    Some(Asked { planted, sent_ns: words.next()?.parse().ok()?, answered_ns: words.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request() {
        assert_eq!(asked("7,1,100,250"), Some(Asked { planted: true, sent_ns: 100, answered_ns: 250 }));
        assert_eq!(asked("7,0,100"), None);
    }
}
