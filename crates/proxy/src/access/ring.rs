//! Ring buffers of 64-bit words between serving threads and one writing thread. Each serving thread has its own.
//!
//! *Invariant:* an entry is read completely, as it was put in, or counted as lost (`entries_come_whole_and_in_order`).
//! Only the sender advances `written`, after it has stored the words of an entry. Only the receiver advances `read`,
//! after it has copied the words.
//!
//! The receiver sleeps while all rings are empty. It sets a flag before it checks the rings a last time; a sender reads
//! the flag after it has put an entry in. So no entry is left in a ring of a receiver that sleeps, and only the first
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
    bell: Arc<Bell>,
}

/// State with which the senders wake the receiver.
#[derive(Debug, Default)]
struct Bell {
    /// Thread of the receiver. A sender wakes it while `is_asleep` is set.
    receiver: OnceLock<Thread>,
    is_asleep: AtomicBool,
}

impl Bell {
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed)
            && self.is_asleep.swap(false, Ordering::Relaxed)
            && let Some(receiver) = self.receiver.get()
        {
            receiver.unpark();
        }
    }
}

impl Ring {
    fn word_at(&self, position: u64) -> &AtomicU64 {
        &self.words[position as usize % self.words.len()]
    }
}

/// Sending end of a ring buffer. Dropping the last one ends the access log.
#[derive(Debug)]
pub struct Sender {
    ring: Arc<Ring>,
    written: u64,
    /// Last known value of the ring's `read`. The sender reads it again when the ring seems full.
    read: u64,
    /// Buffer for the texts of an entry. It is kept so that its memory is reused.
    texts: Vec<u8>,
}

/// Receiving end of the ring buffers.
#[derive(Debug)]
pub struct Receiver {
    /// Each ring, with the number of words that were read.
    rings: Vec<(Arc<Ring>, u64)>,
    /// Index of the ring that is read next, if it has an entry.
    next: usize,
    bell: Arc<Bell>,
    texts: Vec<u8>,
}

/// Creates a ring buffer of `capacity_bytes` bytes for log entries between two threads.
pub fn channel(capacity_bytes: usize) -> (Sender, Receiver) {
    let mut receiver = Receiver { rings: Vec::new(), next: 0, bell: Arc::default(), texts: Vec::new() };
    (receiver.add_sender(capacity_bytes), receiver)
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
        self.ring.bell.wake();
    }

    fn has_room(&mut self, words: u64) -> bool {
        let max = self.ring.words.len() as u64;
        if self.written - self.read + words > max {
            self.read = self.ring.read.load(Ordering::Acquire);
        }
        self.written - self.read + words <= max
    }

    /// Returns the number of this sender's entries lost since the start.
    pub fn lost_entries(&self) -> u64 {
        self.ring.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.ring.has_ended.store(true, Ordering::Release);
        self.ring.bell.wake();
    }
}

/// Handle that wakes the receiver.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Bell>);

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
    /// Creates a ring buffer of `capacity_bytes` bytes from another thread.
    pub fn add_sender(&mut self, capacity_bytes: usize) -> Sender {
        let words = (0..capacity_bytes.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect();
        let (written, read, lost, has_ended) = Default::default();
        let ring = Arc::new(Ring { words, written, read, lost, has_ended, bell: Arc::clone(&self.bell) });
        self.rings.push((Arc::clone(&ring), 0));
        Sender { ring, written: 0, read: 0, texts: Vec::new() }
    }

    /// Returns whether all senders were dropped. Entries may still be in the rings.
    pub fn are_senders_gone(&self) -> bool {
        self.rings.iter().all(|(ring, _)| ring.has_ended.load(Ordering::Acquire))
    }

    /// Returns a handle that wakes this receiver.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.bell))
    }

    /// Sleeps until an entry comes, the last sender is dropped, a waker wakes the receiver, or `timeout` is over. Only one
    /// thread may call this function. It may also return early for no reason.
    pub fn wait_for_entry(&self, timeout: Option<Duration>) {
        if self.bell.receiver.set(thread::current()).is_ok() {
            // A sender could not wake this thread before it was registered, so check the rings first.
            fence(Ordering::SeqCst);
            return;
        }
        self.bell.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_empty = self.rings.iter().all(|(ring, read)| *read == ring.written.load(Ordering::Acquire));
        if is_empty && !self.are_senders_gone() {
            timeout.map_or_else(thread::park, thread::park_timeout);
        }
        self.bell.is_asleep.store(false, Ordering::Relaxed);
    }

    /// Takes the oldest entry out of a ring that has one, and passes it to `take`. Returns `None` if all rings are empty.
    pub fn receive<T>(&mut self, take: impl FnOnce(Entry<'_>) -> T) -> Option<T> {
        let has_entry = |at: &usize| self.rings[*at].1 != self.rings[*at].0.written.load(Ordering::Acquire);
        let count = self.rings.len();
        let at = (self.next..count).chain(0..self.next).find(has_entry)?;
        self.next = (at + 1) % count;
        let (ring, read) = &mut self.rings[at];
        let word = |at: u64| ring.word_at(at).load(Ordering::Relaxed);
        let head: [u64; HEAD] = std::array::from_fn(|at| word(*read + at as u64));
        let words = Entry::text_bytes(&head).div_ceil(WORD) as u64;
        let (start, end) = (*read + HEAD as u64, *read + HEAD as u64 + words);
        self.texts.clear();
        self.texts.extend((start..end).flat_map(|at| word(at).to_le_bytes()));
        ring.read.store(end, Ordering::Release);
        *read = end;
        Some(take(Entry::decode(&head, &self.texts)))
    }

    /// Counts lines that could not be written as lost.
    pub fn add_lost_lines(&self, lines: u64) {
        self.rings[0].0.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// Returns the number of entries lost since the start.
    pub fn lost_entries(&self) -> u64 {
        self.rings.iter().map(|(ring, _)| ring.lost.load(Ordering::Relaxed)).sum()
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
            server: odd.then_some(Server::ALL[1]),
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
            let is_last = receiver.are_senders_gone();
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
    fn entries_of_two_senders_come_in_turns_until_both_end() {
        let (mut one, mut receiver) = channel(4096);
        let mut two = receiver.add_sender(4096);
        for number in 0..3 {
            one.send(&http_entry(number, b""));
            two.send(&http_entry(10 + number, b""));
        }
        let came: Vec<u64> = std::iter::from_fn(|| receiver.receive(|entry| entry.arrived_ns)).collect();
        assert_eq!(came, [0, 10, 1, 11, 2, 12]);
        drop(one);
        assert!(!receiver.are_senders_gone());
        drop(two);
        assert!(receiver.are_senders_gone());
    }

    #[test]
    fn sleeping_receiver_is_woken_by_an_entry_and_by_the_end() {
        const COUNT: u64 = 2000;
        let (mut sender, mut receiver) = channel(1 << 20);
        let (told, came) = std::sync::mpsc::channel();
        let receiving = std::thread::spawn(move || {
            // If a wakeup is lost, this test does not end.
            while !receiver.are_senders_gone() {
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
        assert!(receiver.are_senders_gone() && kept > 0);
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
