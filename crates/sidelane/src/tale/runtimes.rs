//! Runtimes whose tasks the kernel does not see: goroutines, coroutines, virtual threads. A request waits there without
//! a thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};

use object::Endianness;
use object::Object as _;
use object::read::ReadCache;
use object::read::elf::ElfFile64;
use sidelane_host::procfs::{command_name, text_of, threads};

use crate::note::Note;

/// A runtime with tasks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Runtime {
    Go,
    Tokio,
    VirtualThreads,
    Asyncio,
    Node,
}

impl Runtime {
    /// The runtime of a process, if it has one that is known.
    fn of(pid: u32) -> Option<Self> {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = program.file_name()?.to_str()?;
        let name_of = |tid| text_of(&format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
        let has_thread = |prefix: &str| threads(pid).into_iter().any(|tid| name_of(tid).starts_with(prefix));
        match name {
            "node" | "nodejs" => Some(Self::Node),
            "java" => has_thread("VirtualThread-").then_some(Self::VirtualThreads),
            _ if name.starts_with("python") => has_event_loop(pid).then_some(Self::Asyncio),
            _ if is_of_go(pid) => Some(Self::Go),
            _ => ["tokio-runtime-w", "tokio-rt-worker"].into_iter().any(has_thread).then_some(Self::Tokio),
        }
    }

    /// Whether it moves tasks from thread to thread.
    fn has_own_scheduler(self) -> bool {
        matches!(self, Self::Go | Self::Tokio | Self::VirtualThreads)
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Go => ("Go", "goroutines"),
            Self::Tokio => ("tokio", "tasks"),
            Self::VirtualThreads => ("Java's virtual threads", "virtual threads"),
            Self::Asyncio => ("Python with an event loop", "coroutines or callbacks"),
            Self::Node => ("Node.js", "callbacks and promises"),
        }
    }
}

/// Whether Go's linker has made the program, as a section of it says.
fn is_of_go(pid: u32) -> bool {
    let Ok(file) = File::open(format!("/proc/{pid}/exe")) else { return false };
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache);
    elf.is_ok_and(|elf| elf.section_by_name(".go.buildinfo").is_some())
}

/// Whether a process waits for events with epoll.
fn has_event_loop(pid: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| link.as_os_str() == "anon_inode:[eventpoll]")
}

/// The runtimes of a service's processes.
#[derive(Clone, Debug, Default)]
pub struct Runtimes {
    /// By process; none where no runtime is known.
    known: BTreeMap<u32, Option<Runtime>>,
    names: BTreeSet<(Runtime, String)>,
}

impl Runtimes {
    /// Looks at processes that were not looked at before.
    pub fn look_at(&mut self, pids: &BTreeSet<u32>) {
        for pid in pids {
            if self.known.contains_key(pid) {
                continue;
            }
            let runtime = Runtime::of(*pid);
            self.known.insert(*pid, runtime);
            self.names.extend(runtime.map(|runtime| (runtime, command_name(*pid).unwrap_or_default())));
        }
        self.known.retain(|pid, _| pids.contains(pid));
    }

    /// Processes whose runtime moves tasks from thread to thread.
    pub fn schedulers(&self) -> impl Iterator<Item = u32> {
        let is_one = |runtime: &Option<Runtime>| runtime.is_some_and(Runtime::has_own_scheduler);
        self.known.iter().filter(move |(_, runtime)| is_one(runtime)).map(|(pid, _)| *pid)
    }

    /// What cannot be told of each.
    pub fn notes(&self) -> impl Iterator<Item = Note> {
        self.names.iter().map(|(runtime, program)| {
            let (runtime, tasks) = runtime.words();
            Note::TasksUnseen { program: program.clone(), runtime, tasks }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_such_a_runtime_has_none() {
        let me = std::process::id();
        let mut runtimes = Runtimes::default();
        runtimes.look_at(&BTreeSet::from([me, u32::MAX]));
        assert_eq!(runtimes.known, BTreeMap::from([(me, None), (u32::MAX, None)]));
        assert_eq!((runtimes.schedulers().count(), runtimes.notes().count()), (0, 0));
    }

    #[test]
    fn the_workers_of_tokio_are_known_by_their_names() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = std::sync::mpsc::channel();
        let worker = std::thread::Builder::new().name("tokio-rt-worker".to_owned());
        let worker = worker.spawn(move || {
            begin.send(()).unwrap();
            stopped.recv().unwrap_err();
        });
        begun.recv().unwrap();
        let mut runtimes = Runtimes::default();
        let me = std::process::id();
        runtimes.look_at(&BTreeSet::from([me]));
        assert_eq!(runtimes.schedulers().collect::<Vec<_>>(), [me]);
        let note = runtimes.notes().map(|note| note.to_string()).collect::<String>();
        assert!(note.contains("tokio") && note.contains("tasks"), "{note}");
        drop(stop);
        worker.unwrap().join().unwrap();
    }
}
