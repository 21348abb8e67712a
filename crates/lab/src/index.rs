//! Building the index, once for a corpus.
//!
//! An index directory is complete or absent: it is built beside its place and renamed into it. A
//! stamp, written last, says from which corpus it was built.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tantivy::indexer::NoMergePolicy;
use tantivy::schema::{Field, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions};
use tantivy::{Index, IndexWriter, TantivyDocument};

use crate::corpus::Corpus;

/// The only field of a document.
pub const TEXT_FIELD: &str = "text";

const STAMP_NAME: &str = "sidelane-lab.json";

/// Version of the index format; raised when the same corpus would give another index.
const FORMAT: u32 = 1;

/// `--quick` keeps one document in this many.
const QUICK_EVERY: u64 = 8;

/// Memory for the postings before a segment is written out: more than the whole corpus needs, so
/// that the index is one segment. With one segment, document numbers and thus the query mix are the
/// same in every build.
const WRITER_BYTES: usize = 2_000_000_000;

/// Options of `index`.
#[derive(Debug, clap::Args)]
pub struct Args {
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

/// What an index was built from.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    format: u32,
    corpus: String,
    every: u64,
}

/// Builds the index unless it is there already.
pub fn run(args: &Args) -> Result<()> {
    let corpus = match &args.corpus_dir {
        Some(dir) => Corpus::of_folder(dir)?,
        None => Corpus::of_debian()?,
    };
    let stamp = Stamp {
        format: FORMAT,
        corpus: format!("{:016x}", corpus.fingerprint()?),
        every: if args.quick { QUICK_EVERY } else { 1 },
    };
    // Without a slash at the end, so that a suffix can be added to the name.
    let out: PathBuf = args.out.components().collect();
    if read_stamp(&out).is_some_and(|found| found == stamp) {
        eprintln!("{} holds the index of this corpus already", out.display());
        return Ok(());
    }
    build(&out, &corpus, &stamp)
}

/// Refuses a directory without a complete index.
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
    refuse_foreign(out)?;
    let scratch = scratch_beside(out)?;
    let documents = write_index(&scratch, corpus, stamp.every)
        .with_context(|| format!("cannot build the index in {}", scratch.display()))?;
    fs::write(scratch.join(STAMP_NAME), serde_json::to_string(stamp)?)
        .with_context(|| format!("cannot write the stamp in {}", scratch.display()))?;
    remove_if_there(out)?;
    fs::rename(&scratch, out).with_context(|| format!("cannot rename {} to {}", scratch.display(), out.display()))?;
    eprintln!("indexed {documents} documents in {}", out.display());
    Ok(())
}

/// Only an old index may be replaced, never a directory with other contents.
fn refuse_foreign(out: &Path) -> Result<()> {
    let ours = out.join(STAMP_NAME).exists();
    let empty = fs::read_dir(out).map_or(!out.exists(), |mut entries| entries.next().is_none());
    ensure!(ours || empty, "{} exists and is not an index; choose another directory, or remove it", out.display());
    Ok(())
}

/// An empty directory beside `out`, on the same file system.
fn scratch_beside(out: &Path) -> Result<PathBuf> {
    let mut name = out.as_os_str().to_owned();
    name.push(".sidelane-lab-tmp");
    let scratch = PathBuf::from(name);
    remove_if_there(&scratch)?;
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    Ok(scratch)
}

fn remove_if_there(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}

/// Indexes one document in `every`; returns how many documents were indexed.
fn write_index(dir: &Path, corpus: &Corpus, every: u64) -> Result<u64> {
    let (schema, text) = schema();
    let index = Index::create_in_dir(dir, schema)?;
    let mut writer: IndexWriter = index.writer_with_num_threads(1, WRITER_BYTES)?;
    writer.set_merge_policy(Box::new(NoMergePolicy));
    let indexed = add_documents(&mut writer, text, corpus, every)?;
    ensure!(indexed > 0, "the corpus has no text");
    writer.commit()?;
    merge_into_one(&index, &mut writer)?;
    writer.wait_merging_threads()?;
    Ok(indexed)
}

fn add_documents(writer: &mut IndexWriter, text: Field, corpus: &Corpus, every: u64) -> Result<u64> {
    let (mut seen, mut indexed) = (0, 0);
    corpus.for_each_document(&mut |document| {
        if seen % every == 0 {
            let mut indexable = TantivyDocument::new();
            indexable.add_text(text, document);
            writer.add_document(indexable)?;
            indexed += 1;
        }
        seen += 1;
        Ok(())
    })?;
    Ok(indexed)
}

fn merge_into_one(index: &Index, writer: &mut IndexWriter) -> Result<()> {
    let segments = index.searchable_segment_ids()?;
    if segments.len() > 1 {
        writer.merge(&segments).wait()?;
        writer.garbage_collect_files().wait()?;
    }
    Ok(())
}

/// Text with positions, for phrase queries; stored, because phrases are drawn from it.
fn schema() -> (Schema, Field) {
    let indexing = TextFieldIndexing::default()
        .set_tokenizer("default")
        .set_index_option(IndexRecordOption::WithFreqsAndPositions);
    let mut builder = Schema::builder();
    let options = TextOptions::default().set_indexing_options(indexing) | STORED;
    let text = builder.add_text_field(TEXT_FIELD, options);
    (builder.build(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert!(refuse_foreign(dir.path()).is_ok());
        fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
        assert!(refuse_foreign(dir.path()).unwrap_err().to_string().contains("is not an index"));
    }

    #[test]
    fn a_directory_without_stamp_is_no_index() {
        let dir = tempfile::tempdir().unwrap();
        let error = require_complete(dir.path()).unwrap_err().to_string();
        assert!(error.contains("sidelane-lab index --out"), "{error}");
    }
}
