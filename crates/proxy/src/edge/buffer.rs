//! Buffer for bytes of one connection that are read and not yet used, or that wait to be written.

use std::cell::RefCell;
use std::io;

use tokio::net::TcpStream;

/// Capacity of a pooled buffer, which is the space for one read.
const ROOM: usize = 16 << 10;
/// Maximum number of unused buffers kept for reuse.
const SPARE_MAX: usize = 256;

thread_local! {
    /// Pool of unused buffers. Idle connections hold no buffer, since there may be thousands of them.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Buffer for bytes of a connection. It holds memory only while it contains bytes.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Removes used bytes from the front of the buffer.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.is_empty() {
            self.release_memory();
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() == 0 && bytes.len() <= ROOM {
            self.make_room();
        }
        // Move the content only after more than half of the buffer was used. So at most one byte is moved for each used
        // byte.
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Reads available bytes from the socket. Returns their number, or 0 at the end of the stream.
    pub(super) fn fill(&mut self, stream: &TcpStream) -> io::Result<usize> {
        self.make_room();
        let result = stream.try_read_buf(&mut self.bytes);
        if self.is_empty() {
            self.release_memory();
        }
        result
    }

    fn make_room(&mut self) {
        if self.bytes.capacity() == 0 {
            self.bytes = SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(ROOM));
        }
        if self.bytes.len() == self.bytes.capacity() {
            self.bytes.drain(..self.start);
            self.start = 0;
            self.bytes.reserve(ROOM);
        }
    }

    fn release_memory(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.start = 0;
        bytes.clear();
        if bytes.capacity() == ROOM {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(bytes);
                }
            });
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // At the end of the thread, the pool may be destroyed already. The buffer is then not reused.
        if SPARE.try_with(|_| ()).is_ok() {
            self.release_memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_content_uses_a_pooled_buffer() {
        let (mut few, mut many) = (Buffer::default(), Buffer::default());
        few.push(b"few");
        many.push(&[0; ROOM + 1]);
        assert_eq!((few.bytes.capacity(), few.data()), (ROOM, &b"few"[..]));
        assert_eq!((many.bytes.capacity() > ROOM, many.data().len()), (true, ROOM + 1));
        few.consume(3);
        assert_eq!((few.is_empty(), few.bytes.capacity()), (true, 0), "an idle connection has no buffer");
    }

    #[test]
    fn bytes_are_consumed_in_order_of_arrival() {
        let mut buffer = Buffer::default();
        buffer.push(b"abcd");
        buffer.consume(1);
        buffer.push(b"ef");
        assert_eq!(buffer.data(), b"bcdef");
        buffer.consume(4);
        buffer.push(b"g");
        assert_eq!((buffer.data(), buffer.start), (&b"fg"[..], 0), "more than half was used");
    }
}
