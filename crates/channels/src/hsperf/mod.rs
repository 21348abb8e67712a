//! HotSpot's own counters. A JVM keeps them in a file that it maps shared, and updates them in place. So a read is one
//! load and has no effect on the JVM.
//!
//! The file is `hsperfdata_USER/PID` in the JVM's /tmp. It is found among the process's mapped files, so mount and PID
//! namespaces do not matter.

mod find;
pub mod format;
mod texts;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;

use crate::hsperf::find::{check_owner, counters_region};
use crate::hsperf::format::{Data, Entry, zero_terminated_text};
use crate::hsperf::texts::TextPart;
use crate::mapping::Mapping;
use crate::maps::regions;
use crate::signal::Signal;
use crate::symbols::{closest, did_you_mean, permission_hint};
use crate::{Channel, Kind, Meaning, Reader, Width, Word, add_pid_to_name, most_informative_error};

pub use crate::hsperf::format::{FormatError, Units, Variability};

/// Counters that the plain signal `jvm` stands for: the cause of the running garbage collection, and the numbers of
/// safepoints, collections, threads and loaded classes. Counters that a JVM lacks are left out.
pub const USUAL: [&str; 7] = [
    CAUSE,
    "sun.rt.safepoints",
    "sun.gc.collector.0.invocations",
    "sun.gc.collector.1.invocations",
    "sun.gc.collector.2.invocations",
    "java.threads.live",
    "java.cls.loadedClasses",
];
const CAUSE: &str = "sun.gc.cause";
const LAST_CAUSE: &str = "sun.gc.lastCause";

/// Reason why HotSpot's counters cannot be read.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum JvmError {
    /// Signal `jvm`, although no process is observed.
    #[error("cannot read jvm: signals, since no process is observed; name one with --service pid:1234")]
    NoTarget,
    /// Process that does not exist, or has ended.
    #[error("there is no process {pid}")]
    NoProcess { pid: u32 },
    /// Process that does not run HotSpot.
    #[error("process {pid} has no jvm: signals: it is not a JVM (it has no libjvm.so mapped)")]
    NoJvm { pid: u32 },
    /// JVM that runs without the counter file.
    #[error(
        "cannot read counters of JVM {pid}: it does not share them; start it without -XX:-UsePerfData and \
         -XX:+PerfDisableSharedMem"
    )]
    NoCounters { pid: u32 },
    /// Counter file to which the system refuses access.
    #[error("cannot search process {pid} for counters of a JVM: {source}{}", permission_hint(.source))]
    Open { pid: u32, source: io::Error },
    /// File that is not the JVM's own: not regular, of another user, or of an invalid size.
    #[error("cannot trust the counters of JVM {pid}: {what}")]
    Untrusted { pid: u32, what: String },
    /// File that is not in the expected format.
    #[error("cannot parse the counters of JVM {pid}: {source}")]
    Format { pid: u32, source: FormatError },
    /// Counter that this JVM does not have.
    #[error("JVM {pid} has no counter {name}{}; list them with `sidelane list pid:{pid}`", did_you_mean(.close))]
    NoSuchCounter { pid: u32, name: String, close: Vec<String> },
    /// Counter that is not a number.
    #[error("cannot read {name} of JVM {pid} as a {wanted}: it is {is}; name another counter, or another kind")]
    Kind { pid: u32, name: String, is: &'static str, wanted: Kind },
}

/// Counters of one JVM, mapped from its file.
pub struct Jvm {
    pid: u32,
    mapping: Arc<Mapping>,
    entries: Vec<Entry>,
}

/// Counter with its value at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Name of the counter, such as `sun.rt.safepoints`.
    pub name: String,
    /// Value of the counter.
    pub value: Value,
    /// Unit of the counter's value.
    pub units: Units,
    /// Way in which the counter's value changes.
    pub variability: Variability,
}

/// Value of a counter: a number or a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum Value {
    Number(u64),
    Text(String),
}

/// Returns the channels of `jvm:NAME`, or of `jvm` if `name` is `None`, in every JVM among `pids`.
pub fn channels(signal: &Signal, name: Option<&str>, pids: &BTreeSet<u32>) -> Result<Vec<Channel>, JvmError> {
    let (jvms, errors): (Vec<_>, Vec<_>) = pids.iter().map(|pid| Jvm::open(*pid)).partition(Result::is_ok);
    let jvms: Vec<Jvm> = jvms.into_iter().flatten().collect();
    if jvms.is_empty() {
        let errors = errors.into_iter().filter_map(Result::err).collect();
        let is_no_jvm = |error: &JvmError| matches!(error, JvmError::NoJvm { .. });
        return Err(most_informative_error(errors, is_no_jvm).unwrap_or(JvmError::NoTarget));
    }
    let mut channels = Vec::new();
    for jvm in &jvms {
        let mut own = jvm.channels(signal, name)?;
        own.iter_mut().filter(|_| jvms.len() > 1).for_each(|channel| add_pid_to_name(channel, jvm.pid));
        channels.append(&mut own);
    }
    Ok(channels)
}

impl Counter {
    /// Returns the kind of the signal if the user names none: tag or counter.
    pub fn kind(&self) -> Kind {
        kind(self.variability)
    }
}

impl Jvm {
    /// Finds and maps the counters of a process.
    pub fn open(pid: u32) -> Result<Self, JvmError> {
        let failed = |source| JvmError::Open { pid, source };
        let regions = regions(pid).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => JvmError::NoProcess { pid },
            _ => failed(source),
        })?;
        let region = counters_region(pid, &regions)?;
        let file = region.open(pid).map_err(failed)?;
        check_owner(pid, &file)?;
        Self::from_file(pid, &file)
    }

    /// Maps the counters of a process from the file `file`.
    pub fn from_file(pid: u32, file: &File) -> Result<Self, JvmError> {
        let mapping = Arc::new(Mapping::whole_file(file).map_err(|source| JvmError::Open { pid, source })?);
        let entries = format::parse(mapping.as_bytes()).map_err(|source| JvmError::Format { pid, source })?;
        Ok(Self { pid, mapping, entries })
    }

    /// Returns all counters by name, with their values now.
    pub fn counters(&self) -> Vec<Counter> {
        let mut counters: Vec<Counter> = self.entries.iter().filter_map(|entry| self.counter(entry)).collect();
        counters.sort_by(|a, b| a.name.cmp(&b.name));
        counters
    }

    /// Returns the word of a counter that is a number; `None` if this JVM does not have it.
    pub fn numeric_counter(&self, name: &str) -> Option<Word> {
        let entry = self.find_entry(name).filter(|entry| matches!(entry.data, Data::Long))?;
        Some(self.word(entry.offset, Width::U64))
    }

    fn counter(&self, entry: &Entry) -> Option<Counter> {
        let value = match entry.data {
            Data::Long => Value::Number(self.word(entry.offset, Width::U64).read()),
            Data::Text(_) => Value::Text(self.read_text(entry)),
            Data::Other => return None,
        };
        Some(Counter { name: entry.name.clone(), value, units: entry.units, variability: entry.variability })
    }

    fn channels(&self, signal: &Signal, name: Option<&str>) -> Result<Vec<Channel>, JvmError> {
        let said = signal.kind.map(Kind::channel_kind);
        match name {
            Some(name) => {
                let entry = self.find_entry(name).ok_or_else(|| self.no_such_counter_error(name))?;
                Ok(vec![self.channel(entry, signal.name.clone(), said)?])
            }
            None => {
                let present = USUAL.iter().filter_map(|name| self.find_entry(name));
                present.map(|entry| self.channel(entry, format!("jvm:{}", entry.name), None)).collect()
            }
        }
    }

    fn channel(&self, entry: &Entry, name: String, requested_kind: Option<Kind>) -> Result<Channel, JvmError> {
        match entry.data {
            Data::Long => {
                let reader = Reader::Word(self.word(entry.offset, Width::U64));
                let kind = requested_kind.unwrap_or_else(|| kind(entry.variability));
                Ok(Channel { name, kind, reader, meaning: None, notes: vec![] })
            }
            Data::Text(length) => self.text_channel(entry, length, name, requested_kind),
            Data::Other => Err(self.wrong_kind_error(entry, requested_kind, "neither a number nor a text")),
        }
    }

    fn text_channel(
        &self,
        entry: &Entry,
        length: usize,
        name: String,
        requested_kind: Option<Kind>,
    ) -> Result<Channel, JvmError> {
        if requested_kind == Some(Kind::Counter) {
            return Err(self.wrong_kind_error(entry, requested_kind, "a text"));
        }
        let part = TextPart::widest_readable(entry.offset, length)
            .ok_or_else(|| self.wrong_kind_error(entry, requested_kind, "an empty text"))?;
        let reader = Reader::Word(self.word(entry.offset + part.skip, part.width));
        Ok(Channel { name, kind: Kind::Tag, reader, meaning: Some(self.text_meaning(entry, part)), notes: vec![] })
    }

    /// Returns a function that names a value that one load read from `part` of a text. The function knows the texts
    /// that HotSpot can store in the counter, and the current text.
    fn text_meaning(&self, entry: &Entry, part: TextPart) -> Meaning {
        let is_cause = matches!(entry.name.as_str(), CAUSE | LAST_CAUSE);
        let causes = texts::gc_causes(self.has_zgc()).filter(|_| is_cause);
        let mut known: Vec<String> = causes.map(str::to_owned).collect();
        let now = self.read_text(entry);
        if !known.contains(&now) {
            known.push(now);
        }
        Arc::new(move |value| Some(part.matching_texts(value, &known)))
    }

    fn has_zgc(&self) -> bool {
        let is_collector =
            |entry: &&Entry| entry.name.starts_with("sun.gc.collector.") && entry.name.ends_with(".name");
        self.entries.iter().filter(is_collector).any(|entry| self.read_text(entry).starts_with("Z "))
    }

    fn find_entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    fn read_text(&self, entry: &Entry) -> String {
        let Data::Text(length) = entry.data else { return String::new() };
        let mut bytes = self.mapping.as_bytes()[entry.offset..entry.offset + length].to_vec();
        bytes.push(0);
        zero_terminated_text(&bytes).expect("it ends with a zero")
    }

    fn word(&self, offset: usize, width: Width) -> Word {
        let place = self.mapping.address_at(offset).expect("the parser checked that values are within the file");
        // SAFETY: the place is within the mapping, which the word keeps. It is aligned, since the parser refuses
        // unaligned numbers and `TextPart::widest` chooses aligned parts. HotSpot deletes the file at its end and never
        // shrinks it; if another process shrinks it, `Mapping` keeps it readable.
        unsafe { Word::new(place, width, self.mapping.clone()) }
    }

    fn no_such_counter_error(&self, name: &str) -> JvmError {
        let names = self.entries.iter().map(|entry| entry.name.as_str());
        JvmError::NoSuchCounter { pid: self.pid, name: name.to_owned(), close: closest(name, names) }
    }

    fn wrong_kind_error(&self, entry: &Entry, requested_kind: Option<Kind>, actual: &'static str) -> JvmError {
        JvmError::Kind {
            pid: self.pid,
            name: entry.name.clone(),
            is: actual,
            wanted: requested_kind.unwrap_or(Kind::Tag),
        }
    }
}

fn kind(variability: Variability) -> Kind {
    match variability {
        Variability::Monotonic => Kind::Counter,
        Variability::Variable | Variability::Constant => Kind::Tag,
    }
}
