//! Ring buffer of 64-bit words between one serving thread and one writing thread.
//!
//! *Invariant:* an entry is read completely, as it was put in, or counted as lost (`entries_come_whole_and_in_order`).
//! Only the sender advances `written`, after it has stored the words of an entry. Only the receiver advances `read`,
//! after it has copied the words.
//!
//! The receiver sleeps while the ring is empty. It sets a flag before it checks the ring a last time; the sender reads
//! the flag after it has put an entry in. So no entry is left in the ring of a receiver that sleeps, and only the first
//! entry after a pause costs a system call (`sleeping_receiver_is_woken_by_an_entry_and_by_the_end`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use super::entry::{Entry, HEAD};

const WORD: usize = size_of::<u64>();

#[derive(Debug)]
struct Ring {
    words: Box<[AtomicU64]>,
    /// Number of words that were put into the ring since its creation.
    written: AtomicU64,
    /// Number of words that were taken out of the ring since its creation.
    read: AtomicU64,
    /// Number of entries that are lost, because the ring was full or the log could not be written.
    lost: AtomicU64,
    has_ended: AtomicBool,
    /// Thread of the receiver. The sender wakes it while `is_asleep` is set.
    receiver: OnceLock<Thread>,
    is_asleep: AtomicBool,
}

impl Ring {
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed)
            && self.is_asleep.swap(false, Ordering::Relaxed)
            && let Some(receiver) = self.receiver.get()
        {
            receiver.unpark();
        }
    }

    fn word_at(&self, position: u64) -> &AtomicU64 {
        &self.words[position as usize % self.words.len()]
    }
}

/// Sending end of the ring buffer. Dropping it ends the access log.
#[derive(Debug)]
pub struct Sender {
    ring: Arc<Ring>,
    written: u64,
    /// Last known value of the ring's `read`. The sender reads it again when the ring seems full.
    read: u64,
    /// Buffer for the texts of an entry. It is kept so that its memory is reused.
    texts: Vec<u8>,
}

/// Receiving end of the ring buffer.
#[derive(Debug)]
pub struct Receiver {
    ring: Arc<Ring>,
    read: u64,
    texts: Vec<u8>,
}

/// Creates a ring buffer of `capacity_bytes` bytes for log entries between two threads.
pub fn channel(capacity_bytes: usize) -> (Sender, Receiver) {
    let words = (0..capacity_bytes.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect();
    let (written, read, lost) = Default::default();
    let (has_ended, is_asleep) = (AtomicBool::new(false), AtomicBool::new(false));
    let ring = Arc::new(Ring { words, written, read, lost, has_ended, receiver: OnceLock::new(), is_asleep });
    (
        Sender { ring: Arc::clone(&ring), written: 0, read: 0, texts: Vec::new() },
        Receiver { ring, read: 0, texts: Vec::new() },
    )
}

impl Sender {
    /// Puts an entry into the ring. If the ring is full, the entry is lost and counted.
    pub fn send(&mut self, entry: &Entry<'_>) {
        self.texts.clear();
        entry.texts().iter().for_each(|text| self.texts.extend_from_slice(text.bytes));
        self.texts.resize(self.texts.len().next_multiple_of(WORD), 0);
        if !self.has_room((HEAD + self.texts.len() / WORD) as u64) {
            self.ring.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut at = self.written;
        let texts = self.texts.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        for word in entry.encode_head().into_iter().chain(texts) {
            self.ring.word_at(at).store(word, Ordering::Relaxed);
            at += 1;
        }
        self.written = at;
        self.ring.written.store(at, Ordering::Release);
        self.ring.wake();
    }

    fn has_room(&mut self, words: u64) -> bool {
        let max = self.ring.words.len() as u64;
        if self.written - self.read + words > max {
            self.read = self.ring.read.load(Ordering::Acquire);
        }
        self.written - self.read + words <= max
    }

    /// Returns the number of entries lost since the start.
    pub fn lost_entries(&self) -> u64 {
        self.ring.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.ring.has_ended.store(true, Ordering::Release);
        self.ring.wake();
    }
}

/// Handle that wakes the receiver.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Ring>);

impl Waker {
    /// Wakes the receiver. If the receiver is awake, its next sleep ends at once.
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if let Some(receiver) = self.0.receiver.get() {
            receiver.unpark();
        }
    }
}

impl Receiver {
    /// Returns whether the sender was dropped. Entries may still be in the ring.
    pub fn is_sender_gone(&self) -> bool {
        self.ring.has_ended.load(Ordering::Acquire)
    }

    /// Returns a handle that wakes this receiver.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.ring))
    }

    /// Sleeps until an entry comes, the sender is dropped, a waker wakes the receiver, or `timeout` is over. Only one
    /// thread may call this function. It may also return early for no reason.
    pub fn wait_for_entry(&self, timeout: Option<Duration>) {
        if self.ring.receiver.set(thread::current()).is_ok() {
            // The sender could not wake this thread before it was registered, so check the ring first.
            fence(Ordering::SeqCst);
            return;
        }
        self.ring.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.read == self.ring.written.load(Ordering::Acquire) && !self.is_sender_gone() {
            timeout.map_or_else(thread::park, thread::park_timeout);
        }
        self.ring.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Takes the oldest entry out of the ring and passes it to `take`. Returns `None` if the ring is empty.
    pub fn receive<T>(&mut self, take: impl FnOnce(Entry<'_>) -> T) -> Option<T> {
        if self.read == self.ring.written.load(Ordering::Acquire) {
            return None;
        }
        let word = |at: u64| self.ring.word_at(at).load(Ordering::Relaxed);
        let head: [u64; HEAD] = std::array::from_fn(|at| word(self.read + at as u64));
        let words = Entry::text_bytes(&head).div_ceil(WORD) as u64;
        let (start, end) = (self.read + HEAD as u64, self.read + HEAD as u64 + words);
        self.texts.clear();
        self.texts.extend((start..end).flat_map(|at| word(at).to_le_bytes()));
        self.ring.read.store(end, Ordering::Release);
        self.read = end;
        Some(take(Entry::decode(&head, &self.texts)))
    }

    /// Counts lines that could not be written as lost.
    pub fn add_lost_lines(&self, lines: u64) {
        self.ring.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// Returns the number of entries lost since the start.
    pub fn lost_entries(&self) -> u64 {
        self.ring.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use sidelane_policy::hedge::{Hazard, Server};

    use super::super::entry::{ClientRequest, Dispatch, RequestOutcome, Winner};
    use super::super::text::{FIELD_MAX, REQUEST_MAX, Text};
    use super::*;
    use crate::http::RequestNumber;

    fn http_entry(number: u64, line: &[u8]) -> Entry<'_> {
        let odd = number % 2 == 1;
        let text = |bytes| Text { bytes, omitted: number as u32 };
        Entry {
            arrived_ns: number,
            duration_ns: 2,
            first_byte_ns: odd.then_some(3),
            client: if odd { "192.0.2.1:4711" } else { "[2001:db8::1]:80" }.parse().unwrap(),
            server: odd.then_some(Server::Second),
            outcome: RequestOutcome::TimedOut,
            sent: Dispatch::Hazard(Hazard::ALL[number as usize % Hazard::ALL.len()]),
            winner: Winner::Hedge,
            status: odd.then_some(504),
            received_bytes: 5,
            sent_bytes: 6,
            body_bytes: u64::MAX,
            number: odd.then_some(RequestNumber { id: number, mark: 8 }),
            asked: match odd {
                true => ClientRequest::Http { line: text(line), referer: text(b"r"), agent: text(b"") },
                false => ClientRequest::Redis { name: line, keys: Some(9) },
            },
        }
    }

    #[test]
    fn entries_come_whole_and_in_order() {
        const COUNT: u64 = 20_000;
        let line = |number: u64| vec![b'a' + (number % 26) as u8; number as usize % 300];
        let (mut sender, mut receiver) = channel(4096);
        let sending = std::thread::spawn(move || {
            for number in 0..COUNT {
                let before = sender.lost_entries();
                sender.send(&http_entry(number, &line(number)));
                if sender.lost_entries() > before {
                    std::thread::yield_now();
                }
            }
        });
        let (mut came, mut next) = (0, 0);
        loop {
            let is_last = receiver.is_sender_gone();
            while let Some(number) = receiver.receive(|got| {
                assert_eq!(got, http_entry(got.arrived_ns, &line(got.arrived_ns)));
                got.arrived_ns
            }) {
                assert!(number >= next);
                (next, came) = (number + 1, came + 1);
            }
            if is_last {
                break;
            }
        }
        sending.join().unwrap();
        assert_eq!(came + receiver.lost_entries(), COUNT);
        assert!(came > 0);
    }

    #[test]
    fn sleeping_receiver_is_woken_by_an_entry_and_by_the_end() {
        const COUNT: u64 = 2000;
        let (mut sender, mut receiver) = channel(1 << 20);
        let (told, came) = std::sync::mpsc::channel();
        let receiving = std::thread::spawn(move || {
            // If a wakeup is lost, this test does not end.
            while !receiver.is_sender_gone() {
                receiver.wait_for_entry(None);
                while let Some(number) = receiver.receive(|entry| entry.arrived_ns) {
                    told.send(number).unwrap();
                }
            }
        });
        for number in 0..COUNT {
            sender.send(&http_entry(number, b""));
            assert_eq!(came.recv().unwrap(), number);
        }
        drop(sender);
        receiving.join().unwrap();
    }

    #[test]
    fn entry_for_a_full_ring_is_counted_as_lost() {
        let (mut sender, mut receiver) = channel(1024);
        (0..100).for_each(|number| sender.send(&http_entry(number, b"GET / HTTP/1.1")));
        let kept = 100 - sender.lost_entries();
        drop(sender);
        assert!(receiver.is_sender_gone() && kept > 0);
        for number in 0..kept {
            assert_eq!(receiver.receive(|entry| entry.arrived_ns), Some(number));
        }
        assert_eq!(receiver.receive(|_| ()), None);
    }

    #[test]
    fn entry_with_the_longest_texts_is_received_unchanged() {
        let long = vec![b'x'; 1 << 20];
        let (line, field) = (Text::cut(&long, REQUEST_MAX), Text::cut(&long, FIELD_MAX));
        let entry = Entry { asked: ClientRequest::Http { line, referer: field, agent: field }, ..http_entry(1, b"") };
        let (mut sender, mut receiver) = channel(1 << 14);
        sender.send(&entry);
        assert_eq!(receiver.receive(|got| got == entry), Some(true));
    }
}
