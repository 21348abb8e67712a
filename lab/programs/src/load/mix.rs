//! Mixes of requests to a key-value store: the kinds of the requests, and their keys.
//!
//! `a`, `b` and `e` are the core workloads of YCSB (Cooper et al., SoCC'10) with YCSB's defaults: records of 1 000
//! bytes (ten fields of 100 bytes, read and written as one value here), zipfian keys, scans of 1 to 100 records, and
//! keys named by a hash. `plain` is the lab's own mix: one of ten requests sets its key, all keys are equally likely,
//! values have 100 bytes.

use clap::ValueEnum;

use super::plan::REQUESTS_STREAM;
use super::protocol::Kind;
use crate::rng::Rng;
use crate::zipfian::{Zipfian, hash};

/// Number of the random stream that gives the contents of values.
const VALUES_STREAM: u64 = 3;
/// Size of the buffer of random bytes from which values are cut.
const POOL_BYTES: usize = 64 * 1024;
/// Length of YCSB's longest scan, in records.
const SCAN_MAX: usize = 100;
/// Ratio of reserved keys to expected inserts: YCSB reserves twice the expected number.
const ROOM: f64 = 2.0;

/// Name of a request mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MixName {
    /// 90 % reads and 10 % updates of keys that are all equally likely
    Plain,
    /// YCSB's workload a: 50 % reads, 50 % updates
    A,
    /// YCSB's workload b: 95 % reads, 5 % updates
    B,
    /// YCSB's workload e: 95 % scans, 5 % inserts
    E,
}

impl MixName {
    /// Returns whether the mix reads records in the order of their keys.
    pub fn has_scans(self) -> bool {
        self == MixName::E
    }

    fn value_bytes(self) -> usize {
        if self == MixName::Plain { 100 } else { 1000 }
    }

    /// Returns the share of requests that are reads or scans.
    fn read_share(self) -> f64 {
        if self == MixName::A { 0.5 } else { 0.95 }
    }
}

/// Request to a key-value store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Kind of the request, such as read or update.
    pub kind: Kind,
    /// Number of the record that the request reads or writes.
    pub record: u64,
    /// Number of records to scan; 1 for other requests.
    pub count: usize,
}

/// Random stream of requests in one mix.
#[derive(Debug)]
pub struct Mix {
    name: MixName,
    rng: Rng,
    values: Rng,
    keys: Zipfian,
    /// Number of records in the service, initial and inserted.
    records: u64,
    pool: Vec<u8>,
}

impl Mix {
    /// Returns the request stream of `seed` for a service with `records` records, sized for about `requests` requests.
    pub fn new(name: MixName, records: u64, requests: f64, seed: u64) -> Self {
        let new = if name.has_scans() { requests * (1.0 - name.read_share()) * ROOM } else { 0.0 };
        let mut values = Rng::new(seed, VALUES_STREAM);
        let pool = (0..POOL_BYTES).map(|_| b'!' + values.below(94) as u8).collect();
        let (rng, keys) = (Rng::new(seed, REQUESTS_STREAM), Zipfian::new(records + new as u64));
        Mix { name, rng, values, keys, records, pool }
    }

    /// Returns the name of the mix.
    pub fn name(&self) -> MixName {
        self.name
    }

    /// Returns the number of records in the service so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Draws the next request of the mix.
    pub fn next_operation(&mut self) -> Operation {
        if self.name == MixName::Plain {
            let record = self.rng.below(self.records as usize) as u64;
            let kind = if self.rng.below(10) == 0 { Kind::Update } else { Kind::Read };
            return Operation { kind, record, count: 1 };
        }
        let reads = self.rng.next_f64() < self.name.read_share();
        match (reads, self.name.has_scans()) {
            (true, false) => Operation { kind: Kind::Read, record: self.draw_record(), count: 1 },
            (false, false) => Operation { kind: Kind::Update, record: self.draw_record(), count: 1 },
            (true, true) => {
                Operation { kind: Kind::Scan, record: self.draw_record(), count: 1 + self.rng.below(SCAN_MAX) }
            }
            (false, true) => self.next_insert(),
        }
    }

    /// Returns the key of a record.
    pub fn key(&self, record: u64) -> String {
        match self.name {
            MixName::Plain => format!("sidelane-lab:{record:08}"),
            _ => format!("user{}", hash(record)),
        }
    }

    /// Returns a random value for a record.
    pub fn value(&mut self) -> &[u8] {
        let length = self.name.value_bytes();
        let start = self.values.below(POOL_BYTES - length);
        &self.pool[start..start + length]
    }

    /// Draws an existing record by the zipfian distribution.
    fn draw_record(&mut self) -> u64 {
        loop {
            let record = self.keys.key_at(self.rng.next_f64());
            if record < self.records {
                return record;
            }
        }
    }

    fn next_insert(&mut self) -> Operation {
        self.records += 1;
        Operation { kind: Kind::Insert, record: self.records - 1, count: 1 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const REQUESTS: usize = 20_000;

    fn draw_operations(name: MixName, seed: u64) -> Vec<Operation> {
        let mut mix = Mix::new(name, 5_000, REQUESTS as f64, seed);
        (0..REQUESTS).map(|_| mix.next_operation()).collect()
    }

    fn share_by_kind(operations: &[Operation]) -> BTreeMap<Kind, f64> {
        let mut shares = BTreeMap::new();
        operations.iter().for_each(|operation| *shares.entry(operation.kind).or_default() += 1.0 / REQUESTS as f64);
        shares
    }

    #[test]
    fn mixes_have_the_request_shares_of_their_workloads() {
        let (read, update, insert, scan) = (Kind::Read, Kind::Update, Kind::Insert, Kind::Scan);
        for (name, wanted) in [
            (MixName::Plain, [(read, 0.9), (update, 0.1)]),
            (MixName::A, [(read, 0.5), (update, 0.5)]),
            (MixName::B, [(read, 0.95), (update, 0.05)]),
            (MixName::E, [(insert, 0.05), (scan, 0.95)]),
        ] {
            for seed in 0..5 {
                let shares = share_by_kind(&draw_operations(name, seed));
                assert_eq!(shares.keys().copied().collect::<Vec<_>>(), wanted.map(|(kind, _)| kind), "{name:?}");
                for (kind, wanted) in wanted {
                    assert!((shares[&kind] - wanted).abs() < 0.015, "{name:?} {kind:?}: {}", shares[&kind]);
                }
            }
        }
    }

    #[test]
    fn only_existing_records_are_read_and_inserts_are_unique() {
        let mut records = 5_000;
        for operation in draw_operations(MixName::E, 3) {
            if operation.kind == Kind::Insert {
                assert_eq!(operation.record, records);
                records += 1;
            }
            assert!(operation.record < records && (1..=SCAN_MAX).contains(&operation.count), "{operation:?}");
        }
        assert!(draw_operations(MixName::B, 3).iter().all(|operation| operation.record < 5_000));
    }

    #[test]
    fn the_seed_fixes_the_requests() {
        for name in [MixName::Plain, MixName::A, MixName::E] {
            assert_eq!(draw_operations(name, 1), draw_operations(name, 1));
            assert_ne!(draw_operations(name, 1), draw_operations(name, 2));
        }
    }

    #[test]
    fn values_differ_and_have_the_workloads_size() {
        let mut mix = Mix::new(MixName::A, 10, 0.0, 1);
        let first = mix.value().to_vec();
        assert!(first.len() == 1000 && first.iter().all(u8::is_ascii_graphic));
        assert_ne!(first, mix.value());
        assert_eq!(Mix::new(MixName::Plain, 10, 0.0, 1).value().len(), 100);
    }
}
