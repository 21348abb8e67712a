//! Header fields about connection and framing, and the field about the trace.

use sidelane_report::otlp::TraceParent;

/// Content of the header fields about connection and framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedFields {
    pub(super) content_length: Option<u64>,
    pub(super) is_chunked: bool,
    pub(super) closes: bool,
    pub(super) keeps_alive: bool,
    /// Whether there is a field `Connection: upgrade`.
    pub(super) upgrades: bool,
    /// Whether there is an `Upgrade` field.
    pub(super) has_upgrade: bool,
    pub(super) hosts: u8,
    pub(super) expects_continue: bool,
    /// Value of `Keep-Alive: timeout=` in seconds.
    pub(super) keep_alive_s: Option<u32>,
    /// Number of `traceparent` fields.
    traceparents: u8,
    /// Content of the last `traceparent` field; `None` if it is not valid.
    traceparent: Option<TraceParent>,
}

/// Error in the header fields about connection and framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FieldsError {
    #[error("the length of the body is given twice")]
    TwoLengths,
    #[error("Content-Length is not a number")]
    NoNumber,
    #[error("Transfer-Encoding is not chunked")]
    Encoding,
    #[error("Expect is not 100-continue")]
    Expectation,
}

/// Kind of a header field, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldKind {
    ContentLength,
    TransferEncoding,
    Connection,
    Upgrade,
    Host,
    Expect,
    KeepAlive,
    TraceParent,
    /// Field that concerns only one connection, and that the proxy does not use.
    HopByHop,
    Other,
}

/// Returns the kind of a field. It checks the length first, so that most names are never compared.
fn field_kind(name: &str) -> FieldKind {
    let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
    match name.len() {
        2 if is("te") => FieldKind::HopByHop,
        4 if is("host") => FieldKind::Host,
        6 if is("expect") => FieldKind::Expect,
        7 if is("upgrade") => FieldKind::Upgrade,
        10 if is("connection") => FieldKind::Connection,
        10 if is("keep-alive") => FieldKind::KeepAlive,
        11 if is("traceparent") => FieldKind::TraceParent,
        14 if is("content-length") => FieldKind::ContentLength,
        // Drop the number that another Sidelane proxy has added, so that the client gets only one.
        16 if is("proxy-connection") || is("sidelane-request") => FieldKind::HopByHop,
        17 if is("transfer-encoding") => FieldKind::TransferEncoding,
        _ => FieldKind::Other,
    }
}

/// Evaluates all fields of a head.
pub(super) fn parse_fields(fields: &[httparse::Header<'_>]) -> Result<ParsedFields, FieldsError> {
    let mut said = ParsedFields::default();
    for header in fields {
        match field_kind(header.name) {
            FieldKind::ContentLength => said.set_content_length(header.value)?,
            FieldKind::TransferEncoding => said.set_transfer_encoding(header.value)?,
            FieldKind::Connection => said.set_connection_options(header.value),
            FieldKind::Upgrade => said.has_upgrade = true,
            FieldKind::Host => said.hosts = said.hosts.saturating_add(1),
            FieldKind::Expect if header.value.eq_ignore_ascii_case(b"100-continue") => said.expects_continue = true,
            FieldKind::Expect => return Err(FieldsError::Expectation),
            FieldKind::KeepAlive => said.keep_alive_s = parse_keep_alive_timeout_s(header.value),
            FieldKind::TraceParent => {
                said.traceparents = said.traceparents.saturating_add(1);
                said.traceparent = TraceParent::parse(header.value);
            }
            FieldKind::HopByHop | FieldKind::Other => {}
        }
    }
    Ok(said)
}

impl ParsedFields {
    /// Returns the span of the sender; `None` if there is not exactly one valid `traceparent` field.
    pub(super) fn parent(&self) -> Option<TraceParent> {
        self.traceparent.filter(|_| self.traceparents == 1)
    }

    fn set_content_length(&mut self, value: &[u8]) -> Result<(), FieldsError> {
        if self.content_length.is_some() || self.is_chunked {
            return Err(FieldsError::TwoLengths);
        }
        self.content_length = Some(parse_digits(value).ok_or(FieldsError::NoNumber)?);
        Ok(())
    }

    fn set_transfer_encoding(&mut self, value: &[u8]) -> Result<(), FieldsError> {
        if self.content_length.is_some() || self.is_chunked {
            return Err(FieldsError::TwoLengths);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(FieldsError::Encoding);
        }
        self.is_chunked = true;
        Ok(())
    }

    fn set_connection_options(&mut self, value: &[u8]) {
        for option in comma_separated_options(value) {
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrades |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }
}

/// Returns the seconds in a field such as `timeout=5, max=100`.
fn parse_keep_alive_timeout_s(value: &[u8]) -> Option<u32> {
    let timeout = comma_separated_options(value).find_map(|option| option.strip_prefix(b"timeout="))?;
    std::str::from_utf8(timeout).ok()?.parse().ok()
}

fn comma_separated_options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Parses a number of digits only, without sign or space.
fn parse_digits(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.len() < 20 && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// List of all fields of a head.
pub(super) struct FieldList<'a> {
    fields: &'a [httparse::Header<'a>],
    /// Whether a `Connection` field lists names of fields that concern only this connection.
    nominates: bool,
}

impl<'a> FieldList<'a> {
    pub(super) fn new(fields: &'a [httparse::Header<'a>]) -> Self {
        let names = |header: &httparse::Header<'_>| {
            field_kind(header.name) == FieldKind::Connection && lists_field_names(header.value)
        };
        Self { fields, nominates: fields.iter().any(names) }
    }

    /// Returns the values of the fields with this name, except fields that concern only one connection.
    pub(super) fn forwarded_values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.fields.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.filter(|header| !self.is_named_in_connection(header.name)).map(|header| header.value)
    }

    /// Writes all fields that may be forwarded and that `keeps` accepts.
    pub(super) fn write_forwarded(&self, keep_upgrade: bool, keeps: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
        for header in self.fields {
            let is_for_us = match field_kind(header.name) {
                FieldKind::Connection | FieldKind::KeepAlive | FieldKind::HopByHop => true,
                FieldKind::Upgrade => !keep_upgrade,
                FieldKind::ContentLength | FieldKind::TransferEncoding | FieldKind::Expect => false,
                FieldKind::Host => !keeps(header.name),
                FieldKind::TraceParent | FieldKind::Other => {
                    self.is_named_in_connection(header.name) || !keeps(header.name)
                }
            };
            if !is_for_us {
                write_field_line(header.name.as_bytes(), header.value, out);
            }
        }
    }

    /// Returns whether a `Connection` field lists this field as one that concerns only one connection.
    fn is_named_in_connection(&self, name: &str) -> bool {
        let connections = self.fields.iter().filter(|header| field_kind(header.name) == FieldKind::Connection);
        let mut named = connections.flat_map(|header| comma_separated_options(header.value));
        self.nominates && named.any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// Writes one field as a line.
pub(super) fn write_field_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn lists_field_names(connection: &[u8]) -> bool {
    let ours: [&[u8]; 3] = [b"close", b"keep-alive", b"upgrade"];
    comma_separated_options(connection).any(|option| !ours.iter().any(|own| option.eq_ignore_ascii_case(own)))
}
