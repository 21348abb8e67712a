//! The client's records of its requests, written by `sidelane-lab ask`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Request as its client recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientRequest {
    pub(super) planted: bool,
    pub(super) sent_ns: u64,
    pub(super) answered_ns: u64,
}

/// Reads all requests, in the order of time.
pub(super) fn read_client_requests(file: &Path) -> Result<Vec<ClientRequest>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    text.lines().map(|line| parse_request(line).with_context(|| format!("`{line}` is not about a request"))).collect()
}

fn parse_request(line: &str) -> Option<ClientRequest> {
    let mut words = line.split(',').skip(1);
    let planted = words.next()? == "1";
    Some(ClientRequest { planted, sent_ns: words.next()?.parse().ok()?, answered_ns: words.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truth_line_is_parsed_as_a_request() {
        assert_eq!(parse_request("7,1,100,250"), Some(ClientRequest { planted: true, sent_ns: 100, answered_ns: 250 }));
        assert_eq!(parse_request("7,0,100"), None);
    }
}
