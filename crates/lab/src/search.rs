//! Searching: what a query is, and the engine that answers it with one thread.
//!
//! A query is written as its shape and its terms: `and kernel driver`, `or page table walk` or
//! `phrase in order to`. A query file has one query on each line. Terms are lower-case words as in
//! the index.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use tantivy::collector::{Count, TopDocs};
use tantivy::directory::RamDirectory;
use tantivy::query::{BooleanQuery, Occur, PhraseQuery, Query, TermQuery};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{Directory, Index, ReloadPolicy, Searcher, Term};

use crate::index;

/// How many documents a reply lists.
const TOP: usize = 10;

/// How the terms of a query combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// All terms, anywhere in the document.
    And,
    /// Any of the terms.
    Or,
    /// All terms, next to each other and in order.
    Phrase,
}

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// How the terms combine.
    pub shape: Shape,
    /// The terms; at least one.
    pub terms: Vec<String>,
}

impl FromStr for SearchQuery {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = line.split_whitespace();
        let shape = match words.next() {
            Some("and") => Shape::And,
            Some("or") => Shape::Or,
            Some("phrase") => Shape::Phrase,
            _ => bail!("{line:?} is not a query; a query starts with `and`, `or` or `phrase`"),
        };
        let terms: Vec<String> = words.map(str::to_owned).collect();
        if terms.is_empty() {
            bail!("the query {line:?} has no terms");
        }
        Ok(SearchQuery { shape, terms })
    }
}

impl fmt::Display for SearchQuery {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = match self.shape {
            Shape::And => "and",
            Shape::Or => "or",
            Shape::Phrase => "phrase",
        };
        write!(out, "{shape} {}", self.terms.join(" "))
    }
}

/// Reads a file of queries.
pub fn read_queries(path: &Path) -> Result<Vec<SearchQuery>> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the queries in {}; `sidelane-lab queries` makes some", path.display()))?;
    let queries = text
        .lines()
        .map(str::parse)
        .collect::<Result<Vec<SearchQuery>>>()
        .with_context(|| format!("{} is not a file of queries", path.display()))?;
    if queries.is_empty() {
        bail!("{} has no queries; `sidelane-lab queries` makes some", path.display());
    }
    Ok(queries)
}

/// What a search found.
#[derive(Debug, PartialEq, Eq)]
pub struct Hits {
    /// Number of documents that match.
    pub count: usize,
    /// The best matches, best first.
    pub top: Vec<u32>,
}

/// An index in memory. The calling thread does the search; the engine starts no threads.
pub struct Engine {
    searcher: Searcher,
    text: Field,
}

impl Engine {
    /// Reads a whole index into memory, so that no search waits for a disk.
    pub fn open(dir: &Path) -> Result<Engine> {
        index::require_complete(dir)?;
        let in_memory = copy_to_memory(dir)?;
        Engine::of_directory(in_memory).with_context(|| format!("cannot open the index in {}", dir.display()))
    }

    fn of_directory(directory: RamDirectory) -> Result<Engine> {
        let index = Index::open(directory)?;
        let text = index.schema().get_field(index::TEXT_FIELD)?;
        // The default policy starts a thread that watches the directory.
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
        let searcher = reader.searcher();
        Ok(Engine { searcher, text })
    }

    /// The underlying searcher, for code that reads the index itself.
    pub fn searcher(&self) -> &Searcher {
        &self.searcher
    }

    /// The field that holds the text.
    pub fn text_field(&self) -> Field {
        self.text
    }

    /// Runs one query to its end. It counts all matches, so it visits all of them, as a service
    /// does that shows "about N results".
    pub fn search(&self, query: &SearchQuery) -> Result<Hits> {
        let collectors = (TopDocs::with_limit(TOP), Count);
        let (top, count) = self
            .searcher
            .search(&*self.compile(query), &collectors)
            .with_context(|| format!("the search for {query} failed"))?;
        let top = top.into_iter().map(|(_score, address)| address.doc_id).collect();
        Ok(Hits { count, top })
    }

    fn compile(&self, query: &SearchQuery) -> Box<dyn Query> {
        let terms = query.terms.iter().map(|word| Term::from_field_text(self.text, word));
        match query.shape {
            Shape::Phrase if query.terms.len() > 1 => Box::new(PhraseQuery::new(terms.collect())),
            Shape::Or => self.combine(terms, Occur::Should),
            Shape::And | Shape::Phrase => self.combine(terms, Occur::Must),
        }
    }

    fn combine(&self, terms: impl Iterator<Item = Term>, occur: Occur) -> Box<dyn Query> {
        let clauses = terms
            .map(|term| {
                let clause: Box<dyn Query> = Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs));
                (occur, clause)
            })
            .collect();
        Box::new(BooleanQuery::new(clauses))
    }
}

/// Copies the files of an index into anonymous memory. Unlike mapped files, anonymous memory is not
/// dropped and read again when memory is short.
fn copy_to_memory(dir: &Path) -> Result<RamDirectory> {
    let memory = RamDirectory::create();
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", dir.display()))?.path();
        // The writer leaves its lock files behind; in memory they would look like held locks.
        if path.extension().is_none_or(|ending| ending != "lock") {
            copy_file(&path, &memory)?;
        }
    }
    Ok(memory)
}

fn copy_file(path: &Path, memory: &RamDirectory) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.file_name().map(Path::new).unwrap_or(path);
    memory.atomic_write(name, &bytes).with_context(|| format!("cannot keep {} in memory", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_survive_being_written_and_read() {
        for line in ["and kernel driver", "or a", "phrase in order to"] {
            assert_eq!(line.parse::<SearchQuery>().unwrap().to_string(), line);
        }
    }

    #[test]
    fn what_is_no_query_is_refused() {
        for line in ["", "and", "kernel driver"] {
            assert!(line.parse::<SearchQuery>().is_err(), "{line:?}");
        }
    }
}
