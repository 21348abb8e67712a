//! Passes filled buffers from the observer to another thread, without waiting for that thread.
//!
//! Full buffers go one way, empty ones the other. If there is no empty buffer, the observer
//! continues to fill the current one.

use rtrb::{Consumer, Producer, RingBuffer};

/// Observer's side of the handover.
pub struct Handover<T> {
    empty: Consumer<Box<T>>,
    full: Producer<Box<T>>,
}

/// Receiver's side of the handover.
pub struct Takeover<T> {
    empty: Producer<Box<T>>,
    full: Consumer<Box<T>>,
}

/// Returns both sides of a handover with at most `count` buffers on the way.
pub fn handover<T>(count: usize) -> (Handover<T>, Takeover<T>) {
    let (give_empty, take_empty) = RingBuffer::new(count);
    let (give_full, take_full) = RingBuffer::new(count);
    (Handover { empty: take_empty, full: give_full }, Takeover { empty: give_empty, full: take_full })
}

impl<T> Handover<T> {
    /// Exchanges `filled` for an empty buffer, if one is available. Returns whether it was exchanged.
    #[inline(always)]
    pub fn offer(&mut self, filled: &mut Box<T>) -> bool {
        !self.empty.is_empty() && self.exchange(filled)
    }

    /// Returns whether the receiver's side was dropped.
    pub fn is_abandoned(&self) -> bool {
        self.full.is_abandoned()
    }

    #[cold]
    fn exchange(&mut self, filled: &mut Box<T>) -> bool {
        let Ok(empty) = self.empty.pop() else { return false };
        // There are never more buffers than the queue has room for, so this push succeeds.
        self.full.push(std::mem::replace(filled, empty)).is_ok()
    }
}

impl<T> Takeover<T> {
    /// Requests a full buffer by giving the observer an empty one.
    pub fn ask(&mut self, empty: Box<T>) {
        // If the queue has no room, the observer already has enough empty buffers.
        let _ = self.empty.push(empty);
    }

    /// Returns a full buffer; `None` if there is none yet.
    pub fn take(&mut self) -> Option<Box<T>> {
        self.full.pop().ok()
    }

    /// Returns whether the observer's side was dropped and no buffer is left.
    pub fn ended(&self) -> bool {
        self.full.is_abandoned() && self.full.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_one_is_exchanged_for_an_empty_one() {
        let (mut observer, mut taker) = handover(2);
        let mut filled = Box::new(1);
        assert!(!observer.offer(&mut filled), "no view asked");
        taker.ask(Box::new(0));
        assert!(observer.offer(&mut filled));
        assert_eq!((*filled, taker.take()), (0, Some(Box::new(1))));
        assert!(!taker.ended());
        drop(observer);
        assert!(taker.ended());
    }
}
