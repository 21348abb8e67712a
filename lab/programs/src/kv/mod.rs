//! `sidelane-lab kv`: a server for embedded key-value stores, RocksDB and WiredTiger.
//!
//! Holmes §6.1 uses these two libraries as services. Here one thread serves them in the protocol of Redis, so that one
//! client can load Redis, RocksDB and WiredTiger. The libraries are loaded at run time:
//!
//! - `library`: a shared library and its functions
//! - `store`: the operations of a store; `rocksdb`, `wiredtiger`: stores through the C interfaces of these libraries
//! - `commands`: the supported commands of Redis

mod commands;
mod library;
mod rocksdb;
mod store;
mod wiredtiger;

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::scheduling;
use crate::server::{self, ServerArgs};
use commands::Commands;
use store::StoreKind;

/// Options of `sidelane-lab kv`.
#[derive(Debug, clap::Args)]
pub struct KvArgs {
    /// The store
    #[arg(value_enum)]
    engine: StoreKind,
    /// Where it keeps its files; made if it is not there
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// CPU to run on; threads of the store's own run there too
    #[arg(long)]
    cpu: Option<usize>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Opens the store and serves requests until the process is killed.
pub fn run(args: &KvArgs) -> Result<()> {
    if let Some(cpu) = args.cpu {
        scheduling::pin_to(cpu)?;
    }
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let store = args.engine.open(&args.dir)?;
    server::run(&args.server, Commands::new(store))
}
