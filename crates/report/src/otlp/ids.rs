//! Ids of traces and spans.

use std::fmt;

use serde::{Serialize, Serializer};

/// Id of a trace: 16 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Id of a span: 8 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// Returns the id with these bytes; `None` if all are zero.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Returns the id that belongs to these numbers. The same numbers give the same id on each machine and in each
    /// version, so that an export that is repeated replaces the first one.
    pub fn derive(numbers: &[u64]) -> Self {
        let [high, low] = [1, 2].map(|seed| mix(seed, numbers).to_be_bytes());
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high);
        bytes[8..].copy_from_slice(&low);
        Self(bytes)
    }

    fn halves(self) -> [u64; 2] {
        let number = u128::from_be_bytes(self.0);
        [(number >> 64) as u64, number as u64]
    }
}

impl SpanId {
    /// Returns the id with these bytes; `None` if all are zero.
    pub fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// Returns the bytes of the id.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// Returns the id of a span of this trace that belongs to these numbers.
    pub fn derive(trace: TraceId, numbers: &[u64]) -> Self {
        let [high, low] = trace.halves();
        Self(mix(high, &[&[low], numbers].concat()).to_be_bytes())
    }
}

/// Returns a number other than 0 that depends on each bit of the seed and of the numbers: the finalizer of SplitMix64,
/// after each number.
fn mix(seed: u64, numbers: &[u64]) -> u64 {
    let mixed = numbers.iter().fold(seed, |hash, number| {
        let hash = (hash ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    });
    mixed.max(1)
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for SpanId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn derived_ids_are_the_same_each_time_and_differ() {
        let all: BTreeSet<String> = (0..1000).map(|number| TraceId::derive(&[number, 7]).to_string()).collect();
        assert_eq!(all.len(), 1000);
        let trace = TraceId::derive(&[3, 7]);
        assert_eq!(trace, TraceId::derive(&[3, 7]));
        let spans: BTreeSet<String> = (0..1000).map(|number| SpanId::derive(trace, &[number]).to_string()).collect();
        assert_eq!(spans.len(), 1000);
        assert!(spans.iter().all(|id| id.len() == 16) && all.iter().all(|id| id.len() == 32));
    }

    #[test]
    fn ids_of_zeros_are_none() {
        assert_eq!((TraceId::from_bytes([0; 16]), SpanId::from_bytes([0; 8])), (None, None));
        assert_eq!(SpanId::from_bytes([0, 0, 0, 0, 0, 0, 1, 0xab]).unwrap().to_string(), "00000000000001ab");
    }
}
