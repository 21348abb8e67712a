//! Recordings of interference: JSON with a value in each line.
//!
//! ```text
//! {"at_ns":1000,"cpu":0,"value":41.5}
//! ```
//!
//! Times are of any clock that never goes back; only their differences matter. A service is inactive in a time without
//! lines.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sidelane_policy::cpus::MAX_CPUS;
use thiserror::Error;

/// Recorded value of interference on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Time of the value, in ns of any clock.
    pub at_ns: u64,
    /// CPU on which the value was measured.
    pub cpu: u32,
    /// Interference with the service on this CPU.
    pub value: f64,
}

/// Reason why a file is not a recording.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// File that cannot be read.
    #[error("cannot read the recording {file}")]
    File {
        /// Path of the file.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Line that is no valid record.
    #[error("{file}:{line}: {what}; write lines such as {{\"at_ns\":1000,\"cpu\":0,\"value\":41.5}}")]
    Line {
        /// Path of the file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Description of what is wrong in the line.
        what: String,
    },
}

/// Recording that is replayed from its first time on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// Values that were not replayed yet.
    rest: VecDeque<Recorded>,
    /// Time of the first value, from which times count.
    origin_ns: u64,
}

impl Replay {
    /// Reads a recording from a file.
    pub fn read(file: &Path) -> Result<Self, ReplayError> {
        let bytes = fs::read(file).map_err(|source| ReplayError::File { file: file.to_owned(), source })?;
        Self::parse_bytes(&bytes).map_err(|(line, what)| ReplayError::Line { file: file.to_owned(), line, what })
    }

    /// Parses a recording.
    ///
    /// # Errors
    /// The number of the first wrong line, with its problem.
    fn parse_bytes(bytes: &[u8]) -> Result<Self, (usize, String)> {
        let mut rest: VecDeque<Recorded> = VecDeque::new();
        for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let recorded = parse(line).map_err(|what| (at + 1, what))?;
            if rest.back().is_some_and(|before| before.at_ns > recorded.at_ns) {
                return Err((at + 1, format!("at_ns goes back to {}", recorded.at_ns)));
            }
            rest.push_back(recorded);
        }
        let origin_ns = rest.front().map_or(0, |first| first.at_ns);
        Ok(Self { rest, origin_ns })
    }

    /// Returns the time of the next value since the start of the recording; `None` at its end.
    pub fn next_value_ns(&self) -> Option<u64> {
        self.rest.front().map(|next| next.at_ns - self.origin_ns)
    }

    /// Calls `handle` in order for every value up to `since_start_ns` for which it was not called yet.
    pub fn advance(&mut self, since_start_ns: u64, mut handle: impl FnMut(Recorded)) {
        while self.next_value_ns().is_some_and(|next_ns| next_ns <= since_start_ns) {
            self.rest.pop_front().into_iter().for_each(&mut handle);
        }
    }
}

fn parse(line: &[u8]) -> Result<Recorded, String> {
    let recorded: Recorded = serde_json::from_slice(line).map_err(|error| error_text(&error))?;
    if recorded.cpu as usize >= MAX_CPUS {
        return Err(format!("there is no CPU {}; the last one is {}", recorded.cpu, MAX_CPUS - 1));
    }
    if !recorded.value.is_finite() || recorded.value < 0.0 {
        return Err(format!("{} is not a possible value", recorded.value));
    }
    Ok(recorded)
}

/// Returns the text of the error without its position, because the number of the line is reported anyway.
fn error_text(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use std::io;

    use proptest::prelude::*;

    use super::*;

    /// Writer of a recording.
    struct Recorder<W: Write>(W);

    impl<W: Write> Recorder<W> {
        /// Makes a writer to a file or a buffer.
        fn new(writer: W) -> Self {
            Self(writer)
        }

        /// Writes one more value.
        fn write(&mut self, recorded: &Recorded) -> io::Result<()> {
            serde_json::to_writer(&mut self.0, recorded)?;
            writeln!(self.0)
        }
    }

    /// Generates values that are the same after a conversion to text and back.
    fn any_recorded_value() -> impl Strategy<Value = Recorded> {
        let parts = (0..1_000_000_000_u64, 0..MAX_CPUS as u32, 0..1_000_000_u32);
        parts.prop_map(|(at_ns, cpu, eighths)| Recorded { at_ns, cpu, value: f64::from(eighths) / 8.0 })
    }

    fn encode_recording(values: &[Recorded]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut recorder = Recorder::new(&mut bytes);
        values.iter().for_each(|value| recorder.write(value).unwrap());
        bytes
    }

    proptest! {
        #[test]
        fn recording_is_replayed_in_order(
            mut values in prop::collection::vec(any_recorded_value(), 0..50),
            step in 1..1_000_000_000_u64,
        ) {
            values.sort_by_key(|value| value.at_ns);
            let mut replay = Replay::parse_bytes(&encode_recording(&values)).unwrap();
            let (mut told, mut now_ns) = (Vec::new(), 0);
            while replay.next_value_ns().is_some() {
                replay.advance(now_ns, |value| told.push(value));
                prop_assert!(replay.next_value_ns().is_none_or(|next_ns| next_ns > now_ns));
                now_ns += step;
            }
            prop_assert_eq!(told, values);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Replay::parse_bytes(&bytes);
        }

        #[test]
        fn a_damaged_recording_is_read_without_a_panic(
            values in prop::collection::vec(any_recorded_value(), 1..5), at in any::<prop::sample::Index>(), byte in any::<u8>()
        ) {
            let mut bytes = encode_recording(&values);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Replay::parse_bytes(&bytes);
        }
    }

    #[test]
    fn error_names_the_wrong_line() {
        let wrong = |text: &str| Replay::parse_bytes(text.as_bytes()).unwrap_err();
        let good = r#"{"at_ns":5,"cpu":0,"value":1.0}"#;
        assert_eq!(wrong(&format!("{good}\n\nhello")).0, 3);
        assert_eq!(wrong(&format!("{good}\n{}", good.replace('5', "4"))), (2, "at_ns goes back to 4".to_owned()));
        assert!(wrong(&good.replace(":0", ":512")).1.contains("no CPU 512"));
        assert!(wrong(&good.replace("1.0", "-1.0")).1.contains("-1 is not a possible value"));
        assert!(wrong(r#"{"at_ns":5,"cpu":0}"#).1.contains("missing field `value`"));
        let error = Replay::read(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere"), "{error}");
    }

    #[test]
    fn fuzzed_recordings_are_replayed_in_order_or_refused() {
        sidelane_testing::fuzz("recording", |bytes| {
            let Ok(mut replay) = Replay::parse_bytes(bytes) else { return };
            let mut before_ns = 0;
            replay.advance(u64::MAX, |value| {
                assert!(value.at_ns >= before_ns && value.value >= 0.0, "{value:?}");
                before_ns = value.at_ns;
            });
            assert_eq!(replay.next_value_ns(), None);
        });
    }
}
