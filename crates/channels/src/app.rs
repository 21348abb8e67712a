//! Signals that programs emit themselves, through `runtime/c/sidelane_signal.h` or other code that writes the format of
//! `abi/signal.h`.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use sidelane_formats::{
    EmittedKind, EmittedSignal, SIGNAL_NAME_BYTES, SIGNAL_NAMES, SIGNALS, SIGNALS_MAGIC, SIGNALS_NAME, SIGNALS_VERSION,
    SignalsHead,
};

use crate::signal::Kind;
use crate::{Channel, Meaning, Reader, Width, Word};
use sidelane_host::procfs::pid_in_own_namespace;
use sidelane_host::sealed;
use sidelane_host::shared_mapping::SharedMapping;

const SIGNALS_OFFSET: usize = size_of::<SignalsHead>();
const NAMES_OFFSET: usize = SIGNALS_OFFSET + SIGNALS * size_of::<EmittedSignal>();
const FILE_BYTES: usize = NAMES_OFFSET + SIGNAL_NAMES;

/// Signals of one part of a process, such as a JVM or a native library, in one shared file.
#[derive(Clone)]
pub struct EmittedSignals {
    file: Arc<SharedMapping<AtomicU8>>,
}

/// Identity of a signal that a process emits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmittedName {
    /// Name of the signal.
    pub name: String,
    /// Kind of the signal: tag, counter or rate.
    pub kind: Kind,
    /// Thread of the signal; 0 for the whole process.
    pub tid: u32,
}

impl EmittedSignals {
    /// Returns the signals of the process: one `EmittedSignals` for each part of the program that emits signals, such
    /// as a JVM and a native library.
    pub fn find(pid: u32) -> Vec<Self> {
        // The file names the process by the id that the process sees. In a container this id differs from `pid`.
        let own = pid_in_own_namespace(pid).unwrap_or(pid);
        let files =
            sealed::map_sealed_files(pid, SIGNALS_NAME, FILE_BYTES).filter(|file| is_signals_file_of(file, own));
        files.map(|file| Self { file: Arc::new(file) }).collect()
    }

    /// Returns the name, kind and thread of each signal.
    pub fn names(&self) -> Vec<EmittedName> {
        self.signals_with_index().map(|(name, _)| name).collect()
    }

    /// Returns the channels of the signal with this name: one, or one for each thread that emits it.
    pub fn channels(&self, name: &str) -> Vec<Channel> {
        let found: Vec<_> = self.signals_with_index().filter(|(emitted, _)| emitted.name == name).collect();
        let many = found.len() > 1;
        found.into_iter().map(|(emitted, place)| self.channel(&emitted, place, many)).collect()
    }

    fn channel(&self, emitted: &EmittedName, index: usize, adds_tid: bool) -> Channel {
        let thread = if adds_tid { format!("@{}", emitted.tid) } else { String::new() };
        let value = &self.file.items_at::<EmittedSignal>(SIGNALS_OFFSET, SIGNALS)[index].value;
        // SAFETY: the word is aligned and in the mapping, which `file` keeps. A sealed file cannot shrink.
        let word = unsafe { Word::new(NonNull::from(value).cast(), Width::U64, Arc::clone(&self.file) as _) };
        Channel {
            name: format!("{}{thread}", emitted.name),
            kind: emitted.kind,
            reader: Reader::Word(word),
            meaning: (emitted.kind == Kind::Tag).then(|| self.tag_meaning(&emitted.name)),
            notes: Vec::new(),
        }
    }

    /// Returns a function that names the tag's values. Names are read on demand, since a program may name further
    /// values while it runs.
    fn tag_meaning(&self, tag: &str) -> Meaning {
        let (emitted, tag) = (self.clone(), tag.to_owned());
        let names = std::sync::OnceLock::<HashMap<u64, String>>::new();
        Arc::new(move |value| names.get_or_init(|| emitted.value_names(&tag)).get(&value).cloned())
    }

    fn value_names(&self, tag: &str) -> HashMap<u64, String> {
        let end = self.head().names_end.load(Ordering::Acquire).min(SIGNAL_NAMES as u64) as usize;
        let bytes = self.file.items_at::<AtomicU8>(NAMES_OFFSET, end);
        let text: Vec<u8> = bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        parse_names(&String::from_utf8_lossy(&text), tag)
    }

    fn head(&self) -> &SignalsHead {
        &self.file.items_at::<SignalsHead>(0, 1)[0]
    }

    fn signals_with_index(&self) -> impl Iterator<Item = (EmittedName, usize)> {
        let signals = self.file.items_at::<EmittedSignal>(SIGNALS_OFFSET, SIGNALS);
        signals.iter().enumerate().filter_map(|(place, signal)| Some((emitted_name(signal)?, place)))
    }
}

fn is_signals_file_of(file: &SharedMapping<AtomicU8>, pid: u32) -> bool {
    let head = &file.items_at::<SignalsHead>(0, 1)[0];
    let sizes = [&head.version, &head.pid, &head.signals, &head.names];
    let wanted = [SIGNALS_VERSION, pid, SIGNALS as u32, SIGNAL_NAMES as u32];
    head.magic.load(Ordering::Acquire) == SIGNALS_MAGIC && sizes.map(|size| size.load(Ordering::Relaxed)) == wanted
}

fn emitted_name(signal: &EmittedSignal) -> Option<EmittedName> {
    let kind = match signal.emitted_kind()? {
        EmittedKind::Tag => Kind::Tag,
        EmittedKind::Counter => Kind::Counter,
    };
    let mut bytes = [0; SIGNAL_NAME_BYTES];
    let name = String::from_utf8_lossy(signal.name_bytes(&mut bytes)).into_owned();
    Some(EmittedName { name, kind, tid: signal.tid.load(Ordering::Relaxed) })
}

/// Parses lines of signal, value and name, separated by tabs. A later line for the same value replaces an earlier one;
/// malformed lines are skipped.
fn parse_names(text: &str, tag: &str) -> HashMap<u64, String> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, '\t');
        let (signal, value, name) = (parts.next()?, parts.next()?, parts.next()?);
        (signal == tag).then_some((value.parse().ok()?, name.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_names_are_parsed_line_by_line() {
        let names = parse_names("phase\t1\tparse\nother\t1\tx\nphase\ty\tz\nphase\t2\tflush\tit\n\nphase", "phase");
        assert_eq!(names, HashMap::from([(1, "parse".to_owned()), (2, "flush\tit".to_owned())]));
    }

    #[test]
    fn fuzzed_value_names_are_parsed_or_skipped() {
        sidelane_testing::fuzz("value-names", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            assert!(parse_names(&text, "phase").len() <= text.lines().count());
        });
    }
}
