//! Texts of clients, as much as is kept of them.

/// The most bytes of a request line that are kept.
pub const REQUEST_MAX: usize = 2048;
/// The most bytes of a Referer or User-Agent that are kept.
pub const FIELD_MAX: usize = 512;

/// The start of a text of a client, and how many bytes of it are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text<'a> {
    /// Its first bytes.
    pub bytes: &'a [u8],
    /// Bytes behind them.
    pub omitted: u32,
}

impl<'a> Text<'a> {
    /// The start of this text, of at most `max` bytes.
    pub fn cut(text: &'a [u8], max: usize) -> Self {
        let kept = text.len().min(max);
        Self { bytes: &text[..kept], omitted: u32::try_from(text.len() - kept).unwrap_or(u32::MAX) }
    }
}
