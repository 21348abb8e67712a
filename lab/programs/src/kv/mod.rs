//! `sidelane-lab kv`: a server for embedded key-value stores, RocksDB and WiredTiger.
//!
//! Both are libraries. Holmes §6.1 has them as services; here one thread serves them in the protocol
//! of Redis, so that one client asks Redis and them. The libraries are loaded at run time:
//!
//! - `library`: a shared library and its functions
//! - `store`: what a store does; `rocksdb`, `wiredtiger`: through their C interfaces
//! - `commands`: the commands of Redis that are understood

mod commands;
mod library;
mod rocksdb;
mod store;
mod wiredtiger;

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::place;
use crate::server::{self, ServerArgs};
use commands::Commands;
use store::StoreKind;

/// Options of `kv`.
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

/// Serves until killed.
pub fn run(args: &KvArgs) -> Result<()> {
    if let Some(cpu) = args.cpu {
        place::pin_to(cpu)?;
    }
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let store = args.engine.open(&args.dir)?;
    server::run(&args.server, Commands::new(store))
}
