//! Passes filled buffers from the observer to another thread, without waiting for that thread.
//!
//! Full buffers go one way, empty ones the other. If there is no empty buffer, the observer
//! continues to fill the current one.

use rtrb::{Consumer, Producer, RingBuffer};

/// Observer's side of the handover.
pub struct BufferSender<T> {
    empty: Consumer<Box<T>>,
    full: Producer<Box<T>>,
}

/// Receiver's side of the handover.
pub struct BufferReceiver<T> {
    empty: Producer<Box<T>>,
    full: Consumer<Box<T>>,
}

/// Returns both sides of a handover with at most `buffers_max` buffers on the way.
pub fn buffer_channel<T>(buffers_max: usize) -> (BufferSender<T>, BufferReceiver<T>) {
    let (give_empty, take_empty) = RingBuffer::new(buffers_max);
    let (give_full, take_full) = RingBuffer::new(buffers_max);
    (BufferSender { empty: take_empty, full: give_full }, BufferReceiver { empty: give_empty, full: take_full })
}

impl<T> BufferSender<T> {
    /// Exchanges `filled` for an empty buffer, if one is available. Returns whether it was exchanged.
    #[inline(always)]
    pub fn try_exchange(&mut self, filled: &mut Box<T>) -> bool {
        !self.empty.is_empty() && self.exchange_with_empty(filled)
    }

    /// Returns whether the receiver's side was dropped.
    pub fn is_abandoned(&self) -> bool {
        self.full.is_abandoned()
    }

    #[cold]
    fn exchange_with_empty(&mut self, filled: &mut Box<T>) -> bool {
        let Ok(empty) = self.empty.pop() else { return false };
        // There are never more buffers than the queue has room for, so this push succeeds.
        self.full.push(std::mem::replace(filled, empty)).is_ok()
    }
}

impl<T> BufferReceiver<T> {
    /// Requests a full buffer by giving the observer an empty one.
    pub fn give_empty(&mut self, empty: Box<T>) {
        // If the queue has no room, the observer already has enough empty buffers.
        let _ = self.empty.push(empty);
    }

    /// Returns a full buffer; `None` if there is none yet.
    pub fn take_filled(&mut self) -> Option<Box<T>> {
        self.full.pop().ok()
    }

    /// Returns whether the observer's side was dropped and no buffer is left.
    pub fn has_ended(&self) -> bool {
        self.full.is_abandoned() && self.full.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_buffer_is_exchanged_for_an_empty_one() {
        let (mut observer, mut taker) = buffer_channel(2);
        let mut filled = Box::new(1);
        assert!(!observer.try_exchange(&mut filled), "no view asked");
        taker.give_empty(Box::new(0));
        assert!(observer.try_exchange(&mut filled));
        assert_eq!((*filled, taker.take_filled()), (0, Some(Box::new(1))));
        assert!(!taker.has_ended());
        drop(observer);
        assert!(taker.has_ended());
    }
}
