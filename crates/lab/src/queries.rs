//! Draws a query mix from the terms of an index.
//!
//! The demand of a search depends on how common its terms are (Elfen, section 2: most requests are
//! short and a few are very long). So the terms of AND and OR queries are drawn by Zipf's law, the
//! most common first. Phrases are taken from random places of the text, where terms follow the same
//! law. The cost of a query is estimated from document frequencies, never timed: the same seed and
//! index give the same queries on any machine.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use tantivy::schema::Value;
use tantivy::{DocAddress, TantivyDocument, Term};

use crate::rng::Rng;
use crate::search::{Engine, SearchQuery, Shape};

/// Terms in fewer documents than this are mostly misspellings and identifiers.
const DOCUMENTS_MIN: u32 = 3;

/// Of ten queries, this many are AND queries and OR queries; the rest are phrases.
const AND_IN_TEN: usize = 4;
const OR_IN_TEN: usize = 4;

/// The most terms of an AND query; all numbers from 1 on are equally likely.
const AND_TERMS_MAX: usize = 5;

/// The most terms of an OR query. Search engines add synonyms and spellings to a query, few to most
/// queries and many to some, so the number of terms follows Zipf's law.
const OR_TERMS_MAX: usize = 150;

/// Fewest and most terms of a phrase.
const PHRASE_TERMS_MIN: usize = 2;
const PHRASE_TERMS_MAX: usize = 3;

/// A query that would visit more postings than this is drawn again.
const POSTINGS_MAX: u64 = 3_000_000;

/// After this many tries the index is called too small for a mix.
const TRIES_MAX: usize = 1000;

/// Options of `queries`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Index to draw the terms from
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
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

/// Draws the mix and writes it.
pub fn run(args: &Args) -> Result<()> {
    let engine = Engine::open(&args.index)?;
    let mut mix = Mix::new(&engine, args.seed)?;
    let mut text = String::new();
    for _ in 0..args.count {
        writeln!(text, "{}", mix.draw()?)?;
    }
    fs::write(&args.out, text).with_context(|| format!("cannot write the queries to {}", args.out.display()))
}

/// Draws queries.
struct Mix<'a> {
    engine: &'a Engine,
    vocabulary: Vec<String>,
    rng: Rng,
}

impl<'a> Mix<'a> {
    fn new(engine: &'a Engine, seed: u64) -> Result<Self> {
        let vocabulary = vocabulary(engine)?;
        ensure!(
            vocabulary.len() >= OR_TERMS_MAX,
            "the index has only {} terms in {DOCUMENTS_MIN} documents or more, \
             too few for a mix; index more text",
            vocabulary.len()
        );
        Ok(Mix { engine, vocabulary, rng: Rng::new(seed, 0) })
    }

    fn draw(&mut self) -> Result<SearchQuery> {
        for _ in 0..TRIES_MAX {
            match self.try_draw()? {
                Some(query) if self.postings(&query)? <= POSTINGS_MAX => return Ok(query),
                _ => {}
            }
        }
        bail!("no acceptable query came up in {TRIES_MAX} tries; index more text")
    }

    fn try_draw(&mut self) -> Result<Option<SearchQuery>> {
        let kind = self.rng.below(10);
        if kind < AND_IN_TEN {
            let count = 1 + self.rng.below(AND_TERMS_MAX);
            Ok(Some(self.of_terms(Shape::And, count)))
        } else if kind < AND_IN_TEN + OR_IN_TEN {
            let count = 1 + self.rng.zipf(OR_TERMS_MAX);
            Ok(Some(self.of_terms(Shape::Or, count)))
        } else {
            self.phrase()
        }
    }

    fn of_terms(&mut self, shape: Shape, count: usize) -> SearchQuery {
        let mut terms: Vec<String> = Vec::with_capacity(count);
        while terms.len() < count {
            let term = &self.vocabulary[self.rng.zipf(self.vocabulary.len())];
            if !terms.contains(term) {
                terms.push(term.clone());
            }
        }
        SearchQuery { shape, terms }
    }

    /// Consecutive words of a random document; `None` if it has too few.
    fn phrase(&mut self) -> Result<Option<SearchQuery>> {
        let words = self.words_of_random_document()?;
        let wanted = PHRASE_TERMS_MIN + self.rng.below(PHRASE_TERMS_MAX - PHRASE_TERMS_MIN + 1);
        if words.len() < wanted {
            return Ok(None);
        }
        let start = self.rng.below(words.len() - wanted + 1);
        let terms = words[start..start + wanted].to_vec();
        let plain = terms.iter().all(|term| is_plain(term));
        Ok(plain.then_some(SearchQuery { shape: Shape::Phrase, terms }))
    }

    fn words_of_random_document(&mut self) -> Result<Vec<String>> {
        let searcher = self.engine.searcher();
        let documents = searcher.segment_reader(0).max_doc() as usize;
        let address = DocAddress::new(0, self.rng.below(documents) as u32);
        let document: TantivyDocument = searcher.doc(address).context("cannot read a stored document")?;
        let text = document.get_first(self.engine.text_field()).and_then(|value| value.as_str());
        Ok(words(text.unwrap_or_default()))
    }

    /// How many postings a query visits: all postings of its terms for an OR query. For the others,
    /// the rarest term leads and the postings of the other terms are mostly skipped.
    fn postings(&self, query: &SearchQuery) -> Result<u64> {
        let frequencies = query
            .terms
            .iter()
            .map(|word| self.engine.searcher().doc_freq(&Term::from_field_text(self.engine.text_field(), word)))
            .collect::<Result<Vec<u64>, _>>()
            .context("cannot look up a term")?;
        Ok(match query.shape {
            Shape::Or => frequencies.iter().sum(),
            Shape::And | Shape::Phrase => frequencies.iter().min().copied().unwrap_or(0) * query.terms.len() as u64,
        })
    }
}

/// The terms of the index that queries use, the most common first.
fn vocabulary(engine: &Engine) -> Result<Vec<String>> {
    let mut found: Vec<(u32, String)> = Vec::new();
    for segment in engine.searcher().segment_readers() {
        let inverted = segment.inverted_index(engine.text_field())?;
        let mut terms = inverted.terms().stream()?;
        while terms.advance() {
            let frequency = terms.value().doc_freq;
            match std::str::from_utf8(terms.key()) {
                Ok(word) if frequency >= DOCUMENTS_MIN && is_plain(word) => {
                    found.push((frequency, word.to_owned()));
                }
                _ => {}
            }
        }
    }
    found.sort_unstable_by(|(a_count, a), (b_count, b)| b_count.cmp(a_count).then_with(|| a.cmp(b)));
    Ok(found.into_iter().map(|(_count, word)| word).collect())
}

/// The words of a text in the form in which the index has them.
fn words(text: &str) -> Vec<String> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Words that a user might type: letters only, and short enough for the index.
fn is_plain(word: &str) -> bool {
    word.len() <= 20 && word.bytes().all(|letter| letter.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_index() {
        assert_eq!(words("The kernel's GFP_flags, v6.1"), ["the", "kernel", "s", "gfp", "flags", "v6", "1"]);
    }

    #[test]
    fn plain_words() {
        assert!(is_plain("kernel"));
        assert!(!is_plain("v6"));
        assert!(!is_plain(&"x".repeat(21)));
    }
}
