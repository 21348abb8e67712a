//! Full-text search: the form of a query, and the engine that answers it with one thread.
//!
//! A query is written as its shape and its terms: `and kernel driver`, `or page table walk` or `phrase in order to`. A
//! query file has one query on each line. Terms are lower-case words as in the index.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::Once;

use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use rusqlite::ffi::{SQLITE_CONFIG_MEMSTATUS, SQLITE_OK, sqlite3_config};

use crate::index;

/// Number of documents that a reply lists.
const TOP: usize = 10;

/// Query for all matching documents in the order of their numbers, each with its rank by BM25; the best rank is the
/// lowest. `ORDER BY rank` would sort all matches, and would not count them.
const SEARCH: &str = "SELECT rowid, rank FROM documents WHERE documents MATCH ?";

/// First statements of an engine. With `mmap_size` SQLite reads pages in place and copies none, which saves 5 % of a
/// search. `BEGIN` puts all searches into one transaction that never ends. Otherwise each ranked document ends a
/// transaction, and Debian's SQLite takes a lock of the whole process for that (its option `ENABLE_UNLOCK_NOTIFY`).
const PREPARATION: &str = "PRAGMA mmap_size = 2000000000; BEGIN;";

/// Rule by which the terms of a query combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// All terms must be in the document, anywhere.
    And,
    /// At least one of the terms must be in the document.
    Or,
    /// All terms must be in the document, adjacent and in order.
    Phrase,
}

/// Search query: a shape and its terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// Rule by which the terms of the query combine.
    pub shape: Shape,
    /// Terms of the query; at least one.
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

impl SearchQuery {
    /// Returns the query in FTS5's language, with each term in quotation marks, so that no term is an operator.
    fn to_fts5(&self) -> String {
        let between = match self.shape {
            Shape::And => "\" AND \"",
            Shape::Or => "\" OR \"",
            Shape::Phrase => " ",
        };
        let terms: Vec<String> = self.terms.iter().map(|term| term.replace('"', "\"\"")).collect();
        format!("\"{}\"", terms.join(between))
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

/// Reads a file with one query per line. Fails if the file has no queries.
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

/// Result of a full-text search.
#[derive(Debug, PartialEq, Eq)]
pub struct Hits {
    /// Number of documents that match the query.
    pub count: usize,
    /// Numbers of the best-matching documents, best first.
    pub top: Vec<i64>,
}

/// Bytes of an index in anonymous memory, which all engines of the process share. Unlike the pages of a file, anonymous
/// memory is not dropped and read again when memory is short.
#[derive(Clone, Copy)]
pub struct Index(&'static [u8]);

impl Index {
    /// Reads a whole index, so that no search waits for a disk. The memory is never freed.
    pub fn load(dir: &Path) -> Result<Index> {
        index::require_complete(dir)?;
        let path = dir.join(index::DATABASE_NAME);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Index(bytes.leak()))
    }
}

/// Search engine for one thread. Engines share the index and no lock.
pub struct SearchEngine {
    database: Connection,
}

impl SearchEngine {
    /// Opens a new engine on the index.
    pub fn open(index: Index) -> Result<SearchEngine> {
        disable_memory_statistics()?;
        let mut database = Connection::open_in_memory()?;
        database.deserialize_bytes("main", index.0)?;
        database.execute_batch(PREPARATION)?;
        // Reads the schema, so that the first search does not.
        database.prepare(SEARCH).context("the index is damaged; remove its directory and build it again")?;
        Ok(SearchEngine { database })
    }

    /// Returns the database, for code that reads the index itself.
    pub fn database(&self) -> &Connection {
        &self.database
    }

    /// Runs one query to its end. It visits and ranks all matches, like a service that shows "about N results".
    pub fn search(&self, query: &SearchQuery) -> Result<Hits> {
        self.try_search(query).with_context(|| format!("the search for {query} failed"))
    }

    fn try_search(&self, query: &SearchQuery) -> rusqlite::Result<Hits> {
        let mut statement = self.database.prepare(SEARCH)?;
        let mut rows = statement.query([query.to_fts5()])?;
        let mut count = 0;
        let mut best: Vec<(f64, i64)> = Vec::with_capacity(TOP + 1);
        while let Some(row) = rows.next()? {
            count += 1;
            insert_if_among_best(&mut best, (row.get(1)?, row.get(0)?));
        }
        Ok(Hits { count, top: best.into_iter().map(|(_rank, document)| document).collect() })
    }
}

/// Inserts the match `found` into the list `best` if it ranks high enough. Of matches with equal ranks, the earlier one
/// stays.
fn insert_if_among_best(best: &mut Vec<(f64, i64)>, found: (f64, i64)) {
    if best.len() == TOP && best[TOP - 1].0 <= found.0 {
        return;
    }
    let place = best.partition_point(|(rank, _document)| *rank <= found.0);
    best.insert(place, found);
    best.truncate(TOP);
}

/// Switches off SQLite's count of allocated bytes. Each allocation takes a lock of the whole process for it, so the
/// searches of one thread would wait for the searches of another.
fn disable_memory_statistics() -> Result<()> {
    static FIRST: Once = Once::new();
    let mut outcome = SQLITE_OK;
    // SAFETY: the option takes one int. One thread opens all engines, and this is its first call of SQLite.
    FIRST.call_once(|| outcome = unsafe { sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) });
    ensure!(outcome == SQLITE_OK, "cannot switch off SQLite's memory statistics: error {outcome}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_parsed_back_from_their_text() {
        for line in ["and kernel driver", "or a", "phrase in order to"] {
            assert_eq!(line.parse::<SearchQuery>().unwrap().to_string(), line);
        }
    }

    #[test]
    fn invalid_queries_are_refused() {
        for line in ["", "and", "kernel driver"] {
            assert!(line.parse::<SearchQuery>().is_err(), "{line:?}");
        }
    }

    #[test]
    fn terms_are_quoted_so_none_is_an_operator() {
        let fts5 = |line: &str| line.parse::<SearchQuery>().unwrap().to_fts5();
        assert_eq!(fts5("and kernel not"), r#""kernel" AND "not""#);
        assert_eq!(fts5("or near say\"so"), r#""near" OR "say""so""#);
        assert_eq!(fts5("phrase in order to"), r#""in order to""#);
    }

    #[test]
    fn the_ten_best_matches_are_kept() {
        let mut best = Vec::new();
        for document in 0..40 {
            insert_if_among_best(&mut best, (f64::from(document * 7 % 20), i64::from(document)));
        }
        let ranks: Vec<f64> = best.iter().map(|(rank, _document)| *rank).collect();
        assert_eq!(ranks, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
        assert_eq!((best[0].1, best[1].1), (0, 20));
    }
}
