//! The received bytes of a connection that are not handled yet.

use std::io::{ErrorKind, Read};

use super::wire::{EchoRequest, parse_request};
use crate::clock::{Nanos, now_ns};

/// Bytes of one read; large requests take several reads.
const READ_BYTES: usize = 64 * 1024;

/// Result of one read from a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Requests that the read completed, and the time at which it returned.
    Requests(Vec<EchoRequest>, Nanos),
    /// The client has closed the connection.
    Closed,
}

/// Received bytes of a connection that form no complete request yet.
#[derive(Debug, Default)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// Reads the available bytes and returns the complete requests. Reads again only if a read filled its chunk and no
    /// request is complete.
    pub fn receive(&mut self, mut stream: impl Read) -> Received {
        let mut chunk = vec![0; READ_BYTES];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => return Received::Closed,
                Ok(length) => {
                    let read_ns = now_ns();
                    self.0.extend_from_slice(&chunk[..length]);
                    let asks = self.take_complete_requests();
                    if length < READ_BYTES || !asks.is_empty() {
                        return Received::Requests(asks, read_ns);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Received::Requests(vec![], now_ns()),
                Err(_reset) => return Received::Closed,
            }
        }
    }

    fn take_complete_requests(&mut self) -> Vec<EchoRequest> {
        let (mut asks, mut taken) = (vec![], 0);
        while let Some((ask, length)) = parse_request(&self.0[taken..]) {
            asks.push(ask);
            taken += length;
        }
        self.0.drain(..taken);
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::encode_request;
    use super::*;

    #[test]
    fn requests_are_returned_once_complete() {
        let ask = |id| EchoRequest { id, in_parts: false };
        let bytes = [encode_request(ask(1), 10), encode_request(ask(2), 100_000), encode_request(ask(3), 0)].concat();
        let mut buffer = Buffer::default();
        let mut seen = vec![];
        let mut rest = &bytes[..];
        while let Received::Requests(asks, _) = buffer.receive(&mut rest) {
            seen.extend(asks);
        }
        assert_eq!(seen, [ask(1), ask(2), ask(3)]);
    }
}
