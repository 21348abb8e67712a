//! Targets of requests: a path, `*`, or a whole URL, as clients of proxies send it.

/// A target that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    /// The host of a URL, with its port.
    pub(super) host: Option<&'a str>,
    /// The rest: path and query.
    pub(super) path: &'a str,
}

impl<'a> Target<'a> {
    /// Reads it, or says what is wrong with it.
    pub(super) fn read(target: &'a str) -> Result<Self, &'static str> {
        if target.starts_with('/') || target == "*" {
            return Ok(Self { host: None, path: target });
        }
        let url = target.split_once("://").filter(|(scheme, _)| is_http(scheme));
        let (_, rest) = url.ok_or("its target is neither a path nor a URL of http")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        match !host.is_empty() && host.bytes().all(is_of_host) {
            true => Ok(Self { host: Some(host), path }),
            false => Err("its target has no valid host"),
        }
    }

    /// Writes it as servers expect it, without a host.
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

/// Bytes of a host with a port (RFC 3986, 3.2.2). A user's name, which `@` ends, is refused: it is there to mislead.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(&byte)
}
