//! Generator of query mixes from the terms of an index.
//!
//! The time of a search depends on how common its terms are (Elfen, section 2: most requests are short and a few are
//! very long). The terms of AND and OR queries are therefore drawn by Zipf's law, the most common first. Phrases are
//! taken from random places of the text, where terms follow the same law. The cost of a query is estimated from
//! document frequencies, never timed: the same seed and index give the same queries on any machine.
//!
//! The engine, FTS5, takes about a microsecond for each document that it ranks, and does not skip any. The mix
//! therefore has no stop words, and a limit of postings for each query. With both, searches took 1.3 ms in the mean,
//! 0.2 ms in the median and 9 ms in the 99th percentile on an AMD EPYC.
//!
//! A second mix has the request times of Hurry-up's evaluation (Nishtala et al., section IV): the time of a search
//! grows with the number of its keywords (Fig. 1). All keywords are therefore words of nearly the same frequency, and
//! take equally long.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use rusqlite::OptionalExtension;

use crate::rng::Rng;
use crate::search::{Index, SearchEngine, SearchQuery, Shape};

/// Fewest documents that must contain a term, so that queries use the term. Rarer terms are mostly misspellings and
/// identifiers.
const DOCUMENTS_MIN: u32 = 3;

/// Number of the most common words that no query contains.
const STOP_WORDS: usize = 30;

/// Number of AND queries, and of OR queries, among ten; the rest are phrases.
const AND_IN_TEN: usize = 4;
const OR_IN_TEN: usize = 4;

/// Largest number of terms in an AND query; all numbers from 1 on are equally likely.
const AND_TERMS_MAX: usize = 5;

/// Largest number of terms in an OR query. Search engines add synonyms and spellings, few to most queries and many to
/// some, so the number of terms follows Zipf's law.
const OR_TERMS_MAX: usize = 10;

/// Smallest and largest number of terms in a phrase.
const PHRASE_TERMS_MIN: usize = 2;
const PHRASE_TERMS_MAX: usize = 3;

/// Largest number of postings that a query visits; a query with more is drawn again.
const POSTINGS_MAX: i64 = 10_000;

/// Number of keywords in a query: lognormal with this mean and sigma, up to this maximum. In Hurry-up's paper a keyword
/// takes 29 ms, so its slowest request has 13 keywords. A mean of 2.4 keeps the paper's cores 86 % busy at the highest
/// load.
const KEYWORDS_MEAN: f64 = 2.4;
const KEYWORDS_SIGMA: f64 = 0.75;
const KEYWORDS_MAX: f64 = 13.0;

/// Ranks of the keywords, each in about 2,000 documents: a search for one keyword takes two milliseconds.
const KEYWORD_RANKS: std::ops::Range<usize> = 400..480;

/// Number of failed draws after which an index counts as too small for a mix.
const TRIES_MAX: usize = 1000;

/// Options of `sidelane-lab queries`.
#[derive(Debug, clap::Args)]
pub struct QueriesArgs {
    /// Index to draw the terms from
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// What decides how long a search takes
    #[arg(long, value_enum, default_value = "terms")]
    mix: MixName,
    /// Seed of the mix
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of queries
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    count: usize,
    /// File to write, one query on each line
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Kind of a query mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MixName {
    /// How common its terms are: most searches are short and a few are very long
    Terms,
    /// How many keywords it has
    Keywords,
}

/// Draws the queries of the mix and writes them to a file.
pub fn run(args: &QueriesArgs) -> Result<()> {
    let engine = SearchEngine::open(Index::load(&args.index)?)?;
    let mut mix = Mix::new(&engine, args.seed)?;
    let mut text = String::new();
    for _ in 0..args.count {
        let query = match args.mix {
            MixName::Terms => mix.draw_query()?,
            MixName::Keywords => mix.draw_keyword_query()?,
        };
        writeln!(text, "{query}")?;
    }
    fs::write(&args.out, text).with_context(|| format!("cannot write the queries to {}", args.out.display()))
}

/// Random generator of queries from the terms of one index.
struct Mix<'a> {
    engine: &'a SearchEngine,
    /// Number of documents in the index.
    documents: usize,
    vocabulary: Vec<String>,
    rng: Rng,
}

impl<'a> Mix<'a> {
    fn new(engine: &'a SearchEngine, seed: u64) -> Result<Self> {
        let vocabulary = vocabulary(engine)?;
        ensure!(
            vocabulary.len() >= STOP_WORDS + OR_TERMS_MAX,
            "the index has only {} terms in {DOCUMENTS_MIN} documents or more, \
             too few for a mix; index more text",
            vocabulary.len()
        );
        let documents: i64 = engine.database().query_row("SELECT max(rowid) FROM documents", [], |row| row.get(0))?;
        Ok(Mix { engine, documents: documents as usize, vocabulary, rng: Rng::new(seed, 0) })
    }

    fn draw_query(&mut self) -> Result<SearchQuery> {
        let shape = match self.rng.below(10) {
            kind if kind < AND_IN_TEN => Shape::And,
            kind if kind < AND_IN_TEN + OR_IN_TEN => Shape::Or,
            _ => Shape::Phrase,
        };
        for _ in 0..TRIES_MAX {
            match self.try_draw_query(shape)? {
                Some(query) if self.postings(&query)? <= POSTINGS_MAX => return Ok(query),
                _ => {}
            }
        }
        bail!("no acceptable query came up in {TRIES_MAX} tries; index more text")
    }

    fn try_draw_query(&mut self, shape: Shape) -> Result<Option<SearchQuery>> {
        let count = match shape {
            Shape::And => 1 + self.rng.below(AND_TERMS_MAX),
            Shape::Or => 1 + self.rng.zipf(OR_TERMS_MAX),
            Shape::Phrase => return self.draw_phrase_query(),
        };
        Ok(Some(self.draw_term_query(shape, count)))
    }

    /// Returns a search for a random number of random keywords.
    fn draw_keyword_query(&mut self) -> Result<SearchQuery> {
        ensure!(
            self.vocabulary.len() >= KEYWORD_RANKS.end,
            "the index has only {} terms in {DOCUMENTS_MIN} documents or more, and keywords need {}; index more text",
            self.vocabulary.len(),
            KEYWORD_RANKS.end
        );
        let mut words: Vec<usize> = KEYWORD_RANKS.collect();
        let count = draw_keyword_count(&mut self.rng);
        for place in 0..count {
            let other = place + self.rng.below(words.len() - place);
            words.swap(place, other);
        }
        let terms = words[..count].iter().map(|rank| self.vocabulary[*rank].clone()).collect();
        Ok(SearchQuery { shape: Shape::Or, terms })
    }

    fn draw_term_query(&mut self, shape: Shape, count: usize) -> SearchQuery {
        let rare = &self.vocabulary[STOP_WORDS..];
        let mut terms: Vec<String> = Vec::with_capacity(count);
        while terms.len() < count {
            let term = &rare[self.rng.zipf(rare.len())];
            if !terms.contains(term) {
                terms.push(term.clone());
            }
        }
        SearchQuery { shape, terms }
    }

    /// Returns a phrase of consecutive words from a random document; `None` if the document has too few words.
    fn draw_phrase_query(&mut self) -> Result<Option<SearchQuery>> {
        let words = self.words_of_random_document()?;
        let wanted = PHRASE_TERMS_MIN + self.rng.below(PHRASE_TERMS_MAX - PHRASE_TERMS_MIN + 1);
        if words.len() < wanted {
            return Ok(None);
        }
        let start = self.rng.below(words.len() - wanted + 1);
        let terms = words[start..start + wanted].to_vec();
        let plain = terms.iter().all(|term| is_plain_word(term));
        Ok(plain.then_some(SearchQuery { shape: Shape::Phrase, terms }))
    }

    fn words_of_random_document(&mut self) -> Result<Vec<String>> {
        let number = 1 + self.rng.below(self.documents);
        let text = self
            .engine
            .database()
            .query_row("SELECT text FROM documents WHERE rowid = ?", [number as i64], |row| row.get::<_, String>(0))
            .with_context(|| format!("cannot read document {number} of the index"))?;
        Ok(split_into_words(&text))
    }

    /// Returns the number of postings that a query visits: for all shapes the sum over its terms, since FTS5 counts
    /// each term's documents for the rank.
    fn postings(&self, query: &SearchQuery) -> Result<i64> {
        query.terms.iter().map(|term| self.count_documents_with_term(term)).sum()
    }

    fn count_documents_with_term(&self, term: &str) -> Result<i64> {
        let mut statement = self.engine.database().prepare("SELECT doc FROM vocabulary WHERE term = ?")?;
        let found = statement.query_row([term], |row| row.get(0)).optional();
        Ok(found.with_context(|| format!("cannot look up the term {term:?}"))?.unwrap_or(0))
    }
}

/// Draws the number of keywords of a query.
fn draw_keyword_count(rng: &mut Rng) -> usize {
    let normal = (-2.0 * (1.0 - rng.next_f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.next_f64()).cos();
    let location = KEYWORDS_MEAN.ln() - KEYWORDS_SIGMA * KEYWORDS_SIGMA / 2.0;
    (location + KEYWORDS_SIGMA * normal).exp().round().clamp(1.0, KEYWORDS_MAX) as usize
}

/// Returns the terms of the index that queries use, the most common first.
fn vocabulary(engine: &SearchEngine) -> Result<Vec<String>> {
    let mut statement =
        engine.database().prepare("SELECT term FROM vocabulary WHERE doc >= ? ORDER BY doc DESC, term")?;
    let terms = statement.query_map([DOCUMENTS_MIN], |row| row.get::<_, String>(0))?;
    let mut found = terms.collect::<Result<Vec<String>, _>>().context("cannot list the terms of the index")?;
    found.retain(|term| is_plain_word(term));
    Ok(found)
}

/// Returns the words of a text in the form in which the index stores them.
fn split_into_words(text: &str) -> Vec<String> {
    text.split(|letter: char| letter.is_ascii() && !letter.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect()
}

/// Returns whether a user might type the word: it has only letters, and is short enough for the index.
fn is_plain_word(word: &str) -> bool {
    word.len() <= 20 && word.bytes().all(|letter| letter.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_into_words_as_in_the_index() {
        assert_eq!(split_into_words("The kernel's GFP_flags, v6.1"), ["the", "kernel", "s", "gfp", "flags", "v6", "1"]);
        assert_eq!(split_into_words("Éclair naïve"), ["Éclair", "naïve"]);
    }

    #[test]
    fn queries_have_as_many_keywords_as_in_the_paper() {
        let mut rng = Rng::new(1, 0);
        let mut counts: Vec<usize> = (0..10_000).map(|_| draw_keyword_count(&mut rng)).collect();
        counts.sort_unstable();
        let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
        assert!((2.3..2.6).contains(&mean), "{mean}");
        assert_eq!((counts[0], counts[5_000], counts[9_000], counts[9_999]), (1, 2, 5, 13));
    }

    #[test]
    fn keywords_are_plain_words() {
        assert!(is_plain_word("kernel"));
        assert!(!is_plain_word("v6"));
        assert!(!is_plain_word(&"x".repeat(21)));
    }
}
