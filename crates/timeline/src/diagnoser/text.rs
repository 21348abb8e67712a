//! Evidence for causes of slow requests, as text.

use crate::builder::SOFTIRQ;
use crate::cause::{BY_OWN, BY_TCP, Cause};
use crate::diagnoser::digest::Clue;
use crate::diagnoser::waits;
use crate::record::{Task, pause};
use crate::wait::Peer;

/// A source of names of threads, processes and their objects, which records do not have.
pub trait NameSource {
    /// Returns the name of a thread or process.
    fn name(&self, task: Task) -> Option<String>;

    /// Returns the process on this machine that listens at this address.
    fn process_at(&self, _peer: Peer) -> Option<u32> {
        None
    }

    /// Returns the path of the Unix socket at which a process listens.
    fn path_at(&self, _peer: Peer) -> Option<String> {
        None
    }

    /// Returns the process that reads from the pipe with this inode.
    fn reader_of(&self, _pipe: u32) -> Option<u32> {
        None
    }

    /// Returns the path of the file with this inode.
    fn path_of(&self, _inode: u32) -> Option<String> {
        None
    }
}

impl<F: Fn(Task) -> Option<String>> NameSource for F {
    fn name(&self, task: Task) -> Option<String> {
        self(task)
    }
}

/// Reference to a source of names of threads, processes and objects.
pub type Names<'a> = &'a dyn NameSource;

/// Returns a time as text, in a unit that suits it.
pub fn format_time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

fn format_bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

pub(super) fn describe_task(task: Task, names: Names) -> String {
    let name = names.name(task).map(|name| format!("{name}, ")).unwrap_or_default();
    match task {
        Task { tid: 0, pid: 0 } => "an unknown thread".to_owned(),
        Task { tid: 0, pid } => format!("{name}process {pid}"),
        Task { tid, pid: 0 } => format!("{name}thread {tid}"),
        Task { tid, pid } => format!("{name}thread {tid} of process {pid}"),
    }
}

/// Returns the evidence of a clue as text, without its times.
pub fn describe_clue(clue: &Clue, names: Names) -> String {
    if let Some(said) = waits::describe_wait(clue, names) {
        return said;
    }
    let by = |verb: &str| format!("{} {verb}", describe_task(clue.by, names));
    let is_known = clue.by != Task::default();
    match clue.cause {
        Cause::OnCpu => "its own threads worked on it".to_owned(),
        Cause::NetworkReceive => "its data came to the socket, and a thread was woken".to_owned(),
        Cause::ServiceQueue => by("worked on other requests"),
        Cause::RunQueue if is_known && clue.detail == BY_OWN => by("(the service itself) had the CPU"),
        Cause::RunQueue if is_known => by("had the CPU"),
        Cause::RunQueue => "its thread was woken and did not run yet".to_owned(),
        Cause::Tracer => by("had the CPU"),
        Cause::Migration => "its thread was moved to an idle CPU".to_owned(),
        Cause::IdleExit => format!("the CPU left idle state {}", clue.detail),
        Cause::Interrupt => describe_interrupt(clue.detail as u32),
        Cause::Stolen => "the hypervisor's steal clock went on".to_owned(),
        Cause::Sibling => format!("batch ran on CPU {} of the same core", clue.detail),
        Cause::PageFault => "the kernel filled pages in".to_owned(),
        Cause::Collection | Cause::Safepoint => describe_pause(clue.detail as u32).to_owned(),
        Cause::Lock if clue.detail != 0 => by(&format!("held the lock at {:#x}", clue.detail)),
        Cause::Lock => by("held a lock"),
        Cause::HandOver => by("woke it"),
        Cause::Timer => "its thread slept until a time that it had set".to_owned(),
        Cause::Disk => format!("disk {}:{} answered", clue.detail >> 20, clue.detail & 0xf_ffff),
        Cause::Reclaim => "its thread freed memory to get some".to_owned(),
        Cause::Throttled => "the group had used up its CPU quota".to_owned(),
        Cause::Frozen if is_known => by("let it go on"),
        Cause::Frozen => "the group was frozen".to_owned(),
        Cause::SendBuffer if clue.detail > 1 => {
            format!("up to {} of the response waited to be sent", format_bytes(clue.detail))
        }
        Cause::SendBuffer => "the response waited to be sent".to_owned(),
        Cause::Nagle => "less than a segment waited until all data before it was acknowledged".to_owned(),
        Cause::SlowReader => {
            format!("the client's receive window was full, and up to {} waited", format_bytes(clue.detail))
        }
        Cause::CongestionWindow => {
            format!("the congestion window was in flight, and up to {} waited", format_bytes(clue.detail))
        }
        Cause::Pacing if clue.detail & BY_TCP != 0 => {
            format!(
                "TCP sent at a set rate (BBR, SO_MAX_PACING_RATE), and up to {} waited",
                format_bytes(clue.detail & !BY_TCP)
            )
        }
        Cause::Pacing => format!("up to {} waited behind TCP for the network device", format_bytes(clue.detail)),
        Cause::SendSpace => "all data that fits into the send buffer was in flight".to_owned(),
        Cause::Retransmission => "a segment of the response was sent again".to_owned(),
        Cause::Downstream if clue.detail != 0 => format!("the service at port {} had not answered", clue.detail),
        Cause::Downstream => "another service had not answered".to_owned(),
        Cause::Connect => "the connection was not there yet".to_owned(),
        Cause::NoAnswer => "another service did not answer in time".to_owned(),
        Cause::Full => by("had not read"),
        Cause::Inside => "it waited inside the service, without a thread".to_owned(),
        Cause::NotExplained => "no record shows why".to_owned(),
    }
}

fn describe_interrupt(detail: u32) -> String {
    const SOFTIRQS: [&str; 10] =
        ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
    if detail & SOFTIRQ == 0 {
        return format!("interrupt {detail} had the CPU");
    }
    let vector = detail & !SOFTIRQ;
    let name = SOFTIRQS.get(vector as usize).map_or_else(|| vector.to_string(), |name| (*name).to_owned());
    format!("softirq {name} had the CPU")
}

fn describe_pause(kind: u32) -> &'static str {
    match kind {
        pause::YOUNG_COLLECTION => "the runtime collected young objects",
        pause::FULL_COLLECTION => "the runtime collected the whole heap",
        pause::SAFEPOINT => "the runtime stopped all threads",
        pause::CLASS_LOADING => "the runtime loaded classes",
        _ => "the runtime paused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clue_names_process_lock_softirq_disk_and_pause() {
        let names = |task: Task| (task.pid == 900).then(|| "stress".to_owned());
        let clue = |cause, by, detail| Clue { cause, by, detail, wait: None, sum_ns: 0, longest_ns: 0 };
        let hog = clue(Cause::RunQueue, Task { tid: 0, pid: 900 }, 0);
        assert_eq!(describe_clue(&hog, &names), "stress, process 900 had the CPU");
        let lock = clue(Cause::Lock, Task { tid: 6, pid: 100 }, 0xbeef);
        assert_eq!(describe_clue(&lock, &names), "thread 6 of process 100 held the lock at 0xbeef");
        let softirq = clue(Cause::Interrupt, Task::default(), u64::from(SOFTIRQ | 3));
        assert_eq!(describe_clue(&softirq, &names), "softirq NET_RX had the CPU");
        let disk = clue(Cause::Disk, Task::default(), 8 << 20 | 1);
        assert_eq!(describe_clue(&disk, &names), "disk 8:1 answered");
        for (kind, said) in [
            (pause::YOUNG_COLLECTION, "the runtime collected young objects"),
            (pause::FULL_COLLECTION, "the runtime collected the whole heap"),
            (pause::SAFEPOINT, "the runtime stopped all threads"),
            (pause::CLASS_LOADING, "the runtime loaded classes"),
            (99, "the runtime paused"),
        ] {
            assert_eq!(describe_clue(&clue(Cause::Safepoint, Task::default(), kind.into()), &names), said);
        }
    }

    #[test]
    fn size_of_a_held_response_has_a_suitable_unit() {
        let said = |cause, detail| {
            describe_clue(
                &Clue { cause, by: Task::default(), detail, wait: None, sum_ns: 0, longest_ns: 0 },
                &|_: Task| None,
            )
        };
        assert_eq!(said(Cause::SendBuffer, 1), "the response waited to be sent");
        assert_eq!(said(Cause::SendBuffer, 14_336), "up to 14.3 kB of the response waited to be sent");
        assert!(said(Cause::SlowReader, 4_137_003).ends_with("up to 4.1 MB waited"));
        assert!(said(Cause::Pacing, 14_336).contains("up to 14.3 kB waited"));
        let paced = said(Cause::Pacing, BY_TCP | 14_336);
        assert!(paced.starts_with("TCP sent at a set rate") && paced.contains("up to 14.3 kB waited"), "{paced}");
    }

    #[test]
    fn times_have_suitable_units() {
        assert_eq!(
            [format_time(999), format_time(1_500), format_time(40_300_000), format_time(2_000_000_000)],
            ["999 ns", "1.5 µs", "40.3 ms", "2.00 s"]
        );
    }
}
