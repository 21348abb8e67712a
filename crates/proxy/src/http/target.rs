//! Targets of HTTP requests: a path, `*`, or a whole URL as clients of proxies send it.

/// Parsed target of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    /// Host and port of a URL; `None` if the target is not a URL.
    pub(super) host: Option<&'a str>,
    /// Path and query of the target.
    pub(super) path: &'a str,
}

impl<'a> Target<'a> {
    /// Parses a target. The error text tells what is wrong.
    pub(super) fn read(target: &'a str) -> Result<Self, &'static str> {
        if target.starts_with('/') || target == "*" {
            return Ok(Self { host: None, path: target });
        }
        let url = target.split_once("://").filter(|(scheme, _)| is_http(scheme));
        let (_, rest) = url.ok_or("its target is neither a path nor a URL of http")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        match !host.is_empty() && host.bytes().all(is_host_byte) {
            true => Ok(Self { host: Some(host), path }),
            false => Err("its target has no valid host"),
        }
    }

    /// Writes the target without its host, as servers expect it.
    pub(super) fn write(&self, method: &str, out: &mut Vec<u8>) {
        match self.path.as_bytes() {
            [] if method == "OPTIONS" => out.push(b'*'),
            [] | [b'?', ..] => out.push(b'/'),
            _ => {}
        }
        out.extend_from_slice(self.path.as_bytes());
    }
}

fn is_http(scheme: &str) -> bool {
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// Returns whether a byte may be part of a host with a port (RFC 3986, 3.2.2). A user name, which ends with `@`, is
/// refused because it can mislead.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(&byte)
}
