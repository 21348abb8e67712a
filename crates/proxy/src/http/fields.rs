//! Header fields that concern the connection or the framing, and what they say.

/// What the fields of a head say about connection and framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) content_length: Option<u64>,
    pub(super) is_chunked: bool,
    pub(super) closes: bool,
    pub(super) keeps_alive: bool,
    /// `Connection: upgrade`.
    pub(super) upgrades: bool,
    /// There is an `Upgrade` field.
    pub(super) has_upgrade: bool,
    pub(super) hosts: u8,
    pub(super) expects_continue: bool,
    /// `Keep-Alive: timeout=` in seconds.
    pub(super) keep_alive_s: Option<u32>,
}

/// What is wrong with the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("the length of the body is said twice")]
    TwoLengths,
    #[error("Content-Length is no number")]
    NoNumber,
    #[error("a Transfer-Encoding other than chunked")]
    Encoding,
    #[error("an Expect other than 100-continue")]
    Expectation,
}

/// Whose field it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    ContentLength,
    TransferEncoding,
    Connection,
    Upgrade,
    Host,
    Expect,
    KeepAlive,
    /// About this connection alone, and of no use to us.
    HopByHop,
    Other,
}

/// Lengths tell nearly all others apart, so the names of most fields are not compared with anything.
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
        // A chain of proxies would give a client several numbers.
        16 if is("proxy-connection") || is("sidelane-request") => Field::HopByHop,
        17 if is("transfer-encoding") => Field::TransferEncoding,
        _ => Field::Other,
    }
}

/// Takes in all fields.
pub(super) fn take_in(fields: &[httparse::Header<'_>]) -> Result<Said, Wrong> {
    let mut said = Said::default();
    for header in fields {
        match field(header.name) {
            Field::ContentLength => said.set_length(header.value)?,
            Field::TransferEncoding => said.set_encoding(header.value)?,
            Field::Connection => said.set_connection(header.value),
            Field::Upgrade => said.has_upgrade = true,
            Field::Host => said.hosts = said.hosts.saturating_add(1),
            Field::Expect if header.value.eq_ignore_ascii_case(b"100-continue") => said.expects_continue = true,
            Field::Expect => return Err(Wrong::Expectation),
            Field::KeepAlive => said.keep_alive_s = keep_alive_s(header.value),
            Field::HopByHop | Field::Other => {}
        }
    }
    Ok(said)
}

impl Said {
    fn set_length(&mut self, value: &[u8]) -> Result<(), Wrong> {
        if self.content_length.is_some() || self.is_chunked {
            return Err(Wrong::TwoLengths);
        }
        self.content_length = Some(number(value).ok_or(Wrong::NoNumber)?);
        Ok(())
    }

    fn set_encoding(&mut self, value: &[u8]) -> Result<(), Wrong> {
        if self.content_length.is_some() || self.is_chunked {
            return Err(Wrong::TwoLengths);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Wrong::Encoding);
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

/// Seconds in a field such as `timeout=5, max=100`.
fn keep_alive_s(value: &[u8]) -> Option<u32> {
    let timeout = options(value).find_map(|option| option.strip_prefix(b"timeout="))?;
    std::str::from_utf8(timeout).ok()?.parse().ok()
}

fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Digits alone: no sign, no space.
fn number(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.len() < 20 && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// All fields of a head.
pub(super) struct FieldList<'a> {
    fields: &'a [httparse::Header<'a>],
    /// A `Connection` field names others.
    nominates: bool,
}

impl<'a> FieldList<'a> {
    pub(super) fn new(fields: &'a [httparse::Header<'a>]) -> Self {
        let names =
            |header: &httparse::Header<'_>| field(header.name) == Field::Connection && names_others(header.value);
        Self { fields, nominates: fields.iter().any(names) }
    }

    /// Values of the fields of this name that are not for this connection alone.
    pub(super) fn passed_on(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.fields.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.filter(|header| !self.is_nominated(header.name)).map(|header| header.value)
    }

    /// Writes all fields that the other side is to see and that `keeps` does not refuse.
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

    /// Whether `Connection` names the field as one for this connection alone.
    fn is_nominated(&self, name: &str) -> bool {
        let connections = self.fields.iter().filter(|header| field(header.name) == Field::Connection);
        let mut named = connections.flat_map(|header| options(header.value));
        self.nominates && named.any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// Writes one field.
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
