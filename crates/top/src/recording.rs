//! Recordings: one frame a line, as JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sidelane_agent::status::Snapshot;
use thiserror::Error;

/// Longest line that is read, in bytes: the status of a large machine with a long list of notes.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// Status at one moment, or the reason why there was none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Time since the start of the session, in milliseconds.
    pub at_ms: u64,
    /// Status of the agent or run; `None` if it did not answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<Box<Snapshot>>,
    /// Reason why there is no status.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub away: Option<String>,
}

/// Reason why a recording cannot be read.
#[derive(Debug, Error)]
#[error("cannot read line {line} of the recording: {what}; record again with `sidelane top --record FILE`")]
pub struct RecordingError {
    line: u64,
    what: String,
}

/// Reader of a recording.
pub struct Recording<R> {
    input: R,
    line: u64,
    last_ms: u64,
}

impl Recording<BufReader<File>> {
    /// Opens the recording at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(BufReader::new(File::open(path)?)))
    }
}

impl<R: BufRead> Recording<R> {
    /// Makes a reader of these lines.
    pub fn new(input: R) -> Self {
        Self { input, line: 0, last_ms: 0 }
    }

    /// Returns the next frame; `None` at the end. A last line without its end is left out, because a killed recorder
    /// may have written a part of it.
    ///
    /// # Errors
    /// If the line is no frame, or is earlier than the line before.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, RecordingError> {
        let mut text = Vec::new();
        self.line += 1;
        let line = self.line;
        let error = |what: String| RecordingError { line, what };
        io::Read::take(&mut self.input, LINE_BYTES_MAX)
            .read_until(b'\n', &mut text)
            .map_err(|cause| error(cause.to_string()))?;
        if text.last() != Some(&b'\n') {
            let is_long = text.len() as u64 == LINE_BYTES_MAX;
            return if is_long { Err(error("it is too long".to_owned())) } else { Ok(None) };
        }
        let frame: Frame = serde_json::from_slice(&text).map_err(|cause| error(cause.to_string()))?;
        if frame.at_ms < self.last_ms {
            return Err(error(format!("at_ms goes back to {}", frame.at_ms)));
        }
        self.last_ms = frame.at_ms;
        Ok(Some(frame))
    }
}

/// Writes a frame as a line.
pub fn write_frame(output: &mut impl Write, frame: &Frame) -> io::Result<()> {
    let mut line = serde_json::to_vec(frame)?;
    line.push(b'\n');
    output.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::tests::draw;
    use crate::view::View;

    fn read_all(bytes: &[u8]) -> Result<Vec<Frame>, RecordingError> {
        let mut recording = Recording::new(bytes);
        std::iter::from_fn(|| recording.next_frame().transpose()).collect()
    }

    #[test]
    fn recording_is_read_as_it_was_written() {
        let status = Some(Box::default());
        let frames = [
            Frame { at_ms: 0, status: status.clone(), away: None },
            Frame { at_ms: 100, status: None, away: Some("the agent has ended".to_owned()) },
            Frame { at_ms: 200, status, away: None },
        ];
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| write_frame(&mut bytes, frame).unwrap());
        assert_eq!(read_all(&bytes).unwrap(), frames);
        bytes.truncate(bytes.len() - 2);
        assert_eq!(read_all(&bytes).unwrap(), frames[..2], "the last line is cut off");
    }

    #[test]
    fn error_names_the_wrong_line_of_a_recording() {
        let error = |text: &str| read_all(text.as_bytes()).unwrap_err().to_string();
        let good = "{\"at_ms\":5}\n";
        assert!(error(&format!("{good}hello\n")).starts_with("cannot read line 2 of the recording: "));
        assert!(error(&format!("{good}{{\"at_ms\":4}}\n")).contains("at_ms goes back to 4"));
    }

    #[test]
    fn fuzzed_recordings_are_drawn_or_refused() {
        sidelane_testing::fuzz("top-recording", |bytes| {
            let (mut recording, mut view) = (Recording::new(bytes), View::new("recording", true));
            let mut last_ms = 0;
            while let Ok(Some(frame)) = recording.next_frame() {
                assert!(frame.at_ms >= last_ms);
                last_ms = frame.at_ms;
                view.push(frame);
            }
            draw(&view, 80, 24);
            view.to_trace();
        });
    }
}
