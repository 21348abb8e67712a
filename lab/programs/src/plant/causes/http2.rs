//! The part of HTTP/2 (RFC 9113) that one question and one answer need.

use std::io::{Read, Write};

use anyhow::{Context, Result};

/// First bytes that a client sends: the connection preface and empty settings.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const HEAD_BYTES: usize = 9;

/// Header fields as indices in the static table (RFC 7541): the method POST, the scheme http and the path `/`; then the
/// status 200.
const POST: [u8; 3] = [0x83, 0x86, 0x84];
const STATUS_200: [u8; 1] = [0x88];
/// gRPC message without content: the flag for uncompressed, and the length 0.
const MESSAGE: [u8; 5] = [0; 5];

/// Frame of HTTP/2: type, flags, stream and payload.
pub struct Frame {
    kind: u8,
    flags: u8,
    pub stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    fn new(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Self {
        Self { kind, flags, stream, payload: payload.to_vec() }
    }

    /// Returns the frame with the header fields of a question.
    pub fn request_headers(stream: u32) -> Self {
        Self::new(HEADERS, END_HEADERS, stream, &POST)
    }

    /// Returns the frame with the header fields of an answer.
    pub fn response_headers(stream: u32) -> Self {
        Self::new(HEADERS, END_HEADERS, stream, &STATUS_200)
    }

    /// Returns the frame with the body of a question or an answer.
    pub fn data(stream: u32) -> Self {
        Self::new(DATA, END_STREAM, stream, &MESSAGE)
    }

    /// Returns a frame that acknowledges `bytes` read bytes.
    pub fn window_update(bytes: usize) -> Self {
        Self::new(WINDOW_UPDATE, 0, 0, &(bytes as u32).to_be_bytes())
    }

    /// Returns a ping, or the answer to a ping.
    pub fn ping(is_answer: bool) -> Self {
        Self::new(PING, if is_answer { ACK } else { 0 }, 0, &[0; 8])
    }

    /// Returns the size of the payload in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Returns the encoded frame, ready to send.
    pub fn into_bytes(self) -> Vec<u8> {
        let length = (self.payload_bytes() as u32).to_be_bytes();
        let head = [&length[1..], &[self.kind, self.flags], &self.stream.to_be_bytes()].concat();
        [head, self.payload].concat()
    }
}

/// Starts the server's side of a connection: reads the client's preface, and sends the server's own settings.
pub fn exchange_settings(stream: &mut (impl Read + Write)) -> Result<()> {
    stream.read_exact(&mut [0; PREFACE.len()])?;
    Ok(stream.write_all(&Frame::new(SETTINGS, 0, 0, &[]).into_bytes())?)
}

/// Reads frames up to the next one of this kind, and returns it.
pub fn read_until(stream: &mut impl Read, kind: u8) -> Result<Frame> {
    loop {
        let frame = read_frame(stream).context("the other side is gone")?;
        if frame.kind == kind {
            return Ok(frame);
        }
    }
}

fn read_frame(stream: &mut impl Read) -> Result<Frame> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head)?;
    let [a, b, c, kind, flags, s @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload)?;
    Ok(Frame { kind, flags, stream: u32::from_be_bytes(s), payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_and_other_kinds_are_skipped() {
        let sent = [Frame::window_update(5), Frame::ping(true), Frame::response_headers(7), Frame::data(7)]
            .map(Frame::into_bytes)
            .concat();
        let data = read_until(&mut &sent[..], DATA).unwrap();
        assert_eq!((data.stream, data.flags, data.payload_bytes()), (7, END_STREAM, MESSAGE.len()));
        assert_eq!(PREFACE[PREFACE.len() - HEAD_BYTES..], Frame::new(SETTINGS, 0, 0, &[]).into_bytes());
        assert!(read_until(&mut &sent[..20], DATA).is_err());
    }
}
