//! Fuzz tests: mutated inputs for the parsers of foreign bytes.
//!
//! A test calls [`fuzz`] with the name of a parser. The parser gets each file of its corpus (`tests/fuzz/PARSER` at
//! the root of the sources) as it is, and then mutations of them. An input fails if it makes the parser panic, take
//! more memory than [`MEMORY_MAX_BYTES`], or run without end. Such an input is printed and put into the corpus, so
//! that it comes first in later runs.
//!
//! An ordinary test run tries some thousand inputs; `make fuzz` tries ten million.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod memory;
mod mutation;
mod watchdog;

use mutation::Mutator;
use watchdog::Watchdog;

/// Name of the environment variable with the number of inputs for each parser.
pub const INPUTS: &str = "SIDELANE_FUZZ_INPUTS";
/// Name of the environment variable with the seconds after which a parser gets no more inputs.
pub const SECONDS: &str = "SIDELANE_FUZZ_SECONDS";
/// Name of the environment variable with the seed of random choices.
pub const SEED: &str = "SIDELANE_FUZZ_SEED";

/// Most bytes that a parser may allocate for one input.
pub const MEMORY_MAX_BYTES: usize = 64 << 20;

/// Environment variable with the name of a parser: only that parser is fuzzed.
pub const PARSER: &str = "SIDELANE_FUZZ_PARSER";

/// Number of inputs in an ordinary run, in which many parsers are compiled without optimisation.
const INPUTS_QUICK: u64 = 10_000;
/// Time limit of an ordinary test run, so that the run is short on a slow machine, too.
const QUICK: Duration = Duration::from_secs(4);
/// Number of inputs between two readings of the clock.
const LOOK_EVERY: u64 = 64;

/// Calls `parse` with the corpus of `parser`, and with mutations of it.
///
/// # Panics
/// If `parse` panics, or takes too much memory; if there is no corpus.
pub fn fuzz(parser: &str, mut parse: impl FnMut(&[u8])) {
    if env::var(PARSER).is_ok_and(|only| !only.is_empty() && only != parser) {
        return;
    }
    let corpus = Corpus::read_for_parser(parser);
    let mut tried = FuzzRun { corpus: &corpus, watchdog: Watchdog::start(corpus.dir.clone()) };
    corpus.inputs.iter().for_each(|input| tried.try_input(input, &mut parse));
    let (most, until) = input_and_time_limits();
    let mut mutator = Mutator::new(number_from_env(SEED).unwrap_or(0x5eed_5eed_5eed_5eed), &corpus.inputs);
    let began = Instant::now();
    let mut count = 0;
    while count < most && (count % LOOK_EVERY != 0 || until.is_none_or(|until| began.elapsed() < until)) {
        tried.try_input(mutator.next_input(), &mut parse);
        count += 1;
    }
    println!("fuzz {parser}: {count} inputs in {:.0} s", began.elapsed().as_secs_f64());
}

/// Returns the most inputs, and the time limit for them.
fn input_and_time_limits() -> (u64, Option<Duration>) {
    let inputs = number_from_env(INPUTS);
    let seconds = number_from_env(SECONDS).map(Duration::from_secs);
    match (inputs, seconds) {
        (None, None) => (INPUTS_QUICK, Some(QUICK)),
        (inputs, seconds) => (inputs.unwrap_or(u64::MAX), seconds),
    }
}

fn number_from_env(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Inputs of one parser that are stored in its folder of `tests/fuzz`.
struct Corpus {
    dir: PathBuf,
    inputs: Vec<Vec<u8>>,
}

impl Corpus {
    fn read_for_parser(parser: &str) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz").join(parser);
        let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        let inputs: Vec<Vec<u8>> = files.iter().filter_map(|file| fs::read(file).ok()).collect();
        assert!(!inputs.is_empty(), "{} has no inputs", dir.display());
        Self { dir, inputs }
    }
}

/// The parser under test, with its corpus and its watchdog.
struct FuzzRun<'a> {
    corpus: &'a Corpus,
    watchdog: Watchdog,
}

impl FuzzRun<'_> {
    fn try_input(&mut self, input: &[u8], parse: &mut impl FnMut(&[u8])) {
        self.watchdog.begin_input(input);
        let finding = SaveOnPanic { dir: &self.corpus.dir, input };
        let before = memory::start_peak_measurement();
        parse(input);
        let took = memory::peak_bytes().saturating_sub(before);
        assert!(took <= MEMORY_MAX_BYTES, "{took} bytes of memory for {} bytes", input.len());
        std::mem::forget(finding);
    }
}

/// Guard of an input: puts the input into the corpus and prints it if the parser panics.
struct SaveOnPanic<'a> {
    dir: &'a Path,
    input: &'a [u8],
}

impl Drop for SaveOnPanic<'_> {
    fn drop(&mut self) {
        save_input(self.dir, self.input);
    }
}

/// Puts an input into the corpus, and prints it.
fn save_input(corpus_dir: &Path, input: &[u8]) {
    let hash = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let file = corpus_dir.join(format!("finding-{hash:016x}"));
    let kept = fs::write(&file, input);
    eprintln!("the input, kept as {} ({kept:?}): {}", file.display(), input.escape_ascii());
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn corpus_comes_first_and_unchanged() {
        let seen = Cell::new(0);
        fuzz("itself", |input| {
            assert!(seen.replace(seen.get() + 1) > 0 || input == b"kept 12345\n", "{}", input.escape_ascii());
        });
        assert!(seen.get() > 1, "mutations follow");
    }

    #[test]
    fn peak_memory_of_an_input_counts_freed_memory() {
        let before = memory::start_peak_measurement();
        drop(vec![0_u8; 1 << 20]);
        let took = memory::peak_bytes() - before;
        assert!((1 << 20..2 << 20).contains(&took), "{took}");
    }
}
