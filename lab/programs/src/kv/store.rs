//! Operations of a store.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use super::rocksdb::RocksDb;
use super::wiredtiger::WiredTiger;

/// An ordered key-value store, used by one thread.
pub trait Store {
    /// The value of `key`, if there is one.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets it. It survives the end of the process, but not a crash of the machine: it is not
    /// synced to the disk.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Up to `count` records in the order of their keys, from the first key that is not less than
    /// `start`: each is passed to `each` as key and value.
    fn scan(&mut self, start: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Brings its files up to date, and waits for that: nothing of what was written so far is left to be done later.
    fn save(&mut self) -> Result<()>;
}

/// The stores there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// A log-structured merge tree
    Rocksdb,
    /// A B-tree, that of MongoDB
    Wiredtiger,
}

impl StoreKind {
    /// Opens the store in `dir`, which exists.
    pub fn open(self, dir: &Path) -> Result<Box<dyn Store>> {
        Ok(match self {
            StoreKind::Rocksdb => Box::new(RocksDb::open(dir)?),
            StoreKind::Wiredtiger => Box::new(WiredTiger::open(dir)?),
        })
    }
}
