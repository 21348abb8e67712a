//! The operations of an embedded key-value store.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use super::rocksdb::RocksDb;
use super::wiredtiger::WiredTiger;

/// Ordered key-value store, used by one thread.
pub trait Store {
    /// Returns the value of `key`, if the store has the key.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets the value of `key`. The value survives the end of the process, but not a crash of the machine: it is not
    /// synced to disk.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Passes up to `count` records to `on_record` as key and value, in the order of their keys. The scan starts at the
    /// first key that is not less than `start`.
    fn scan(&mut self, start: &[u8], count: usize, on_record: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Flushes all writes to the store's files and waits until that is done, so that no deferred work is left.
    fn save(&mut self) -> Result<()>;
}

/// Storage engine of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// A log-structured merge tree
    Rocksdb,
    /// A B-tree, that of MongoDB
    Wiredtiger,
}

impl StoreKind {
    /// Opens the store in `dir`, which must exist.
    pub fn open(self, dir: &Path) -> Result<Box<dyn Store>> {
        Ok(match self {
            StoreKind::Rocksdb => Box::new(RocksDb::open(dir)?),
            StoreKind::Wiredtiger => Box::new(WiredTiger::open(dir)?),
        })
    }
}
