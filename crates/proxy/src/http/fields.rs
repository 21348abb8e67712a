//! Header fields about connection and framing.

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
}

/// Error in the header fields about connection and framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FieldsError {
    #[error("the length of the body is given twice")]
    TwoLengths,
    #[error("Content-Length is not a number")]
    NoNumber,
    #[error("a Transfer-Encoding other than chunked")]
    Encoding,
    #[error("an Expect other than 100-continue")]
    Expectation,
}

/// Kind of a header field, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    ContentLength,
    TransferEncoding,
    Connection,
    Upgrade,
    Host,
    Expect,
    KeepAlive,
    /// Field about this connection alone that the proxy does not use.
    HopByHop,
    Other,
}

/// Returns the kind of a field. It checks the length first, so that most names are never compared.
fn field(name: &str) -> Field {
    let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
    match name.len() {
        2 if is("te") => Field::HopByHop,
        4 if is("host") => Field::Host,
        6 if is("expect") => Field::Expect,
        7 if is("upgrade") => Field::Upgrade,
        10 if is("connection") => Field::Connection,
        10 if is("keep-alive") => Field::KeepAlive,
        14 if is("content-length") => Field::ContentLength,
        // Drop the number that another Sidelane proxy has added, so that the client gets only one.
        16 if is("proxy-connection") || is("sidelane-request") => Field::HopByHop,
        17 if is("transfer-encoding") => Field::TransferEncoding,
        _ => Field::Other,
    }
}

/// Evaluates all fields of a head.
pub(super) fn take_in(fields: &[httparse::Header<'_>]) -> Result<ParsedFields, FieldsError> {
    let mut said = ParsedFields::default();
    for header in fields {
        match field(header.name) {
            Field::ContentLength => said.set_length(header.value)?,
            Field::TransferEncoding => said.set_encoding(header.value)?,
            Field::Connection => said.set_connection(header.value),
            Field::Upgrade => said.has_upgrade = true,
            Field::Host => said.hosts = said.hosts.saturating_add(1),
            Field::Expect if header.value.eq_ignore_ascii_case(b"100-continue") => said.expects_continue = true,
            Field::Expect => return Err(FieldsError::Expectation),
            Field::KeepAlive => said.keep_alive_s = keep_alive_s(header.value),
            Field::HopByHop | Field::Other => {}
        }
    }
    Ok(said)
}

impl ParsedFields {
    fn set_length(&mut self, value: &[u8]) -> Result<(), FieldsError> {
        if self.content_length.is_some() || self.is_chunked {
            return Err(FieldsError::TwoLengths);
        }
        self.content_length = Some(number(value).ok_or(FieldsError::NoNumber)?);
        Ok(())
    }

    fn set_encoding(&mut self, value: &[u8]) -> Result<(), FieldsError> {
        if self.content_length.is_some() || self.is_chunked {
            return Err(FieldsError::TwoLengths);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(FieldsError::Encoding);
        }
        self.is_chunked = true;
        Ok(())
    }

    fn set_connection(&mut self, value: &[u8]) {
        for option in options(value) {
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrades |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }
}

/// Returns the seconds in a field such as `timeout=5, max=100`.
fn keep_alive_s(value: &[u8]) -> Option<u32> {
    let timeout = options(value).find_map(|option| option.strip_prefix(b"timeout="))?;
    std::str::from_utf8(timeout).ok()?.parse().ok()
}

fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Parses a number of digits only, without sign or space.
fn number(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.len() < 20 && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// List of all fields of a head.
pub(super) struct FieldList<'a> {
    fields: &'a [httparse::Header<'a>],
    /// Whether a `Connection` field names other fields.
    nominates: bool,
}

impl<'a> FieldList<'a> {
    pub(super) fn new(fields: &'a [httparse::Header<'a>]) -> Self {
        let names =
            |header: &httparse::Header<'_>| field(header.name) == Field::Connection && names_others(header.value);
        Self { fields, nominates: fields.iter().any(names) }
    }

    /// Returns the values of the fields with this name, except those that are for this connection alone.
    pub(super) fn passed_on(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.fields.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.filter(|header| !self.is_nominated(header.name)).map(|header| header.value)
    }

    /// Writes all fields that the other side may see and that `keeps` accepts.
    pub(super) fn write(&self, keep_upgrade: bool, keeps: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
        for header in self.fields {
            let is_for_us = match field(header.name) {
                Field::Connection | Field::KeepAlive | Field::HopByHop => true,
                Field::Upgrade => !keep_upgrade,
                Field::ContentLength | Field::TransferEncoding | Field::Expect => false,
                Field::Host => !keeps(header.name),
                Field::Other => self.is_nominated(header.name) || !keeps(header.name),
            };
            if !is_for_us {
                line(header.name.as_bytes(), header.value, out);
            }
        }
    }

    /// Returns whether a `Connection` field names this field as one for this connection alone.
    fn is_nominated(&self, name: &str) -> bool {
        let connections = self.fields.iter().filter(|header| field(header.name) == Field::Connection);
        let mut named = connections.flat_map(|header| options(header.value));
        self.nominates && named.any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// Writes one field as a line.
pub(super) fn line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn names_others(connection: &[u8]) -> bool {
    let ours: [&[u8]; 3] = [b"close", b"keep-alive", b"upgrade"];
    options(connection).any(|option| !ours.iter().any(|own| option.eq_ignore_ascii_case(own)))
}
