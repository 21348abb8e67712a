//! A recording: the requests of a service and the use of its lanes, as far as a simulation needs them.
//!
//! A file is one gzip stream: the line [`MAGIC`], a line of JSON ([`Head`]), and a block for each second. A block begins
//! with its length in bytes (32 bits, little-endian); its values are variable-length integers. The last block is empty.
//! A recording whose recorder was killed lacks it, and can be used up to its last whole block.
//!
//! All times are in units of [`UNIT_NS`]. At 5,000 requests a second an hour takes some 130 MB.

use std::fs::{self, DirEntry, File};
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

    /// Returns the CPUs of the request lanes as text.
    pub fn cpus(&self) -> String {
        self.request_lanes.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
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
        find_files(paths)?.iter().map(|found| Self::load(&found.path)).collect()
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
        let head = read_head(&mut input, file)?;
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

    fn sum(&self, part: fn(&Second) -> u64) -> f64 {
        self.seconds.iter().map(|second| part(second) as f64).sum()
    }

    /// Returns the share of the request lanes' time for which the service had them.
    pub fn busy_share(&self) -> f64 {
        let busy: f64 = self.seconds.iter().flat_map(|second| &second.lanes).map(|lane| lane.busy as f64).sum();
        busy / (self.sum(|second| second.length) * self.head.request_lanes.len() as f64).max(1.0)
    }

    /// Returns the share of the time in which the service has no CPU in which it needs none either. In the rest of it a
    /// thread of the service is woken and does not run yet, so batch has to be off its lane.
    pub fn unneeded_share(&self) -> f64 {
        let beside_idle = self.sum(|second| second.beside_idle);
        let idle = beside_idle / (self.sum(|second| second.length) * self.head.batch_lanes.len() as f64).max(1.0);
        let without_cpu = 1.0 - self.busy_share();
        if beside_idle > 0.0 && without_cpu > 0.0 { (idle / without_cpu).min(1.0) } else { 1.0 }
    }

    /// Returns the share of the batch lanes' time beside the idle service that other programs, the kernel and the
    /// hypervisor had.
    pub fn others_share(&self) -> f64 {
        let all = self.sum(|second| second.beside_idle);
        if all > 0.0 { (1.0 - self.sum(|second| second.empty) / all).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns the number of requests of which no record was read.
    pub fn lost(&self) -> u64 {
        self.seconds.iter().fold(0, |sum, second| sum.saturating_add(second.lost))
    }
}

/// Files of recordings that follow one another: of one service on the same lanes, in one folder.
#[derive(Clone, Debug)]
pub struct RecordedService {
    /// Name of the service. If recordings of several services were found: the folder, and the lanes where those differ.
    pub name: String,
    head: Head,
    folder: PathBuf,
    files: Vec<PathBuf>,
}

impl RecordedService {
    /// Finds the services of the recordings at `paths`. A folder stands for all recordings in it and below it, in the
    /// order of their names; recordings of two folders are of two services. Named files may lie anywhere.
    pub fn find(paths: &[PathBuf]) -> Result<Vec<Self>, RecordingError> {
        let mut services: Vec<Self> = Vec::new();
        for FoundFile { path, folder } in find_files(paths)? {
            let file = path.display().to_string();
            let bytes = File::open(&path).map_err(|error| RecordingError::Io { file: file.clone(), error })?;
            let head = read_head(&mut BufReader::new(MultiGzDecoder::new(bytes)), &file)?;
            let known = services.iter_mut().find(|known| known.folder == folder && known.head.has_lanes_of(&head));
            match known {
                Some(known) => known.files.push(path),
                None => services.push(Self { name: String::new(), head, folder, files: vec![path] }),
            }
        }
        let names: Vec<String> = services.iter().map(|service| service.name_among(&services)).collect();
        services.iter_mut().zip(names).for_each(|(service, name)| service.name = name);
        Ok(services)
    }

    fn name_among(&self, all: &[Self]) -> String {
        let is_folder = all.len() > 1 && !self.folder.as_os_str().is_empty();
        let name = if is_folder { self.folder.display().to_string() } else { self.head.service.clone() };
        let is_like = |other: &&Self| other.folder == self.folder && other.head.service == self.head.service;
        match all.iter().filter(is_like).count() {
            1 => name,
            _ => format!("{name} on CPU {}", self.head.cpus()),
        }
    }

    /// Reads the recordings, and joins them one after another.
    pub fn load(&self) -> Result<Recording, RecordingError> {
        let (first, others) = self.files.split_first().expect("it was made of a file");
        let mut joined = Recording::load(first)?;
        others.iter().try_for_each(|path| Recording::load(path).map(|other| joined.append(other)))?;
        Ok(joined)
    }
}

/// File of a recording.
struct FoundFile {
    path: PathBuf,
    /// Folder that it was found in, below the one that was named; empty if it was named itself, or lies there.
    folder: PathBuf,
}

/// Returns the files of all recordings at `paths`.
fn find_files(paths: &[PathBuf]) -> Result<Vec<FoundFile>, RecordingError> {
    let mut files = Vec::new();
    for path in paths {
        let before = files.len();
        let added = match path.is_dir() {
            true => add_files_below(path, Path::new(""), &mut files),
            false => {
                files.push(FoundFile { path: path.clone(), folder: PathBuf::new() });
                Ok(())
            }
        };
        added.map_err(|error| RecordingError::Io { file: path.display().to_string(), error })?;
        if files.len() == before {
            return Err(RecordingError::Empty { folder: path.display().to_string() });
        }
    }
    Ok(files)
}

/// Adds all recordings in a folder and below it. `folder` is the path to it from the folder that was named.
fn add_files_below(path: &Path, folder: &Path, files: &mut Vec<FoundFile>) -> io::Result<()> {
    let mut inside = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
    inside.sort_by_key(DirEntry::path);
    for entry in inside {
        let path = entry.path();
        if path.is_dir() {
            add_files_below(&path, &folder.join(entry.file_name()), files)?;
        } else if path.extension().is_some_and(|extension| extension == EXTENSION) {
            files.push(FoundFile { path, folder: folder.to_owned() });
        }
    }
    Ok(())
}

/// Reads the head of a recording. `file` is its name in errors.
fn read_head(input: &mut impl BufRead, file: &str) -> Result<Head, RecordingError> {
    let of_io = |error| RecordingError::Io { file: file.to_owned(), error };
    let wrong = |problem: &str| RecordingError::Contents { file: file.to_owned(), problem: problem.to_owned() };
    if read_line(input).map_err(of_io)? != MAGIC {
        return Err(wrong("it is no recording of this version"));
    }
    let head: Head = serde_json::from_str(&read_line(input).map_err(of_io)?)
        .map_err(|error| wrong(&format!("its description is wrong: {error}")))?;
    if head.request_lanes.is_empty() || head.request_lanes.len() > LANES_MAX || head.batch_lanes.is_empty() {
        return Err(wrong(&format!("it needs 1 to {LANES_MAX} request lanes, and a batch lane")));
    }
    Ok(head)
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
    fn recordings_of_a_service_are_one_after_another() {
        let dir = tempfile::tempdir().unwrap();
        let of_monday = dir.path().join("1.sidelane");
        fs::write(&of_monday, written()).unwrap();
        fs::write(dir.path().join("2.sidelane"), written()).unwrap();
        fs::write(dir.path().join("notes.txt"), "no recording").unwrap();
        let services = RecordedService::find(&[dir.path().to_owned()]).unwrap();
        let [service] = &services[..] else { panic!("{services:?}") };
        let (both, one) = (service.load().unwrap(), Recording::load(&of_monday).unwrap());
        assert_eq!(service.name, "port:1");
        assert_eq!((both.length_ns(), both.lost()), (2 * one.length_ns(), 2 * one.lost()));
        let (first, second) = both.requests.split_at(one.requests.len());
        assert_eq!(first, one.requests);
        let later = second.iter().zip(first).map(|(later, first)| later.arrived - first.arrived);
        assert!(later.into_iter().all(|by| by == 30_000_000), "{second:?}");
        let empty = tempfile::tempdir().unwrap();
        let refused = RecordedService::find(&[empty.path().to_owned()]).unwrap_err().to_string();
        assert!(refused.contains("no file in it or below it ends in .sidelane; name a folder"), "{refused}");
    }

    #[test]
    fn services_have_the_names_of_their_folders_and_lanes() {
        let dir = tempfile::tempdir().unwrap();
        let moved = |cpus: Vec<u32>| {
            let mut writer = RecordingWriter::new(Vec::new(), &Head { request_lanes: cpus, ..head() }).unwrap();
            writer.write(&second_at(0)).unwrap();
            writer.end().unwrap()
        };
        let files = ["one/web/1", "one/web/2", "two/web/1", "two/web/2"].map(|name| dir.path().join(name));
        for (file, cpus) in files.iter().zip([vec![0, 2], vec![0, 2], vec![0, 2], vec![4, 6]]) {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file.with_extension(EXTENSION), moved(cpus)).unwrap();
        }
        let services = RecordedService::find(&[dir.path().to_owned()]).unwrap();
        let found: Vec<(&str, usize)> = services.iter().map(|found| (found.name.as_str(), found.files.len())).collect();
        assert_eq!(found, [("one/web", 2), ("two/web on CPU 0,2", 1), ("two/web on CPU 4,6", 1)]);
        let named = files.map(|file| file.with_extension(EXTENSION));
        let services = RecordedService::find(&named[..3]).unwrap();
        assert_eq!((services.len(), services[0].files.len()), (1, 3), "files that are named may lie anywhere");
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
