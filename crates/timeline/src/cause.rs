//! Causes of a request's time: a closed list. Each cause has a name, the evidence that it needs, and advice.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::{Kind, Kinds};

/// Cause of a span in a request's timeline: a kind of wait, or work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Work of a service's thread on the request.
    OnCpu,
    /// Time from the request's first TCP segment until all its data was at the socket.
    NetworkReceive,
    /// Wait at the socket or in a queue of the service, while all threads that could receive the request worked on
    /// other requests.
    ServiceQueue,
    /// Wait of a ready thread for a CPU that another thread had.
    RunQueue,
    /// Wait of a ready thread for a CPU that the tracer itself had. It is no cause of the service's: the diagnosis
    /// reports it separately.
    Tracer,
    /// Move of the thread to another CPU, until it runs there.
    Migration,
    /// Exit of the CPU from an idle state.
    IdleExit,
    /// Time in which an interrupt or softirq had the CPU.
    Interrupt,
    /// Time in which the hypervisor had the CPU (steal time).
    Stolen,
    /// Work on the request while batch ran on a lane of the same core. The cost of batch is the excess over the normal
    /// time.
    Sibling,
    /// Page fault: the kernel provided a page of memory.
    PageFault,
    /// Stop of all the service's threads by the runtime, to collect garbage.
    Collection,
    /// Stop of all the service's threads by the runtime for another reason than garbage collection: a safepoint, class
    /// loading.
    Safepoint,
    /// Wait for a lock, in the kernel or in user space, that another thread held.
    Lock,
    /// Sleep of the thread until another thread woke it, if a lock is not known to be the reason.
    HandOver,
    /// Sleep of the thread until a time that the program had set.
    Timer,
    /// Wait for a disk.
    Disk,
    /// Reclaim: the kernel freed memory before the thread could continue.
    Reclaim,
    /// Throttling: the thread's cgroup had used up its CPU quota.
    Throttled,
    /// Freeze: the cgroup was frozen, or the process was stopped.
    Frozen,
    /// Wait of the response in the send buffer, for a reason that the socket's state does not show.
    SendBuffer,
    /// Wait of the response for an acknowledgement that the peer delayed, by Nagle's algorithm.
    Nagle,
    /// Wait for a client that reads slowly: its receive window was full.
    SlowReader,
    /// Wait of the response because the congestion window was full.
    CongestionWindow,
    /// Wait of the response in a queueing discipline, or because TCP paced it.
    Pacing,
    /// Wait for room in the send buffer: all its data was sent, and the acknowledgements had not come.
    SendSpace,
    /// Retransmission: a segment was lost and sent again.
    Retransmission,
    /// Wait for the answer of another service.
    Downstream,
    /// Wait for a connection to another service.
    Connect,
    /// Wait for another service that did not answer, or was not reached, within the program's timeout.
    NoAnswer,
    /// Wait to write to a full pipe or socket, until another process read from it.
    Full,
    /// Wait for events by the event loop that had the request. The request waited for something inside the service that
    /// the kernel does not see.
    Inside,
    /// Time that no record explains.
    NotExplained,
}

/// Detail of a span's wait for a CPU if the service's own thread had that CPU.
pub const BY_OWN: u64 = 1;

/// Flag in the detail of [`Cause::Pacing`], beside the bytes: TCP itself sent at a set rate.
pub const BY_TCP: u64 = 1 << 40;

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Cause; 33] = [
        Cause::OnCpu,
        Cause::NetworkReceive,
        Cause::ServiceQueue,
        Cause::RunQueue,
        Cause::Tracer,
        Cause::Migration,
        Cause::IdleExit,
        Cause::Interrupt,
        Cause::Stolen,
        Cause::Sibling,
        Cause::PageFault,
        Cause::Collection,
        Cause::Safepoint,
        Cause::Lock,
        Cause::HandOver,
        Cause::Timer,
        Cause::Disk,
        Cause::Reclaim,
        Cause::Throttled,
        Cause::Frozen,
        Cause::SendBuffer,
        Cause::Nagle,
        Cause::SlowReader,
        Cause::CongestionWindow,
        Cause::Pacing,
        Cause::SendSpace,
        Cause::Retransmission,
        Cause::Downstream,
        Cause::Connect,
        Cause::NoAnswer,
        Cause::Full,
        Cause::Inside,
        Cause::NotExplained,
    ];

    /// Returns the kinds of records without which this cause cannot be found.
    pub fn required_kinds(self) -> &'static [Kind] {
        match self {
            Cause::NetworkReceive => &[Kind::DataReady],
            Cause::ServiceQueue => &[Kind::DataReady, Kind::RequestStarted],
            Cause::OnCpu | Cause::RunQueue | Cause::Tracer => &[Kind::Switched],
            Cause::Migration => &[Kind::Migrated, Kind::Switched],
            Cause::IdleExit => &[Kind::IdleLeft, Kind::Switched],
            Cause::Interrupt => &[Kind::Interrupt, Kind::Softirq],
            Cause::Stolen => &[Kind::Stolen],
            Cause::Sibling => &[Kind::Overlap],
            Cause::PageFault => &[Kind::PageFault],
            Cause::Collection | Cause::Safepoint => &[Kind::PauseBegan, Kind::PauseEnded],
            Cause::Lock => &[Kind::Switched, Kind::Woken, Kind::SleepsIn],
            Cause::HandOver => &[Kind::Switched, Kind::Woken],
            Cause::Timer => &[Kind::Switched, Kind::Woken, Kind::SleepsIn],
            Cause::Disk => &[Kind::Switched, Kind::DiskCompleted],
            Cause::Reclaim => &[Kind::ReclaimBegan, Kind::ReclaimEnded],
            Cause::Throttled => &[Kind::Throttled],
            Cause::Frozen => &[Kind::Frozen],
            Cause::SendBuffer | Cause::Pacing => &[Kind::Sent, Kind::Transmitted],
            Cause::Nagle | Cause::SlowReader | Cause::CongestionWindow | Cause::SendSpace => {
                &[Kind::Sent, Kind::Transmitted, Kind::Acknowledged]
            }
            Cause::Retransmission => &[Kind::Retransmitted],
            Cause::Downstream => &[Kind::Sent, Kind::Woken, Kind::Received],
            Cause::Connect => &[Kind::Connects, Kind::Woken],
            Cause::NoAnswer => &[Kind::Sent, Kind::Woken, Kind::SleepsIn],
            Cause::Full | Cause::Inside => &[Kind::Switched, Kind::Woken, Kind::SleepsIn],
            Cause::NotExplained => &[],
        }
    }

    /// Returns the name of this cause in text for users.
    pub fn name(self) -> &'static str {
        match self {
            Cause::OnCpu => "work on it",
            Cause::NetworkReceive => "network, receiving",
            Cause::ServiceQueue => "queue in the service",
            Cause::RunQueue => "wait for a CPU",
            Cause::Tracer => "wait for a CPU that sidelane used",
            Cause::Migration => "move to another CPU",
            Cause::IdleExit => "wake-up of an idle CPU",
            Cause::Interrupt => "interrupt",
            Cause::Stolen => "stolen by the hypervisor",
            Cause::Sibling => "work beside batch",
            Cause::PageFault => "page fault",
            Cause::Collection => "garbage collection",
            Cause::Safepoint => "pause of the runtime",
            Cause::Lock => "lock",
            Cause::HandOver => "wait for another thread",
            Cause::Timer => "sleep until a set time",
            Cause::Disk => "disk",
            Cause::Reclaim => "memory reclaim",
            Cause::Throttled => "CPU quota used up",
            Cause::Frozen => "frozen or stopped",
            Cause::SendBuffer => "response in the send buffer",
            Cause::Nagle => "Nagle's algorithm",
            Cause::SlowReader => "client that reads slowly",
            Cause::CongestionWindow => "congestion window",
            Cause::Pacing => "queueing discipline or pacing",
            Cause::SendSpace => "small send buffer",
            Cause::Retransmission => "segment sent again",
            Cause::Downstream => "answer of another service",
            Cause::Connect => "connection to another service",
            Cause::NoAnswer => "no answer within a timeout",
            Cause::Full => "full pipe or socket",
            Cause::Inside => "wait inside the service",
            Cause::NotExplained => "not explained",
        }
    }

    /// Returns the meaning of this cause, as a sentence for users.
    pub fn meaning(self) -> &'static str {
        match self {
            Cause::OnCpu => "a thread of the service worked on the request",
            Cause::NetworkReceive => "from its first segment until its data was at the socket",
            Cause::ServiceQueue => "all threads that could take it worked on other requests",
            Cause::RunQueue => "its thread could run, and another thread had the CPU",
            Cause::Tracer => "its thread could run, and a thread of sidelane had the CPU",
            Cause::Migration => "its thread moved to another CPU and had not started there",
            Cause::IdleExit => "the CPU came out of an idle state",
            Cause::Interrupt => "an interrupt or softirq had the CPU",
            Cause::Stolen => "the hypervisor had taken the CPU from this machine",
            Cause::Sibling => "a thread worked on it while batch ran on a lane of the same core",
            Cause::PageFault => "the kernel filled in memory that had not been touched",
            Cause::Collection => "the runtime stopped all threads to collect garbage",
            Cause::Safepoint => "the runtime stopped all threads, not for a collection",
            Cause::Lock => "another thread held a lock that its thread needed",
            Cause::HandOver => "its thread slept until another one woke it",
            Cause::Timer => "its thread slept until a time that the program had set",
            Cause::Disk => "its thread waited for a disk",
            Cause::Reclaim => "the kernel had to free memory before it could give any",
            Cause::Throttled => "its group had used up its quota of CPU time",
            Cause::Frozen => "its group was frozen, or its process stopped",
            Cause::SendBuffer => "the response waited in the socket, whose state does not show why",
            Cause::Nagle => "Nagle's algorithm held the response back until the client acknowledged what came before",
            Cause::SlowReader => "the client's receive window was full",
            Cause::CongestionWindow => "as much was in flight as the congestion window allows",
            Cause::Pacing => "the response waited in a queueing discipline, or TCP sent it at a set rate",
            Cause::SendSpace => "the send buffer had no room for the rest of the response",
            Cause::Retransmission => "a segment was lost and sent again",
            Cause::Downstream => "it waited for the answer of another service",
            Cause::Connect => "it waited for a connection to another service",
            Cause::NoAnswer => "another service did not answer within the time that the program allows",
            Cause::Full => "another process did not read from a pipe or socket that was full",
            Cause::Inside => "its event loop had no work, and the request waited for something inside the program",
            Cause::NotExplained => "no record shows where this time went",
        }
    }

    /// Returns the precedence of this cause: if several causes are true at once, the time goes to the cause with the
    /// highest precedence. Causes with precedence 0, such as a wait in a queue, exclude each other.
    pub fn precedence(self) -> u8 {
        match self {
            Cause::Stolen => 13,
            Cause::Frozen => 12,
            Cause::Throttled => 11,
            Cause::Collection | Cause::Safepoint => 10,
            Cause::Interrupt => 9,
            Cause::Disk => 8,
            Cause::Reclaim => 7,
            Cause::PageFault => 6,
            Cause::Lock => 5,
            Cause::Migration => 4,
            Cause::IdleExit | Cause::Tracer => 3,
            Cause::RunQueue => 2,
            Cause::Sibling => 1,
            _ => 0,
        }
    }

    /// Returns whether this cause can be found if only the kinds `recorded` are recorded.
    pub fn is_detectable(self, recorded: Kinds) -> bool {
        self.required_kinds().iter().all(|kind| recorded.has(*kind))
    }
}

/// Writes the key of a cause in results, such as `run-queue`.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_words_and_a_meaning_of_its_own() {
        let count = |text: fn(Cause) -> &'static str| {
            Cause::ALL.into_iter().map(text).collect::<std::collections::BTreeSet<&str>>().len()
        };
        assert_eq!([count(Cause::name), count(Cause::meaning)], [Cause::ALL.len(); 2]);
    }

    #[test]
    fn cause_needs_all_its_kinds_of_records() {
        let kinds = Kinds::all().without(Kind::Softirq);
        assert!(Cause::Interrupt.is_detectable(Kinds::all()) && !Cause::Interrupt.is_detectable(kinds));
        assert!(Cause::Stolen.is_detectable(kinds) && Cause::NotExplained.is_detectable(Kinds::default()));
    }

    #[test]
    fn cause_keys_match_the_style_sheet() {
        assert_eq!((Cause::RunQueue.to_string(), Cause::OnCpu.to_string()), ("run-queue".into(), "on-cpu".into()));
    }
}
