//! A recording: the requests of a service and the use of its lanes, as far as a simulation needs them.
//!
//! A file is one gzip stream: the line [`MAGIC`], a line of JSON ([`Head`]), and a block for each second. A block begins
//! with its length in bytes (32 bits, little-endian); its values are variable-length integers. The last block is empty.
//! A recording whose recorder was killed lacks it, and can be used up to its last whole block.
//!
//! All times are in units of [`UNIT_NS`]. At 5,000 requests a second an hour takes some 130 MB.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use prost::encoding::{decode_varint, encode_varint};
use serde::{Deserialize, Serialize};
use sidelane_report::Machine;
use thiserror::Error;

/// Unit of all times in a recording, in nanoseconds.
pub const UNIT_NS: u64 = 100;

/// Ending of the names of recordings in a folder.
pub const EXTENSION: &str = "sidelane";

const MAGIC: &str = "sidelane recording 1";
/// Longest block: a second has far fewer requests.
const BLOCK_BYTES_MAX: usize = 256 << 20;
/// Longest time that counts as a second, in units: the recorder may have waited for a CPU.
const SECOND_MAX: u64 = 60 * 10_000_000;
/// Longest time from the end of a recording to the arrival of a request in it, in units.
const LATE_MAX: u64 = SECOND_MAX;
/// Most request lanes of a recording, as many as the simulator has.
const LANES_MAX: usize = crate::model::CORES_MAX;

/// What a recording is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Name of the service, as the user gave it.
    pub service: String,
    /// CPU numbers of the request lanes; requests name them by their index.
    pub request_lanes: Vec<u32>,
    /// CPU numbers of the batch lanes.
    pub batch_lanes: Vec<u32>,
    /// Value of `--lanes` that declared the lanes; `None` if they are those of the service's cores.
    pub declared: Option<String>,
    /// Where requests were observed.
    pub source: String,
    /// The machine.
    pub machine: Machine,
}

impl Head {
    /// Returns whether a recording with this head is of the same service, on the same lanes, as one with `other`.
    fn has_lanes_of(&self, other: &Self) -> bool {
        let lanes = |head: &Self| (head.service.clone(), head.request_lanes.clone(), head.batch_lanes.clone());
        lanes(self) == lanes(other)
    }

    /// Returns the service and its lanes as text.
    fn text(&self) -> String {
        let list = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        format!("{} on CPU {} with lane(s) {}", self.service, list(&self.request_lanes), list(&self.batch_lanes))
    }
}

/// A recorded request. Times are in units of [`UNIT_NS`], since the begin of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Time of the arrival.
    pub arrived: u64,
    /// Time from arrival to start.
    pub queueing: u32,
    /// Time from start to finish.
    pub server: u32,
    /// Index of the request lane.
    pub lane: u8,
}

/// Use of a request lane in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneSecond {
    /// Time for which the service had the lane.
    pub busy: u64,
    /// Number of turns in which it had the lane.
    pub turns: u64,
}

/// What happened in one second. Times are in units of [`UNIT_NS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Length: a second, or less at the end.
    pub length: u64,
    /// Use of each request lane.
    pub lanes: Vec<LaneSecond>,
    /// Time of the batch lanes beside the idle service, and the part of it in which they were empty.
    pub beside_idle: u64,
    /// Time for which the batch lanes were empty beside the idle service.
    pub empty: u64,
    /// Number of requests of which no record was read.
    pub lost: u64,
    /// Requests that were read in this second.
    pub requests: Vec<RecordedRequest>,
}

/// A whole recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// What it is of.
    pub head: Head,
    /// Its seconds, without their requests.
    pub seconds: Vec<Second>,
    /// All requests, by their arrival.
    pub requests: Vec<RecordedRequest>,
    /// Whether the end is missing.
    pub is_cut: bool,
}

/// Why a recording cannot be read.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// A file that cannot be read, or is no gzip stream.
    #[error("cannot read the recording {file}: {error}; name a file that `sidelane estimate --keep` has written")]
    Io {
        /// Path of the file.
        file: String,
        /// What failed.
        error: io::Error,
    },
    /// A file with other contents.
    #[error("cannot read {file}: {problem}; name a file that `sidelane estimate --keep` has written")]
    Contents {
        /// Path of the file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A folder without recordings.
    #[error(
        "there is no recording in {folder}: no file in it or below it ends in .{EXTENSION}; name a folder with recordings"
    )]
    Empty {
        /// Path of the folder.
        folder: String,
    },
    /// Recordings that make no common estimate.
    #[error("{first} is of {of_first}, but {other} is of {of_other}; name recordings of one service on the same lanes")]
    Different {
        /// Path of the first recording.
        first: String,
        /// What the first recording is of.
        of_first: String,
        /// Path of another recording.
        other: String,
        /// What that recording is of.
        of_other: String,
    },
}

/// Output that counts its bytes.
pub struct SizedOutput<W> {
    inner: W,
    size_bytes: u64,
}

impl<W> SizedOutput<W> {
    /// Makes an output to `inner`, of which nothing is counted yet.
    pub fn new(inner: W) -> Self {
        Self { inner, size_bytes: 0 }
    }

    /// Returns the number of bytes that were written.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns what was written to.
    pub fn into_inner(self) -> W {
        self.inner
    }
}

impl<W: Write> Write for SizedOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.size_bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writer of a recording, second by second.
pub struct RecordingWriter<W: Write> {
    out: GzEncoder<W>,
    block: Vec<u8>,
    last_arrival: u64,
}

impl<W: Write> RecordingWriter<W> {
    /// Begins a recording.
    pub fn new(out: W, head: &Head) -> io::Result<Self> {
        let mut out = GzEncoder::new(out, Compression::fast());
        writeln!(out, "{MAGIC}\n{}", serde_json::to_string(head)?)?;
        Ok(Self { out, block: Vec::new(), last_arrival: 0 })
    }

    /// Returns what the recording is written to.
    pub fn get_ref(&self) -> &W {
        self.out.get_ref()
    }

    /// Writes a second.
    pub fn write(&mut self, second: &Second) -> io::Result<()> {
        self.block.clear();
        let block = &mut self.block;
        for lane in &second.lanes {
            encode_varint(lane.busy, block);
            encode_varint(lane.turns, block);
        }
        for value in [second.length, second.beside_idle, second.empty, second.lost] {
            encode_varint(value, block);
        }
        for request in &second.requests {
            encode_varint(request.lane.into(), block);
            encode_varint(zigzag(request.arrived.wrapping_sub(self.last_arrival) as i64), block);
            encode_varint(request.queueing.into(), block);
            encode_varint(request.server.into(), block);
            self.last_arrival = request.arrived;
        }
        self.out.write_all(&(block.len() as u32).to_le_bytes())?;
        self.out.write_all(block)
    }

    /// Ends the recording, and returns what it was written to.
    pub fn end(mut self) -> io::Result<W> {
        self.out.write_all(&0_u32.to_le_bytes())?;
        let mut out = self.out.finish()?;
        out.flush()?;
        Ok(out)
    }
}

/// Maps small differences of both signs to small numbers.
fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

impl Recording {
    /// Reads the recording at `path`.
    pub fn load(path: &Path) -> Result<Self, RecordingError> {
        let file = path.display().to_string();
        let bytes = File::open(path).map_err(|error| RecordingError::Io { file: file.clone(), error })?;
        Self::read(bytes, &file)
    }

    /// Reads each of the recordings at `paths`. A folder stands for all recordings in it and below it, in the order of
    /// their names.
    pub fn load_each(paths: &[PathBuf]) -> Result<Vec<Self>, RecordingError> {
        find_files(paths)?.iter().map(|file| Self::load(file)).collect()
    }

    /// Reads the recordings at `paths`, as [`Recording::load_each`] does, and joins them one after another.
    pub fn load_joined(paths: &[PathBuf]) -> Result<Self, RecordingError> {
        let files = find_files(paths)?;
        let (first, others) = files.split_first().expect("a path was given");
        let mut joined = Self::load(first)?;
        for path in others {
            let other = Self::load(path)?;
            if !joined.head.has_lanes_of(&other.head) {
                let [of_first, of_other] = [&joined.head, &other.head].map(Head::text);
                let [first, other] = [first, path].map(|path| path.display().to_string());
                return Err(RecordingError::Different { first, of_first, other, of_other });
            }
            joined.append(other);
        }
        Ok(joined)
    }

    /// Appends a recording of the same lanes, as if it had begun at the end of this one.
    fn append(&mut self, other: Self) {
        let begin = self.length_ns() / UNIT_NS;
        let shifted = |request: RecordedRequest| RecordedRequest { arrived: begin + request.arrived, ..request };
        self.requests.extend(other.requests.into_iter().map(shifted));
        self.requests.sort_by_key(|request| request.arrived);
        self.seconds.extend(other.seconds);
        self.is_cut |= other.is_cut;
    }

    /// Reads a recording. `file` is its name in errors.
    pub fn read(bytes: impl Read, file: &str) -> Result<Self, RecordingError> {
        let mut input = BufReader::new(MultiGzDecoder::new(bytes));
        let of_io = |error| RecordingError::Io { file: file.to_owned(), error };
        let wrong = |problem: &str| RecordingError::Contents { file: file.to_owned(), problem: problem.to_owned() };
        if read_line(&mut input).map_err(of_io)? != MAGIC {
            return Err(wrong("it is no recording of this version"));
        }
        let head: Head = serde_json::from_str(&read_line(&mut input).map_err(of_io)?)
            .map_err(|error| wrong(&format!("its description is wrong: {error}")))?;
        if head.request_lanes.is_empty() || head.request_lanes.len() > LANES_MAX || head.batch_lanes.is_empty() {
            return Err(wrong(&format!("it needs 1 to {LANES_MAX} request lanes, and a batch lane")));
        }
        let mut recording = Self { head, seconds: Vec::new(), requests: Vec::new(), is_cut: false };
        let mut last_arrival = 0;
        loop {
            let block = match read_block(&mut input) {
                Ok(Some(block)) => block,
                Ok(None) => break,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    recording.is_cut = true;
                    break;
                }
                Err(error) => return Err(of_io(error)),
            };
            let second = recording.parse_second(&block, &mut last_arrival);
            recording.seconds.push(second.ok_or_else(|| wrong("a second in it is wrong"))?);
        }
        recording.requests.sort_by_key(|request| request.arrived);
        let last = recording.requests.last().map_or(0, |request| request.arrived);
        if last > (recording.length_ns() / UNIT_NS).saturating_add(LATE_MAX) {
            return Err(wrong("a request in it arrived after its end"));
        }
        Ok(recording)
    }

    fn parse_second(&mut self, mut block: &[u8], last_arrival: &mut u64) -> Option<Second> {
        let block = &mut block;
        let lane_count = self.head.request_lanes.len();
        let mut lanes = Vec::with_capacity(lane_count);
        for _ in 0..lane_count {
            lanes.push(LaneSecond { busy: decode_varint(block).ok()?, turns: decode_varint(block).ok()? });
        }
        let mut next = || decode_varint(block).ok();
        let (length, beside_idle, empty, lost) = (next()?, next()?, next()?, next()?);
        let is_busy_longer = lanes.iter().any(|lane| lane.busy > SECOND_MAX || lane.turns > SECOND_MAX);
        if length > SECOND_MAX || is_busy_longer {
            return None;
        }
        while !block.is_empty() {
            let mut next = || decode_varint(block).ok();
            let lane = u8::try_from(next()?).ok().filter(|lane| usize::from(*lane) < lane_count)?;
            let arrived = last_arrival.checked_add_signed(unzigzag(next()?))?;
            let (queueing, server) = (u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?);
            *last_arrival = arrived;
            self.requests.push(RecordedRequest { arrived, queueing, server, lane });
        }
        Some(Second { length, lanes, beside_idle, empty, lost, requests: Vec::new() })
    }

    /// Returns the length of the recording, in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.seconds.iter().fold(0_u64, |sum, second| sum.saturating_add(second.length)).saturating_mul(UNIT_NS)
    }

    /// Returns the share of the request lanes' time for which the service had them.
    pub fn busy_share(&self) -> f64 {
        let busy: f64 = self.seconds.iter().flat_map(|second| &second.lanes).map(|lane| lane.busy as f64).sum();
        let all: f64 = self.seconds.iter().map(|second| second.length as f64).sum();
        busy / (all * self.head.request_lanes.len() as f64).max(1.0)
    }

    /// Returns the share of the batch lanes' time beside the idle service that other programs, the kernel and the
    /// hypervisor had.
    pub fn others_share(&self) -> f64 {
        let sum = |part: fn(&Second) -> u64| self.seconds.iter().map(|second| part(second) as f64).sum::<f64>();
        let all = sum(|second| second.beside_idle);
        if all > 0.0 { (1.0 - sum(|second| second.empty) / all).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns the number of requests of which no record was read.
    pub fn lost(&self) -> u64 {
        self.seconds.iter().fold(0, |sum, second| sum.saturating_add(second.lost))
    }
}

/// Returns the files of all recordings at `paths`.
fn find_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, RecordingError> {
    let mut files = Vec::new();
    for path in paths {
        let before = files.len();
        let added = add_files(path, true, &mut files);
        added.map_err(|error| RecordingError::Io { file: path.display().to_string(), error })?;
        if files.len() == before {
            return Err(RecordingError::Empty { folder: path.display().to_string() });
        }
    }
    Ok(files)
}

/// Adds the recordings at `path`: a file that was named, or all recordings in a folder and below it.
fn add_files(path: &Path, is_named: bool, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        if is_named || path.extension().is_some_and(|extension| extension == EXTENSION) {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    let mut inside = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    inside.sort();
    inside.iter().try_for_each(|path| add_files(path, false, files))
}

/// Reads a line of a text that may be of any length, without its end.
fn read_line(input: &mut impl BufRead) -> io::Result<String> {
    const LINE_BYTES_MAX: u64 = 1 << 20;
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned())
}

/// Reads a block; `None` at the end of the recording.
fn read_block(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length == 0 {
        return Ok(None);
    }
    if length > BLOCK_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a block is too long"));
    }
    let mut block = Vec::new();
    input.take(length as u64).read_to_end(&mut block)?;
    if block.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(Some(block)) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tasks::Tasks;

    const MACHINE: &str = r#"{"cpu": "", "lanes": 2, "pair": "declared", "kernel": "", "pmu": false, "gates": []}"#;

    pub(crate) fn head() -> Head {
        Head {
            service: "port:1".to_owned(),
            request_lanes: vec![0, 2],
            batch_lanes: vec![1],
            declared: Some("0:1,2:3".to_owned()),
            source: "seen at its sockets".to_owned(),
            machine: serde_json::from_str(MACHINE).unwrap(),
        }
    }

    fn second_at(from: u64) -> Second {
        let request = |at: u64, lane: u8| RecordedRequest { arrived: from + at, queueing: 3, server: at as u32, lane };
        Second {
            length: 10_000_000,
            lanes: vec![LaneSecond { busy: 70, turns: 7 }, LaneSecond::default()],
            beside_idle: 9_000_000,
            empty: 6_000_000,
            lost: 1,
            requests: vec![request(500, 1), request(100, 0), request(70_000, 1)],
        }
    }

    fn written() -> Vec<u8> {
        let mut writer = RecordingWriter::new(Vec::new(), &head()).unwrap();
        (0..3).for_each(|number| writer.write(&second_at(number * 10_000_000)).unwrap());
        writer.end().unwrap()
    }

    #[test]
    fn recording_is_read_as_it_was_written() {
        let recording = Recording::read(&*written(), "f").unwrap();
        assert_eq!((&recording.head, recording.is_cut, recording.lost()), (&head(), false, 3));
        assert_eq!((recording.length_ns(), recording.requests.len()), (3_000_000_000, 9));
        let arrivals: Vec<u64> = recording.requests.iter().take(3).map(|request| request.arrived).collect();
        assert_eq!(arrivals, [100, 500, 70_000]);
        assert_eq!(recording.seconds[1], Second { requests: vec![], ..second_at(0) });
        assert!((recording.others_share() - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn recording_without_its_end_is_used_up_to_there() {
        let mut writer = RecordingWriter::new(Vec::new(), &head()).unwrap();
        for number in 0..2_000 {
            writer.write(&Second { lost: number * number * 7_919, ..second_at(number * 10_000_000) }).unwrap();
        }
        let all = writer.end().unwrap();
        let recording = Recording::read(&all[..all.len() * 3 / 4], "f").unwrap();
        assert!(recording.is_cut && (1_000..1_900).contains(&recording.seconds.len()), "{}", recording.seconds.len());
    }

    #[test]
    fn recordings_of_a_folder_are_one_after_another() {
        let dir = tempfile::tempdir().unwrap();
        let (of_monday, below) = (dir.path().join("1.sidelane"), dir.path().join("web"));
        fs::create_dir(&below).unwrap();
        fs::write(&of_monday, written()).unwrap();
        fs::write(below.join("2.sidelane"), written()).unwrap();
        fs::write(below.join("notes.txt"), "no recording").unwrap();
        let both = Recording::load_joined(&[dir.path().to_owned()]).unwrap();
        let one = Recording::load(&of_monday).unwrap();
        assert_eq!((both.length_ns(), both.lost()), (2 * one.length_ns(), 2 * one.lost()));
        let (first, second) = both.requests.split_at(one.requests.len());
        assert_eq!(first, one.requests);
        let later = second.iter().zip(first).map(|(later, first)| later.arrived - first.arrived);
        assert!(later.into_iter().all(|by| by == 30_000_000), "{second:?}");

        let mut other = RecordingWriter::new(Vec::new(), &Head { batch_lanes: vec![3], ..head() }).unwrap();
        other.write(&second_at(0)).unwrap();
        fs::write(below.join("3.sidelane"), other.end().unwrap()).unwrap();
        let refused = Recording::load_joined(&[dir.path().to_owned()]).unwrap_err().to_string();
        assert!(refused.contains("3.sidelane is of port:1 on CPU 0,2 with lane(s) 3; name recordings"), "{refused}");
        let empty = tempfile::tempdir().unwrap();
        let refused = Recording::load_joined(&[empty.path().to_owned()]).unwrap_err().to_string();
        assert!(refused.contains("no file in it or below it ends in .sidelane; name a folder"), "{refused}");
    }

    #[test]
    fn other_files_are_refused_with_what_to_do() {
        let gzip = |text: &str| {
            let mut out = GzEncoder::new(Vec::new(), Compression::fast());
            out.write_all(text.as_bytes()).unwrap();
            out.finish().unwrap()
        };
        for (bytes, wanted) in [
            (b"hello".to_vec(), "cannot read the recording f"),
            (gzip("hello\n"), "no recording of this version"),
            (gzip(&format!("{MAGIC}\n{{}}\n")), "its description is wrong"),
        ] {
            let error = Recording::read(&*bytes, "f").unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("; name a file"), "{error}");
        }
    }

    #[test]
    fn fuzzed_recordings_are_read_or_refused() {
        sidelane_testing::fuzz("estimate-recording", |bytes| {
            let mut out = GzEncoder::new(Vec::new(), Compression::fast());
            let head = serde_json::to_string(&head()).unwrap();
            out.write_all(format!("{MAGIC}\n{head}\n").as_bytes()).unwrap();
            out.write_all(bytes).unwrap();
            for recording in [Recording::read(&*out.finish().unwrap(), "f"), Recording::read(bytes, "f")] {
                recording.iter().for_each(|recording| drop(Tasks::new(recording)));
            }
        });
    }
}
