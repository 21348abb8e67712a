//! Reading of a log. From a damaged file, all samples before the damage are returned.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use super::super::sample::{SIGNALS_MAX, Sample};
use super::file::{CHUNK_HEAD_BYTES, CHUNK_MAGIC, FIXED_WORDS, FOOT_MAGIC, LogFoot, LogHead, MAGIC};
use sidelane_diagnostics::log_file::{LogError, open, read_chunk_body, read_chunk_head, read_head};
use sidelane_diagnostics::log_note::LogNote;

/// Reader of a log.
pub struct LogReader<R> {
    input: R,
    head: LogHead,
    foot: LogFoot,
    left_out: u64,
    problem: Option<LogNote>,
}

impl LogReader<BufReader<File>> {
    /// Opens the log at `path`, and reads its head.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        open(path, "observe", Self::new)
    }
}

impl<R: Read> LogReader<R> {
    /// Reads the head of a log from `input`.
    ///
    /// # Errors
    /// A text on what is invalid in the head.
    pub fn new(mut input: R) -> Result<Self, String> {
        let head: LogHead = read_head(&mut input, &MAGIC)?;
        if head.signals.len() > SIGNALS_MAX || !(head.cycles_per_ns > 0.0 && head.cycles_per_ns.is_finite()) {
            return Err("its head does not describe samples".to_owned());
        }
        Ok(Self { input, head, foot: LogFoot::default(), left_out: 0, problem: None })
    }

    /// Returns the head of the log.
    pub fn head(&self) -> &LogHead {
        &self.head
    }

    /// Returns the foot of the log once all samples are read; empty if the log has none.
    pub fn foot(&self) -> &LogFoot {
        &self.foot
    }

    /// Returns the number of samples that the writer has left out, up to the last chunk read.
    pub fn left_out_samples(&self) -> u64 {
        self.left_out
    }

    /// Returns why reading stopped before the end of the log; `None` if it did not.
    pub fn problem(&self) -> Option<&LogNote> {
        self.problem.as_ref()
    }

    /// Calls `each` with every sample. The second argument of `each` is whether samples are missing before this sample.
    pub fn for_each_sample(&mut self, mut each: impl FnMut(&Sample, bool)) {
        while let Some(chunk) = self.next_chunk() {
            self.left_out = self.left_out.saturating_add(chunk.left_out);
            let words = FIXED_WORDS + self.head.signals.len();
            let mut is_gap = chunk.left_out > 0 || chunk.paused;
            for bytes in chunk.bytes.chunks_exact(words * 8) {
                each(&parse_sample(bytes), is_gap);
                is_gap = false;
            }
        }
    }

    fn next_chunk(&mut self) -> Option<ReadChunk> {
        let mut head = [0; CHUNK_HEAD_BYTES];
        match read_chunk_head(&mut self.input, &mut head) {
            Ok(true) => (),
            Ok(false) => return None,
            Err(problem) => return self.stop_with_problem(problem),
        }
        let number = |from: usize, to: usize| {
            head[from..to].iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let (magic, samples, left_out, paused) = (number(0, 4), number(4, 8), number(8, 16), number(16, 24));
        let length = number(24, 32);
        if magic == u64::from(FOOT_MAGIC) {
            return self.read_foot(length);
        }
        let sample_bytes = 8 * (FIXED_WORDS + self.head.signals.len()) as u64;
        if magic != u64::from(CHUNK_MAGIC) || samples * sample_bytes != length {
            return self.stop_with_problem(LogNote::LogDamaged);
        }
        let (bytes, is_whole) = read_chunk_body(&mut self.input, length);
        if !is_whole {
            self.problem = Some(LogNote::LogCutOff);
        }
        Some(ReadChunk { left_out, paused: paused != 0, bytes })
    }

    /// Reads the foot, which is the end of the log.
    fn read_foot<T>(&mut self, length: u64) -> Option<T> {
        let (json, _) = read_chunk_body(&mut self.input, length);
        match serde_json::from_slice(&json) {
            Ok(foot) => self.foot = foot,
            Err(_) => self.problem = Some(LogNote::LogCutOff),
        }
        None
    }

    fn stop_with_problem<T>(&mut self, problem: LogNote) -> Option<T> {
        self.problem.get_or_insert(problem);
        None
    }
}

struct ReadChunk {
    left_out: u64,
    paused: bool,
    bytes: Vec<u8>,
}

fn parse_sample(bytes: &[u8]) -> Sample {
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    let mut next = || words.next().unwrap_or(0);
    let mut sample = Sample { start: next(), end: next(), thread: next(), ..Sample::default() };
    sample.values.iter_mut().zip(words).for_each(|(value, word)| *value = word);
    sample
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::sample::Layout;
    use super::super::file::LoggedSignal;
    use super::super::write;
    use super::*;
    use sidelane_channels::signal::Kind;

    fn head() -> LogHead {
        let signal = |name: &str, kind| LoggedSignal { name: name.into(), kind };
        LogHead {
            version: "test".into(),
            title: "a test".into(),
            signals: vec![signal("count", Kind::Counter), signal("phase", Kind::Tag)],
            cycles_per_ns: 2.5,
            zero_cycles: 1,
            zero_ns: 2,
            only_target: true,
            tolerance: 0.01,
        }
    }

    fn foot() -> LogFoot {
        LogFoot { names: vec![(0, u64::MAX, "the last phase".into())], slowdown: None }
    }

    /// Returns the length of the foot in a file.
    fn foot_length_bytes() -> usize {
        CHUNK_HEAD_BYTES + serde_json::to_vec(&foot()).unwrap().len()
    }

    fn samples(count: u64) -> Vec<Sample> {
        let sample = |number: u64| {
            let mut sample = Sample { start: number * 1000, end: number * 1000 + 60, thread: 7, ..Sample::default() };
            sample.values[..2].copy_from_slice(&[number, number % 3]);
            sample
        };
        (0..count).map(sample).collect()
    }

    fn log_bytes_with_samples(sample_count: u64) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut feed, writer) = write::start(&path, &head()).unwrap();
        let mut write = |sample: &Sample| feed.write(sample, Layout { counters: 1, tags: 1 });
        samples(sample_count).iter().for_each(&mut write);
        feed.end();
        drop(feed);
        assert_eq!(writer.join(&foot()), write::LogOutcome { samples: sample_count, ..Default::default() });
        std::fs::read(&path).unwrap()
    }

    fn read_log(bytes: &[u8]) -> (Vec<Sample>, Option<LogNote>) {
        let mut reader = LogReader::new(bytes).unwrap();
        assert_eq!(*reader.head(), head());
        let mut read = Vec::new();
        reader.for_each_sample(|sample, _| read.push(*sample));
        (read, reader.problem().cloned())
    }

    #[test]
    fn log_is_read_across_several_chunks() {
        let count = 250_000;
        assert_eq!(read_log(&log_bytes_with_samples(count)), (samples(count), None));
    }

    #[test]
    fn the_foot_is_read_after_the_samples_and_may_be_missing() {
        let whole = log_bytes_with_samples(3);
        let mut reader = LogReader::new(whole.as_slice()).unwrap();
        reader.for_each_sample(|_, _| ());
        assert_eq!(*reader.foot(), foot());
        let without = &whole[..whole.len() - foot_length_bytes()];
        assert_eq!(read_log(without), (samples(3), None));
        assert_eq!(read_log(&whole[..whole.len() - 1]), (samples(3), Some(LogNote::LogCutOff)));
    }

    #[test]
    fn a_pause_is_a_gap_before_the_next_sample() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut feed, writer) = write::start(&path, &head()).unwrap();
        for (number, sample) in samples(4).iter().enumerate() {
            if number == 2 {
                feed.mark_gap();
            }
            feed.write(sample, Layout { counters: 1, tags: 1 });
        }
        feed.end();
        drop(feed);
        assert_eq!(writer.join(&foot()).samples, 4);
        let mut gaps = Vec::new();
        LogReader::open(&path).unwrap().for_each_sample(|_, is_gap| gaps.push(is_gap));
        assert_eq!(gaps, [false, false, true, false]);
    }

    #[test]
    fn truncated_log_is_read_up_to_the_cut() {
        let whole = log_bytes_with_samples(100);
        let (read, problem) = read_log(&whole[..whole.len() - foot_length_bytes() - 21]);
        assert_eq!(read, samples(99), "a sample that is not whole is left out");
        assert_eq!(problem, Some(LogNote::LogCutOff));
    }

    #[test]
    fn file_of_another_format_is_refused() {
        let message = |bytes: &[u8]| LogReader::new(bytes).err().unwrap();
        assert!(message(b"{}").contains("too short"));
        assert!(message(b"{\"version\": 1}").contains("like a log"));
        assert!(message(b"SLNOBS1\n\xff\xff\xff\xff").contains("impossible length"));
    }

    proptest! {
        #[test]
        fn reader_accepts_any_bytes_without_a_panic(garbage in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = log_bytes_with_samples(1);
            let head = bytes.len() - 40 - CHUNK_HEAD_BYTES - foot_length_bytes();
            bytes.truncate(head);
            bytes.extend(&garbage);
            let (_, problem) = read_log(&bytes);
            prop_assert!(garbage.is_empty() || problem.is_some() || garbage[..4] == CHUNK_MAGIC.to_le_bytes());
            let _ = LogReader::new(garbage.as_slice());
        }
    }

    #[test]
    fn fuzzed_logs_are_read_up_to_their_damage() {
        sidelane_testing::fuzz("observe-log", |bytes| {
            let Ok(mut reader) = LogReader::new(bytes) else { return };
            let mut samples = 0;
            reader.for_each_sample(|_, _| samples += 1);
            assert!(samples * 8 * FIXED_WORDS <= bytes.len(), "{samples} samples");
        });
    }
}
