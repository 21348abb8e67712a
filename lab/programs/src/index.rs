//! Builder of the search index, once for a corpus: a SQLite database with one full-text table (FTS5).
//!
//! An index directory is complete or absent: it is built in a directory beside its final path and then renamed. A
//! stamp, written last, identifies the corpus from which it was built.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::corpus::Corpus;

/// Name of the database in an index directory.
pub const DATABASE_NAME: &str = "documents.sqlite";

const STAMP_NAME: &str = "sidelane-lab.json";

/// Version of the index format; raised when the same corpus would give another index.
const FORMAT: u32 = 2;

/// Reduction by `--quick`: it indexes one of this many documents.
const QUICK_EVERY: u64 = 8;

/// Tables of the database. `documents` stores the text too, because phrases are drawn from it; its row numbers count
/// from 1. `vocabulary` lists each term and the number of documents that contain it. The ASCII tokenizer splits text in
/// the same way in every version of SQLite.
const SCHEMA: &str = "
    CREATE VIRTUAL TABLE documents USING fts5(text, tokenize = 'ascii');
    CREATE VIRTUAL TABLE vocabulary USING fts5vocab(documents, row);";

/// Settings for the bulk insertion. It needs no journal, since an incomplete index is discarded. FTS5 buffers 256 MB of
/// postings, more than the whole corpus has, so it writes them once.
const BULK_WRITING: &str = "
    PRAGMA journal_mode = OFF;
    INSERT INTO documents(documents, rank) VALUES ('hashsize', 256000000);";

/// Statement that merges the postings into one part. With one part, a search takes the same time in every build.
const MERGING: &str = "INSERT INTO documents(documents) VALUES ('optimize');";

/// Options of `sidelane-lab index`.
#[derive(Debug, clap::Args)]
pub struct IndexArgs {
    /// Directory to build the index in
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Keep one document in eight
    #[arg(long)]
    quick: bool,
    /// Index the .txt and .rst files under this directory instead of Debian's packages
    #[arg(long, value_name = "DIR")]
    corpus_dir: Option<PathBuf>,
}

/// Parameters from which an index was built.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    format: u32,
    corpus: String,
    every: u64,
}

/// Builds the index unless the directory already holds the index of this corpus.
pub fn run(args: &IndexArgs) -> Result<()> {
    let corpus = match &args.corpus_dir {
        Some(dir) => Corpus::from_folder(dir)?,
        None => Corpus::from_debian_packages()?,
    };
    let stamp = Stamp {
        format: FORMAT,
        corpus: format!("{:016x}", corpus.fingerprint()?),
        every: if args.quick { QUICK_EVERY } else { 1 },
    };
    // Removes a trailing slash, so that a suffix can be added to the name.
    let out: PathBuf = args.out.components().collect();
    if read_stamp(&out).is_some_and(|found| found == stamp) {
        eprintln!("{} holds the index of this corpus already", out.display());
        return Ok(());
    }
    build(&out, &corpus, &stamp)
}

/// Fails if the directory has no complete index of this format.
pub fn require_complete(dir: &Path) -> Result<()> {
    match read_stamp(dir) {
        Some(stamp) if stamp.format == FORMAT => Ok(()),
        _ => bail!("{0} has no index that this version can read; run `sidelane-lab index --out {0}`", dir.display()),
    }
}

fn read_stamp(dir: &Path) -> Option<Stamp> {
    let text = fs::read_to_string(dir.join(STAMP_NAME)).ok()?;
    serde_json::from_str(&text).ok()
}

fn build(out: &Path, corpus: &Corpus, stamp: &Stamp) -> Result<()> {
    ensure_replaceable(out)?;
    let scratch = create_scratch_dir(out)?;
    let documents = write_index(&scratch, corpus, stamp.every)
        .with_context(|| format!("cannot build the index in {}", scratch.display()))?;
    fs::write(scratch.join(STAMP_NAME), serde_json::to_string(stamp)?)
        .with_context(|| format!("cannot write the stamp in {}", scratch.display()))?;
    remove_dir_if_exists(out)?;
    fs::rename(&scratch, out).with_context(|| format!("cannot rename {} to {}", scratch.display(), out.display()))?;
    eprintln!("indexed {documents} documents in {}", out.display());
    Ok(())
}

/// Fails if `out` holds anything but an old index: a build replaces no foreign directory.
fn ensure_replaceable(out: &Path) -> Result<()> {
    let ours = out.join(STAMP_NAME).exists();
    let empty = fs::read_dir(out).map_or(!out.exists(), |mut entries| entries.next().is_none());
    ensure!(ours || empty, "{} exists and is not an index; choose another directory, or remove it", out.display());
    Ok(())
}

/// Creates an empty directory beside `out`, on the same file system.
fn create_scratch_dir(out: &Path) -> Result<PathBuf> {
    let mut name = out.as_os_str().to_owned();
    name.push(".sidelane-lab-tmp");
    let scratch = PathBuf::from(name);
    remove_dir_if_exists(&scratch)?;
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    Ok(scratch)
}

fn remove_dir_if_exists(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}

/// Indexes one of `every_nth` documents, and returns the number of indexed documents.
fn write_index(dir: &Path, corpus: &Corpus, every_nth: u64) -> Result<u64> {
    let mut database = Connection::open(dir.join(DATABASE_NAME))?;
    database.execute_batch(SCHEMA)?;
    database.execute_batch(BULK_WRITING)?;
    let transaction = database.transaction()?;
    let indexed = add_documents(&transaction, corpus, every_nth)?;
    ensure!(indexed > 0, "the corpus has no text");
    transaction.commit()?;
    database.execute_batch(MERGING)?;
    database.close().map_err(|(_database, error)| error)?;
    Ok(indexed)
}

fn add_documents(database: &Connection, corpus: &Corpus, every_nth: u64) -> Result<u64> {
    let mut insertion = database.prepare("INSERT INTO documents(text) VALUES (?)")?;
    let (mut seen, mut indexed) = (0, 0);
    corpus.for_each_document(&mut |document| {
        if seen % every_nth == 0 {
            insertion.execute([document])?;
            indexed += 1;
        }
        seen += 1;
        Ok(())
    })?;
    Ok(indexed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_directory_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ensure_replaceable(dir.path()).is_ok());
        fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
        assert!(ensure_replaceable(dir.path()).unwrap_err().to_string().contains("is not an index"));
    }

    #[test]
    fn a_directory_without_stamp_is_no_index() {
        let dir = tempfile::tempdir().unwrap();
        let error = require_complete(dir.path()).unwrap_err().to_string();
        assert!(error.contains("sidelane-lab index --out"), "{error}");
    }
}
