//! Language runtimes whose tasks the kernel does not see: goroutines, coroutines, virtual threads. A request waits in
//! such a task without a thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;

use object::Endianness;
use object::Object as _;
use object::read::ReadCache;
use object::read::elf::ElfFile64;
use sidelane_host::procfs::{command_name, text_of, threads};
use sidelane_timeline::record::{Kind, Record, Task, Tasks};

use crate::note::TraceNote;

/// A language runtime that runs tasks of its own on its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Runtime {
    Go,
    Tokio,
    VirtualThreads,
    Asyncio,
    Greenlets,
    Node,
}

impl Runtime {
    /// Returns the language runtime of a process; `None` if it has no known runtime.
    fn detect(pid: u32) -> Option<Self> {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = program.file_name()?.to_str()?;
        let name_of = |tid| text_of(&format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
        let has_thread = |prefix: &str| threads(pid).into_iter().any(|tid| name_of(tid).starts_with(prefix));
        match name {
            "node" | "nodejs" => Some(Self::Node),
            "java" => has_thread("VirtualThread-").then_some(Self::VirtualThreads),
            _ if name.starts_with("python") => Self::detect_python(pid),
            _ if is_go_program(pid) => Some(Self::Go),
            _ => ["tokio-runtime-w", "tokio-rt-worker"].into_iter().any(has_thread).then_some(Self::Tokio),
        }
    }

    /// Returns the runtime of a Python program that waits with epoll. The program has coroutines if it has loaded a
    /// module for them. Otherwise it waits for its clients in a loop, and has no tasks besides its threads.
    fn detect_python(pid: u32) -> Option<Self> {
        let modules = text_of(&format!("/proc/{pid}/maps")).unwrap_or_default();
        let has = |module: &str| {
            modules.lines().any(|line| line.rsplit('/').next().is_some_and(|file| file.starts_with(module)))
        };
        let runtime = match (has("_greenlet."), has("_asyncio.")) {
            (true, _) => Self::Greenlets,
            (false, true) => Self::Asyncio,
            (false, false) => return None,
        };
        has_epoll(pid).then_some(runtime)
    }

    /// Returns the threads on which this runtime runs its tasks.
    fn tasks(self) -> Tasks {
        match self {
            Self::Go | Self::Tokio | Self::VirtualThreads => Tasks::Move,
            Self::Asyncio | Self::Greenlets | Self::Node => Tasks::Stay,
        }
    }

    fn runtime_and_task_names(self) -> (&'static str, &'static str) {
        match self {
            Self::Go => ("Go", "goroutines"),
            Self::Tokio => ("tokio", "tasks"),
            Self::VirtualThreads => ("Java's virtual threads", "virtual threads"),
            Self::Asyncio => ("Python's asyncio", "coroutines and callbacks"),
            Self::Greenlets => ("Python's greenlets", "greenlets"),
            Self::Node => ("Node.js", "callbacks and promises"),
        }
    }
}

/// Returns whether Go's linker has made the program, which has a section with Go's build data.
fn is_go_program(pid: u32) -> bool {
    let Ok(file) = File::open(format!("/proc/{pid}/exe")) else { return false };
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache);
    elf.is_ok_and(|elf| elf.section_by_name(".go.buildinfo").is_some())
}

/// Returns whether a process has an epoll descriptor.
fn has_epoll(pid: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| link.as_os_str() == "anon_inode:[eventpoll]")
}

/// Number of times that a process without a known runtime is examined: it may be about to start a runtime.
const LOOKS: u32 = 20;

/// Device and inode of a process's program. They change if the process executes another program.
type Program = (u64, u64);

/// What is known about the runtime of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    program: Option<Program>,
    runtime: Option<Runtime>,
    looks: u32,
}

/// Runtimes of a service's processes.
#[derive(Clone, Debug, Default)]
pub struct Runtimes {
    known: BTreeMap<u32, Process>,
    names: BTreeSet<(Runtime, String)>,
    /// Processes whose runtime was found but not yet reported, by process id.
    found: BTreeMap<u32, Runtime>,
}

impl Runtimes {
    /// Examines processes without a known runtime: they may have started a runtime, or execute another program now.
    pub fn examine_processes(&mut self, pids: &BTreeSet<u32>) {
        for pid in pids {
            let program = program_of(*pid);
            let new = Process { program, runtime: None, looks: 0 };
            let process = self.known.entry(*pid).or_insert(new);
            if process.program != program {
                *process = new;
            }
            if process.runtime.is_some() || process.looks == LOOKS {
                continue;
            }
            process.looks += 1;
            process.runtime = Runtime::detect(*pid);
            if let Some(runtime) = process.runtime {
                self.found.insert(*pid, runtime);
                self.names.insert((runtime, command_name(*pid).unwrap_or_default()));
            }
        }
        self.known.retain(|pid, _| pids.contains(pid));
    }

    /// Inserts the records of newly found runtimes before `records`, which are in the order of time.
    pub fn insert_records(&mut self, records: &mut Vec<Record>) {
        let Some(first) = records.first() else { return };
        let at_ns = first.at_ns;
        let found = std::mem::take(&mut self.found);
        records.splice(0..0, found.into_iter().map(|(pid, runtime)| runtime_record(pid, runtime, at_ns)));
    }

    /// Returns notes on what a trace does not see of each runtime.
    pub fn notes(&self) -> impl Iterator<Item = TraceNote> {
        self.names.iter().map(|(runtime, program)| {
            let (runtime, tasks) = runtime.runtime_and_task_names();
            TraceNote::TasksUnseen { program: program.clone(), runtime, tasks }
        })
    }
}

fn program_of(pid: u32) -> Option<Program> {
    fs::metadata(format!("/proc/{pid}/exe")).ok().map(|file| (file.dev(), file.ino()))
}

/// Returns the record that reports a runtime. It belongs to no CPU, and so has no sequence number.
fn runtime_record(pid: u32, runtime: Runtime, at_ns: u64) -> Record {
    Record {
        at_ns,
        kind: Kind::Tasks,
        seq: 0,
        task: Task { tid: pid, pid },
        cpu: 0,
        detail: runtime.tasks() as u32,
        other: Task::default(),
        socket: 0,
        request: 0,
        value: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// Returns the reported kind of tasks of each process.
    fn reported_tasks(runtimes: &mut Runtimes) -> Vec<(u32, u32)> {
        let mut records = vec![runtime_record(1, Runtime::Go, 7)];
        runtimes.insert_records(&mut records);
        assert_eq!(records.pop().map(|last| last.at_ns), Some(7));
        records.iter().map(|record| (record.task.pid, record.detail)).collect()
    }

    #[test]
    fn process_without_a_known_runtime_has_none() {
        // The test needs a process of its own: another test starts threads of tokio in the test program.
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut runtimes = Runtimes::default();
        (0..2 * LOOKS).for_each(|_| runtimes.examine_processes(&BTreeSet::from([child.id(), u32::MAX])));
        child.kill().unwrap();
        child.wait().unwrap();
        let looks: Vec<_> = runtimes.known.values().map(|process| (process.runtime, process.looks)).collect();
        assert_eq!(looks, [(None, LOOKS); 2]);
        assert_eq!((reported_tasks(&mut runtimes).len(), runtimes.notes().count()), (0, 0));
    }

    #[test]
    fn runtime_that_starts_after_the_first_look_is_found() {
        let (me, mut runtimes) = (std::process::id(), Runtimes::default());
        runtimes.examine_processes(&BTreeSet::from([me]));
        assert_eq!(reported_tasks(&mut runtimes), []);
        let ((stop, stopped), (begin, begun)) = (channel::<()>(), channel());
        let worker = thread::Builder::new().name("tokio-rt-worker".to_owned());
        let worker = worker.spawn(move || {
            begin.send(()).unwrap();
            stopped.recv().unwrap_err();
        });
        begun.recv().unwrap();
        (0..2).for_each(|_| runtimes.examine_processes(&BTreeSet::from([me])));
        assert_eq!(
            (reported_tasks(&mut runtimes), reported_tasks(&mut runtimes)),
            (vec![(me, Tasks::Move as u32)], vec![])
        );
        let note = runtimes.notes().map(|note| note.to_string()).collect::<String>();
        assert!(note.contains("tokio") && note.contains("tasks"), "{note}");
        drop(stop);
        worker.unwrap().join().unwrap();
    }

    /// Returns the runtime of a Python program, after the program has printed a line. The program then reads its input.
    fn runtime_of_python(program: &str) -> Option<Option<Runtime>> {
        let program = format!("{program}\nprint(flush=True); input()");
        let python =
            Command::new("python3").args(["-c", &program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut python) = python else {
            sidelane_testing::skip("needs python3");
            return None;
        };
        BufReader::new(python.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let runtime = Runtime::detect(python.id());
        python.kill().unwrap();
        python.wait().unwrap();
        Some(runtime)
    }

    #[test]
    fn python_with_asyncio_and_epoll_has_coroutines() {
        let epoll = "import select; events = select.epoll()";
        for (program, runtime) in [
            (epoll.to_owned(), None),
            ("import asyncio".to_owned(), None),
            (format!("import asyncio; {epoll}"), Some(Runtime::Asyncio)),
        ] {
            let Some(found) = runtime_of_python(&program) else { return };
            assert_eq!(found, runtime, "{program}");
        }
    }

    #[test]
    fn process_is_examined_again_after_an_exec() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut runtimes = Runtimes::default();
        let pids = BTreeSet::from([child.id()]);
        (0..LOOKS).for_each(|_| runtimes.examine_processes(&pids));
        // Simulates that the process executed `sleep` only after the last examination.
        runtimes.known.values_mut().for_each(|process| process.program = None);
        runtimes.examine_processes(&pids);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(runtimes.known.values().map(|process| process.looks).collect::<Vec<_>>(), [1]);
    }
}
