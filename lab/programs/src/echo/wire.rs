//! Format of requests and replies: a head of 16 bytes, then a body of the length that the head states.

/// Size of the head of a request or reply.
pub const HEAD_BYTES: usize = 16;

/// Request of a client to the echo server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoRequest {
    /// Number that the client gave the request.
    pub id: u64,
    /// Whether the service answers in two sends, head and body.
    pub in_parts: bool,
}

/// Body size of a reply in two parts.
const PART_BYTES: u32 = 100;

/// Encodes a request with a body of `body_bytes`.
pub fn encode_request(request: EchoRequest, body_bytes: usize) -> Vec<u8> {
    encode_message(request.id, body_bytes as u32, u32::from(request.in_parts))
}

/// Returns the first request in `bytes` and its length, if all of it has arrived.
pub fn parse_request(bytes: &[u8]) -> Option<(EchoRequest, usize)> {
    let (id, length, flags) = parse_message(bytes)?;
    Some((EchoRequest { id, in_parts: flags != 0 }, length))
}

/// Returns the reply as one or two parts, each for its own send.
pub fn encode_reply(request: EchoRequest) -> Vec<Vec<u8>> {
    let mut whole = encode_message(request.id, if request.in_parts { PART_BYTES } else { 0 }, 0);
    match request.in_parts {
        true => {
            let body = whole.split_off(HEAD_BYTES);
            vec![whole, body]
        }
        false => vec![whole],
    }
}

/// Returns the id of the first reply in `bytes` and its length, if all of it has arrived.
pub fn parse_reply(bytes: &[u8]) -> Option<(u64, usize)> {
    parse_message(bytes).map(|(id, length, _)| (id, length))
}

fn encode_message(id: u64, body_bytes: u32, flags: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body_bytes as usize);
    bytes.extend(id.to_le_bytes());
    bytes.extend(body_bytes.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.resize(HEAD_BYTES + body_bytes as usize, b'.');
    bytes
}

/// Returns id, total length and flags of the first complete message.
fn parse_message(bytes: &[u8]) -> Option<(u64, usize, u32)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let id = u64::from(word(0)?) | u64::from(word(4)?) << 32;
    let (body_bytes, flags) = (word(8)?, word(12)?);
    let length = HEAD_BYTES + body_bytes as usize;
    (bytes.len() >= length).then_some((id, length, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_parsed_once_its_last_byte_arrived() {
        let ask = EchoRequest { id: 1 << 40 | 7, in_parts: true };
        let bytes = encode_request(ask, 20);
        assert_eq!(parse_request(&bytes[..bytes.len() - 1]), None);
        assert_eq!(parse_request(&bytes), Some((ask, HEAD_BYTES + 20)));
    }

    #[test]
    fn reply_in_two_parts_is_parsed_as_one() {
        let sends = encode_reply(EchoRequest { id: 3, in_parts: true });
        assert_eq!(sends.len(), 2);
        assert_eq!(parse_reply(&sends.concat()), Some((3, HEAD_BYTES + PART_BYTES as usize)));
        assert_eq!(encode_reply(EchoRequest { id: 3, in_parts: false }).len(), 1);
    }
}
