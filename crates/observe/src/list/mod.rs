//! The signals of a process that can be observed: `sidelane list pid:1234`.

mod files;
mod print;

use serde::Serialize;

use sidelane_channels::app::{EmittedName, EmittedSignals};
use sidelane_channels::hsperf::{Jvm, Units, Value, Variability};
use sidelane_channels::memory::MemoryWord;
use sidelane_channels::signal::MemoryLocation;
use sidelane_channels::symbols::Variable;
use sidelane_channels::{SyscallReader, Width, hsperf, symbols};
use sidelane_diagnostics::machine::has_pmu;
use sidelane_host::procfs::command_name;

/// Number of signals of a group that are shown without a filter: as many as fit on a screen.
const SHOWN: usize = 16;
/// Number of signals of a group that are shown with a filter.
const SHOWN_FILTERED: usize = 200;
/// Number of structures and arrays that are listed without a filter, the largest first.
const STRUCTURES: usize = 6;

/// Signals of one process that can be observed.
#[derive(Clone, Debug, Serialize)]
pub struct Listing {
    /// Process id.
    pub pid: u32,
    /// Name of the process's program.
    pub program: String,
    /// Signals of the process, by their source.
    pub groups: Vec<SignalGroup>,
}

/// Signals of one source, such as the JVM's counters.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SignalGroup {
    /// Title of the group for users.
    pub title: &'static str,
    /// Signals of the group.
    pub signals: Vec<ListedSignal>,
    /// Notes for users: missing signals with the reason, and how to list more.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedSignal {
    /// Signal, as the user has to write it.
    pub signal: String,
    /// Value of the signal now; `None` if it is not a single number or text.
    pub value: Option<Value>,
    /// Unit of the signal's value; `None` if unknown.
    pub unit: Option<&'static str>,
    /// Meaning of the signal, for users.
    pub about: String,
}

impl ListedSignal {
    fn new(signal: impl Into<String>, about: impl Into<String>) -> Self {
        Self { signal: signal.into(), value: None, unit: None, about: about.into() }
    }
}

/// Returns the signals of a process. `filter` selects the JVM's counters and the variables whose name contains it.
pub fn list_process_signals(pid: u32, filter: Option<&str>) -> Listing {
    let program = command_name(pid).unwrap_or_default();
    let groups = vec![
        lane_signals(),
        emitted_signals(pid),
        jvm_signals(pid, filter),
        variable_signals(pid, filter),
        counter_signals(),
        files::file_signals(pid),
    ];
    Listing { pid, program, groups }
}

fn lane_signals() -> SignalGroup {
    let mut group = SignalGroup { title: "Lane and request", ..SignalGroup::default() };
    group.signals.push(ListedSignal::new("lane", "which thread runs on the observed lane"));
    group.signals.push(ListedSignal::new(
        "request",
        "whether the observed lane works on a request, how many wait, how many are done",
    ));
    group
        .signals
        .push(ListedSignal::new("cpc", "cycles per cycle: 1; its distance from 1 is the error of the samples"));
    if has_pmu() {
        group.signals.push(ListedSignal::new("ipc", "instructions per cycle"));
    } else {
        group.notes.push(NO_PMU.replace("{}", "ipc"));
    }
    group
}

const NO_PMU: &str = "{} cannot be read: this machine has no hardware counters (PMU), as many virtual machines";

fn emitted_signals(pid: u32) -> SignalGroup {
    let signals = list_emitted_signals(pid);
    let none = "the program emits none; it can do so with runtime/c/sidelane_signal.h";
    let notes = if signals.is_empty() { vec![none.to_owned()] } else { vec![] };
    SignalGroup { title: "Emitted by the program", signals, notes }
}

/// Returns the signals that the program emits itself.
fn list_emitted_signals(pid: u32) -> Vec<ListedSignal> {
    let listed = |name: EmittedName| {
        let about = if name.tid == 0 { "of the process".to_owned() } else { format!("of thread {}", name.tid) };
        ListedSignal::new(format!("{}:{}", name.kind, name.name), about)
    };
    EmittedSignals::find(pid).iter().flat_map(EmittedSignals::names).map(listed).collect()
}

fn jvm_signals(pid: u32, filter: Option<&str>) -> SignalGroup {
    let mut group = SignalGroup { title: "JVM", ..SignalGroup::default() };
    let jvm = match Jvm::open(pid) {
        Ok(jvm) => jvm,
        Err(error) => {
            group.notes.push(error.to_string());
            return group;
        }
    };
    let usual = |name: &str| hsperf::USUAL.iter().position(|usual| *usual == name).unwrap_or(usize::MAX);
    let mut counters = jvm.counters();
    counters.retain(|counter| match filter {
        Some(filter) => counter.name.contains(filter),
        None => counter.variability != Variability::Constant,
    });
    counters.sort_by_key(|counter| usual(&counter.name));
    let listed = |counter: hsperf::Counter| ListedSignal {
        signal: format!("jvm:{}", counter.name),
        about: counter.kind().to_string(),
        unit: unit_name(counter.units),
        value: Some(counter.value),
    };
    group.add_up_to_limit(counters.into_iter().map(listed).collect(), pid, filter);
    group
}

fn unit_name(units: Units) -> Option<&'static str> {
    match units {
        Units::Bytes => Some("bytes"),
        Units::Ticks => Some("ticks"),
        Units::Events => Some("events"),
        Units::Hertz => Some("Hz"),
        Units::None | Units::Text => None,
    }
}

fn variable_signals(pid: u32, filter: Option<&str>) -> SignalGroup {
    let mut group = SignalGroup { title: "Variables of the executable", ..SignalGroup::default() };
    let mut all = match symbols::variables(pid) {
        Ok(all) => all,
        Err(error) => {
            group.notes.push(error.to_string());
            return group;
        }
    };
    if all.is_empty() {
        group.notes.push("its symbol table names none; install its debug symbols, or name addresses".into());
        return group;
    }
    // Names with these prefixes come from the compiler or the linker, not from the program's source.
    let is_own = |name: &str| !name.starts_with('_') && !name.starts_with("go:");
    all.retain(|variable| filter.map_or(is_own(&variable.name), |filter| variable.name.contains(filter)));
    let (words, mut longer): (Vec<Variable>, Vec<Variable>) =
        all.into_iter().partition(|variable| Width::from_bytes(variable.bytes).is_some());
    longer.sort_by_key(|variable| std::cmp::Reverse(variable.bytes));
    let structures = longer.into_iter().take(filter.map_or(STRUCTURES, |_| SHOWN_FILTERED));
    // Words are sorted by name, so variables of one name are neighbours.
    let same = |index: usize, other: usize| words.get(other).is_some_and(|other| other.name == words[index].name);
    let has_twin = |index: usize| same(index, index + 1) || same(index, index.wrapping_sub(1));
    let listed = words.iter().enumerate().filter_map(|(index, variable)| word_signal(pid, variable, has_twin(index)));
    let mut listed: Vec<ListedSignal> = listed.collect();
    listed.sort_by_key(looks_like_pointer);
    group.add_up_to_limit(listed, pid, filter);
    group.signals.extend(structures.map(|variable| structure_signal(&variable)));
    group
}

/// Returns whether the signal's value is probably a pointer. Other numbers are more informative, so they are listed
/// first.
fn looks_like_pointer(listed: &ListedSignal) -> bool {
    const POINTERS: u64 = 1 << 40;
    matches!(listed.value, Some(Value::Number(value)) if value >= POINTERS)
}

/// Returns the signal for a variable. If several variables have its name, the signal names the variable by its address.
fn word_signal(pid: u32, variable: &Variable, is_name_shared: bool) -> Option<ListedSignal> {
    let (name, width) = (&variable.name, Width::from_bytes(variable.bytes)?);
    let place = MemoryLocation::Address(variable.address);
    let value = MemoryWord::open(pid, &place, Some(width)).ok().and_then(|mut memory| memory.read().ok());
    let (signal, about) = if is_name_shared {
        (format!("tag:mem:{pid}:{place}/{width}"), format!("one of the variables {name}"))
    } else {
        (format!("tag:mem:{name}"), format!("{} bytes", width.bytes()))
    };
    Some(ListedSignal { value: value.map(Value::Number), ..ListedSignal::new(signal, about) })
}

fn structure_signal(variable: &Variable) -> ListedSignal {
    let about = format!("{} bytes; name a field or a width", variable.bytes.unwrap_or(0));
    ListedSignal::new(format!("tag:mem:{}.FIELD", variable.name), about)
}

impl SignalGroup {
    /// Adds the first signals up to the limit, and a note with the number of the remaining signals.
    fn add_up_to_limit(&mut self, mut signals: Vec<ListedSignal>, pid: u32, filter: Option<&str>) {
        let shown = filter.map_or(SHOWN, |_| SHOWN_FILTERED);
        if signals.len() > shown {
            let left_out = signals.len() - shown;
            self.notes.push(format!("{left_out} more; choose some by name: sidelane list pid:{pid} --filter NAME"));
            signals.truncate(shown);
        }
        if let (true, Some(filter)) = (signals.is_empty(), filter) {
            self.notes.push(format!("no name contains `{filter}`"));
        }
        self.signals.append(&mut signals);
    }
}

fn counter_signals() -> SignalGroup {
    const SOFTWARE: [(&str, &str); 4] = [
        ("context-switches", "switches on the observed lane"),
        ("cpu-migrations", "threads that came to the observed lane"),
        ("page-faults", "page faults on the observed lane"),
        ("task-clock", "nanoseconds that the observed lane was not idle"),
    ];
    const HARDWARE: [&str; 4] = ["cycles", "instructions", "cache-misses", "branch-misses"];
    let listed = |(event, about): (&str, &str)| ListedSignal::new(format!("perf:{event}"), about);
    let mut group = SignalGroup { title: "Counters of the kernel and the processor", ..SignalGroup::default() };
    group.signals.extend(SOFTWARE.map(listed));
    if has_pmu() {
        group.signals.extend(HARDWARE.map(|event| listed((event, "a hardware counter of the observed lane"))));
    } else {
        group.notes.push(NO_PMU.replace("{}", &HARDWARE.join(", ")));
    }
    group
}
