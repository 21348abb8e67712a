//! Fields that tell servers who the client is: Forwarded (RFC 7239), the X-Forwarded family, and Via (RFC 9110, 7.6.3).
//!
//! A server that trusts the proxy's address believes these fields. So by default the proxy drops fields of this kind
//! that the client sent, and writes its own.

use std::net::IpAddr;

use super::fields::{self, FieldList};

/// Name of this proxy in the `Via` field, after the protocol version.
const VIA: &[u8] = b" sidelane";

/// Handling of the fields that tell servers who the client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarded {
    /// The proxy drops the client's fields, and writes its own.
    #[default]
    Set,
    /// The client is a trusted proxy: its fields are kept, and the values of this proxy are appended.
    Add,
    /// The client's fields are forwarded, and the proxy writes none.
    Off,
}

/// Client as it is described to servers.
#[derive(Clone, Debug)]
pub struct Peer {
    mode: Forwarded,
    address: String,
    is_v6: bool,
    /// Scheme of the client's requests.
    scheme: &'static str,
}

impl Peer {
    /// Creates the description of a client with this address, which speaks TLS or not. An IPv4-mapped IPv6 address is
    /// shown as IPv4.
    pub fn new(mode: Forwarded, address: IpAddr, is_tls: bool) -> Self {
        let address = address.to_canonical();
        let scheme = if is_tls { "https" } else { "http" };
        Self { mode, address: address.to_string(), is_v6: address.is_ipv6(), scheme }
    }

    /// Returns the address of the client as text.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether a field of the client is forwarded unchanged.
    pub(super) fn should_forward_field(&self, name: &str) -> bool {
        match self.mode {
            Forwarded::Off => true,
            // Drop the two list fields: `write_forwarding_fields` writes each of them as a single field.
            Forwarded::Add => !["X-Forwarded-For", "Forwarded"].iter().any(|list| name.eq_ignore_ascii_case(list)),
            Forwarded::Set => !is_client_identity_field(name),
        }
    }

    /// Writes the fields with which the proxy tells the server who the client is.
    pub(super) fn write_forwarding_fields(
        &self,
        fields: &FieldList<'_>,
        host: Option<&[u8]>,
        is_http10: bool,
        out: &mut Vec<u8>,
    ) {
        if self.mode == Forwarded::Off {
            return;
        }
        write_via(is_http10, out);
        self.write_list("X-Forwarded-For", fields, out, |out| out.extend_from_slice(self.address.as_bytes()));
        self.write_list("Forwarded", fields, out, |out| self.write_forwarded_element(host, out));
        let host = host.map(|host| ("X-Forwarded-Host", host));
        let own = [("X-Real-IP", self.address.as_bytes()), ("X-Forwarded-Proto", self.scheme.as_bytes())];
        for (name, value) in own.into_iter().chain(host) {
            if self.mode == Forwarded::Set || fields.forwarded_values(name).next().is_none() {
                fields::write_field_line(name.as_bytes(), value, out);
            }
        }
    }

    /// Writes a list field: the client's values in mode `Add`, and then the proxy's value.
    fn write_list(&self, name: &str, fields: &FieldList<'_>, out: &mut Vec<u8>, write_own: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        if self.mode == Forwarded::Add {
            for value in fields.forwarded_values(name).filter(|value| !value.is_empty()) {
                out.extend_from_slice(value);
                out.extend_from_slice(b", ");
            }
        }
        write_own(out);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the element of `Forwarded`. An IPv6 address or a port contains a colon, which requires quotes.
    fn write_forwarded_element(&self, host: Option<&[u8]>, out: &mut Vec<u8>) {
        let brackets = if self.is_v6 { ("\"[", "]\"") } else { ("", "") };
        for part in ["for=", brackets.0, &self.address, brackets.1] {
            out.extend_from_slice(part.as_bytes());
        }
        if let Some(host) = host.filter(|host| !host.is_empty()) {
            out.extend_from_slice(b";host=");
            write_value(host, out);
        }
        out.extend_from_slice(b";proto=");
        out.extend_from_slice(self.scheme.as_bytes());
    }
}

/// Writes the `Via` field with the HTTP version in which the message came.
pub(super) fn write_via(is_http10: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if is_http10 { b"Via: 1.0" } else { b"Via: 1.1" });
    out.extend_from_slice(VIA);
    out.extend_from_slice(b"\r\n");
}

/// Returns whether servers take a field of this name as a proxy's statement about the client. Some servers read `_` in
/// names as `-`.
fn is_client_identity_field(name: &str) -> bool {
    let is = |byte: u8, wanted: u8| byte.eq_ignore_ascii_case(&wanted) || (byte == b'_' && wanted == b'-');
    let begins = |start: &str| {
        name.len() >= start.len() && name.bytes().zip(start.bytes()).all(|(byte, wanted)| is(byte, wanted))
    };
    let whole = |wanted: &str| name.len() == wanted.len() && begins(wanted);
    whole("forwarded") || whole("x-real-ip") || begins("x-forwarded")
}

/// Writes a token unchanged, and other values as a quoted string.
fn write_value(value: &[u8], out: &mut Vec<u8>) {
    let is_token = value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte));
    if is_token {
        return out.extend_from_slice(value);
    }
    out.push(b'"');
    for byte in value {
        if b"\"\\".contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}
