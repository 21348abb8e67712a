//! Text from clients, cut to a maximum length.

/// Maximum number of bytes kept of a request line.
pub const REQUEST_MAX: usize = 2048;
/// Maximum number of bytes kept of a Referer or User-Agent field.
pub const FIELD_MAX: usize = 512;

/// Beginning of a text from a client, with the number of omitted bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text<'a> {
    /// First bytes of the text.
    pub bytes: &'a [u8],
    /// Number of bytes omitted at the end.
    pub omitted: u32,
}

impl<'a> Text<'a> {
    /// Cuts a text to at most `max_bytes` bytes.
    pub fn cut(text: &'a [u8], max_bytes: usize) -> Self {
        let kept = text.len().min(max_bytes);
        Self { bytes: &text[..kept], omitted: u32::try_from(text.len() - kept).unwrap_or(u32::MAX) }
    }
}
