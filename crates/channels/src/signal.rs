//! The signals that can be observed, in the form in which users write them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Width;

/// Kinds of signals, after the profiler SHIM (thesis section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Value that names the current activity: a phase, a method, a thread.
    Tag,
    /// Count of events.
    Counter,
    /// Counter over time, or over another counter.
    Rate,
}

impl Kind {
    /// Returns the kind of the channel to read: a rate is computed from a counter.
    pub fn channel_kind(self) -> Self {
        match self {
            Kind::Tag => Kind::Tag,
            Kind::Counter | Kind::Rate => Kind::Counter,
        }
    }
}

/// Signal that the user has requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Signal, as the user wrote it.
    pub name: String,
    /// Kind that the user gave (`tag:`, `counter:`, `rate:`), or the only possible one; `None` if the channel decides.
    pub kind: Option<Kind>,
    /// Source of the signal.
    pub source: Source,
}

/// The source of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `lane`: which thread runs on the observed lane.
    Lane,
    /// `request`: whether the observed lane works on a request, how many requests wait, and how many have finished.
    Request,
    /// `ipc`: instructions per cycle on the observed lane.
    Ipc,
    /// `cpc`: cycles per cycle, a test of the measurement whose correct value is 1 (thesis section 3.4).
    Cpc,
    /// `jvm:NAME`: one of HotSpot's counters; or `jvm`: the most informative of them.
    Jvm(Option<String>),
    /// `app:NAME`: a signal that the program itself emits.
    App(String),
    /// `mem:[PID:]PLACE`: a variable of a process.
    Memory {
        /// Process id; `None` for the target's processes.
        pid: Option<u32>,
        /// Place of the variable in memory.
        place: MemoryLocation,
        /// Width of the variable, if the user gave it.
        width: Option<Width>,
    },
    /// `file:PATH[#FIELD]`: a number in a file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Word before the number, or the number's index from 1 on; `None` for the first number.
        field: Option<String>,
    },
    /// `perf:EVENT`: a counter of the kernel or the processor.
    Perf(String),
}

/// Place in a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryLocation {
    /// Variable, or field of a variable: `server.stat_numcommands`.
    Symbol {
        /// Name of the variable or field.
        name: String,
        /// Offset from the variable's start, in bytes.
        offset: u64,
    },
    /// Address in the process.
    Address(u64),
}

impl fmt::Display for MemoryLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryLocation::Symbol { name, offset: 0 } => f.write_str(name),
            MemoryLocation::Symbol { name, offset } => write!(f, "{name}+{offset}"),
            MemoryLocation::Address(address) => write!(f, "0x{address:x}"),
        }
    }
}

/// Reason why a text is not a signal.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SignalError {
    /// Text that has none of the known forms.
    #[error(
        "`{0}` is not a signal; write lane, request, ipc, cpc, jvm, jvm:NAME, app:NAME, \
         mem:[PID:]SYMBOL[+OFFSET][/WIDTH], file:PATH[#FIELD] or perf:EVENT, with tag:, counter: or rate: in front of \
         mem: and file:"
    )]
    Unknown(String),
    /// Kind that the channel cannot have.
    #[error("cannot read `{name}` as a {wanted}: {source_name} is a {is}; leave `{wanted}:` out")]
    Kind {
        /// Signal, as the user wrote it.
        name: String,
        /// Name of the signal's source.
        source_name: &'static str,
        /// Kind that the channel has.
        is: Kind,
        /// Kind that the user gave.
        wanted: Kind,
    },
    /// Signal without a kind: the user named none, and the source does not determine it.
    #[error("`{0}` needs a kind; write tag:{0} if its value is a state, counter:{0} or rate:{0} if it counts up")]
    NoKind(String),
    /// Width that is invalid.
    #[error("`{width}` of `{name}` is not a width; write u8, u16, u32 or u64")]
    Width {
        /// Signal, as the user wrote it.
        name: String,
        /// Invalid part of the signal.
        width: String,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Tag => "tag",
            Kind::Counter => "counter",
            Kind::Rate => "rate",
        })
    }
}

impl FromStr for Signal {
    type Err = SignalError;

    fn from_str(text: &str) -> Result<Self, SignalError> {
        let (said, rest) = split_kind(text);
        let source = Source::parse(rest, said.is_some(), text)?;
        let kind = source.resolve_kind(said, text)?;
        Ok(Signal { name: text.to_owned(), kind, source })
    }
}

fn split_kind(text: &str) -> (Option<Kind>, &str) {
    match text.split_once(':') {
        Some(("tag", rest)) => (Some(Kind::Tag), rest),
        Some(("counter", rest)) => (Some(Kind::Counter), rest),
        Some(("rate", rest)) => (Some(Kind::Rate), rest),
        _ => (None, text),
    }
}

impl Source {
    /// Parses the source of a signal. `full_text` is the signal as the user wrote it. If the user gave a kind, a plain
    /// name is one of the program's own signals.
    fn parse(text: &str, has_kind: bool, full_text: &str) -> Result<Self, SignalError> {
        let unknown = || SignalError::Unknown(full_text.to_owned());
        let named = |name: &str| if name.is_empty() { Err(unknown()) } else { Ok(name.to_owned()) };
        match text.split_once(':') {
            None => match text {
                "lane" => Ok(Source::Lane),
                "request" => Ok(Source::Request),
                "ipc" => Ok(Source::Ipc),
                "cpc" => Ok(Source::Cpc),
                "jvm" => Ok(Source::Jvm(None)),
                _ if has_kind => Ok(Source::App(named(text)?)),
                _ => Err(unknown()),
            },
            Some(("jvm", name)) => Ok(Source::Jvm(Some(named(name)?))),
            Some(("app", name)) => Ok(Source::App(named(name)?)),
            Some(("perf", event)) => Ok(Source::Perf(named(event)?)),
            Some(("file", file)) => {
                let (path, field) = file.split_once('#').map_or((file, None), |(path, field)| (path, Some(field)));
                Ok(Source::File { path: named(path)?.into(), field: field.map(named).transpose()? })
            }
            Some(("mem", place)) => parse_memory(&named(place)?, full_text),
            Some(_) => Err(unknown()),
        }
    }

    /// Returns the kind of the signal, or an error if the channel cannot have `requested_kind`. `full_text` is the
    /// signal as the user wrote it.
    fn resolve_kind(&self, requested_kind: Option<Kind>, full_text: &str) -> Result<Option<Kind>, SignalError> {
        let wrong =
            |is, wanted| Err(SignalError::Kind { name: full_text.to_owned(), source_name: self.name(), is, wanted });
        match (self, requested_kind) {
            (Source::Memory { .. } | Source::File { .. }, None) => Err(SignalError::NoKind(full_text.to_owned())),
            (Source::Lane | Source::Request, Some(wanted)) if wanted != Kind::Tag => wrong(Kind::Tag, wanted),
            (Source::Ipc | Source::Cpc, Some(wanted)) if wanted != Kind::Rate => wrong(Kind::Rate, wanted),
            (Source::Perf(_), Some(Kind::Tag)) => wrong(Kind::Counter, Kind::Tag),
            (Source::Lane, _) => Ok(Some(Kind::Tag)),
            (Source::Ipc | Source::Cpc, _) => Ok(Some(Kind::Rate)),
            (Source::Perf(_), None) => Ok(Some(Kind::Counter)),
            // Accept any kind: `request` is several signals, and HotSpot and the emitting program give the kinds of
            // their own signals.
            (_, said) => Ok(said),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Source::Lane => "lane",
            Source::Request => "request",
            Source::Ipc => "ipc",
            Source::Cpc => "cpc",
            Source::Jvm(_) => "jvm",
            Source::App(_) => "app",
            Source::Memory { .. } => "mem",
            Source::File { .. } => "file",
            Source::Perf(_) => "perf",
        }
    }
}

/// Parses the part of a signal after `mem:`.
fn parse_memory(text: &str, full_text: &str) -> Result<Source, SignalError> {
    // Names of variables in Go contain `/`, and in C++ and Rust `::`. So only a valid width ends a name at `/`.
    let (text, width) = match text.rsplit_once('/') {
        Some((place, width)) if looks_like_width(width) => (place, Some(parse_width(width, full_text)?)),
        _ => (text, None),
    };
    let (pid, place) = match text.split_once(':') {
        Some((pid, place)) if !place.starts_with(':') => {
            (Some(pid.parse().map_err(|_| SignalError::Unknown(full_text.to_owned()))?), place)
        }
        _ => (None, text),
    };
    let place = parse_memory_location(place).ok_or_else(|| SignalError::Unknown(full_text.to_owned()))?;
    Ok(Source::Memory { pid, place, width })
}

fn looks_like_width(text: &str) -> bool {
    text.strip_prefix('u').is_some_and(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn parse_width(text: &str, full_text: &str) -> Result<Width, SignalError> {
    match text {
        "u8" => Ok(Width::U8),
        "u16" => Ok(Width::U16),
        "u32" => Ok(Width::U32),
        "u64" => Ok(Width::U64),
        _ => Err(SignalError::Width { name: full_text.to_owned(), width: text.to_owned() }),
    }
}

fn parse_memory_location(text: &str) -> Option<MemoryLocation> {
    if text.starts_with("0x") {
        return parse_number(text).map(MemoryLocation::Address);
    }
    let (name, offset) = match text.rsplit_once('+') {
        Some((name, offset)) => (name, parse_number(offset)?),
        None => (text, 0),
    };
    (!name.is_empty()).then(|| MemoryLocation::Symbol { name: name.to_owned(), offset })
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_signal(text: &str) -> (Option<Kind>, Source) {
        let signal: Signal = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(signal.name, text);
        (signal.kind, signal.source)
    }

    fn symbol(name: &str, offset: u64) -> MemoryLocation {
        MemoryLocation::Symbol { name: name.to_owned(), offset }
    }

    #[test]
    fn each_form_of_a_signal_is_parsed() {
        assert_eq!(parse_signal("lane"), (Some(Kind::Tag), Source::Lane));
        assert_eq!(parse_signal("ipc"), (Some(Kind::Rate), Source::Ipc));
        assert_eq!(parse_signal("tag:myapp.phase"), (Some(Kind::Tag), Source::App("myapp.phase".into())));
        assert_eq!(parse_signal("app:myapp.phase"), (None, Source::App("myapp.phase".into())));
        assert_eq!(parse_signal("jvm:sun.rt.safepoints"), (None, Source::Jvm(Some("sun.rt.safepoints".into()))));
        assert_eq!(parse_signal("rate:perf:cs"), (Some(Kind::Rate), Source::Perf("cs".into())));
        let file = Source::File { path: "/proc/1/stat".into(), field: Some("14".into()) };
        assert_eq!(parse_signal("counter:file:/proc/1/stat#14"), (Some(Kind::Counter), file));
    }

    #[test]
    fn memory_signal_is_parsed_with_pid_offset_and_width() {
        let memory = |pid, place, width| Source::Memory { pid, place, width };
        let tag = |text: &str| parse_signal(&format!("tag:mem:{text}")).1;
        assert_eq!(tag("runtime.gcphase"), memory(None, symbol("runtime.gcphase", 0), None));
        assert_eq!(tag("12:server.stat+8/u32"), memory(Some(12), symbol("server.stat", 8), Some(Width::U32)));
        assert_eq!(tag("12:app::hits"), memory(Some(12), symbol("app::hits", 0), None));
        assert_eq!(tag("github.com/some/app.hits"), memory(None, symbol("github.com/some/app.hits", 0), None));
        assert_eq!(tag("0x7f00/u8"), memory(None, MemoryLocation::Address(0x7f00), Some(Width::U8)));
    }

    #[test]
    fn invalid_signal_error_lists_the_valid_forms() {
        let error = |text: &str| text.parse::<Signal>().unwrap_err().to_string();
        for unknown in ["", "phase", "tag:", "jvm:", "mem:", "tag:mem:x:y", "tag:mem:1:", "nonsense:x", "tag:mem:0xzz"]
        {
            assert!(error(unknown).contains("jvm:NAME"), "{unknown}: {}", error(unknown));
        }
        assert!(error("mem:flag").contains("tag:mem:flag"));
        assert!(error("counter:lane").contains("cannot read `counter:lane` as a counter: lane is a tag"));
        assert!(error("tag:perf:cs").contains("perf is a counter"));
        assert!(error("tag:mem:flag/u9").contains("`u9` of `tag:mem:flag/u9` is not a width"));
    }
}
