//! Parser of the field `traceparent` (W3C Trace Context): the trace to which a request belongs, and its parent.

use super::{SpanId, TraceId};

/// Span of the sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// Id of the trace.
    pub trace_id: TraceId,
    /// Id of the sender's span.
    pub span_id: SpanId,
}

/// Length of the field in version 00: version, trace id, span id and flags, with dashes between.
const LENGTH: usize = 55;
const DASHES: [usize; 3] = [2, 35, 52];
/// Version that is not allowed.
const NO_VERSION: u8 = 0xff;

impl TraceParent {
    /// Parses the value of a field. Returns `None` if it is not exactly what the standard allows. Later versions may
    /// have more parts at the end.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(LENGTH)?;
        if DASHES.into_iter().any(|at| known[at] != b'-') {
            return None;
        }
        let [version] = parse_hex(&known[..2])?;
        let [_flags] = parse_hex::<1>(&known[53..])?;
        let is_whole = rest.is_empty() || (version > 0 && rest[0] == b'-');
        (version != NO_VERSION && is_whole).then_some(())?;
        Some(Self {
            trace_id: TraceId::from_bytes(parse_hex(&known[3..35])?)?,
            span_id: SpanId::from_bytes(parse_hex(&known[36..52])?)?,
        })
    }
}

/// Parses bytes in lowercase hexadecimal digits; other digits are not allowed.
fn parse_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn valid_field_gives_trace_and_parent() {
        let parent = TraceParent::parse(VALID.as_bytes()).unwrap();
        assert_eq!(parent.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span_id.to_string(), "00f067aa0ba902b7");
        let later = format!("cc{}-what-the-future-will-be-like", &VALID[2..]);
        assert_eq!(TraceParent::parse(later.as_bytes()), Some(parent));
        assert_eq!(TraceParent::parse(format!("cc{}", &VALID[2..]).as_bytes()), Some(parent));
    }

    #[test]
    fn any_other_field_is_refused() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let zero_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let wrong = [
            "",
            "00",
            &VALID[..54],
            zero_trace,
            zero_span,
            &VALID.to_uppercase(),
            &VALID.replace('-', "_"),
            &VALID.replace("00-4b", "ff-4b"),
            &VALID.replace("00-4b", "0g-4b"),
            &VALID.replace("-01", "-0x"),
            &VALID.replace("4bf9", "4Bf9"),
            &format!("{VALID}-00"),
            &format!("{VALID} "),
            &format!(" {VALID}"),
            &format!("cc{}.more", &VALID[2..]),
            &format!("{VALID}, {VALID}"),
        ];
        for text in wrong {
            assert_eq!(TraceParent::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn fuzzed_traceparent_is_refused_or_means_what_it_says() {
        sidelane_testing::fuzz("traceparent", |bytes| {
            let Some(TraceParent { trace_id, span_id }) = TraceParent::parse(bytes) else { return };
            assert_eq!(&bytes[2..53], format!("-{trace_id}-{span_id}-").as_bytes());
        });
    }
}
