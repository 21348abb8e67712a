//! Causes of a request's time. A closed list: each cause has its name, the evidence that it needs, and advice.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::{Kind, Kinds};

/// The reason for a span of a request's timeline: a wait, or work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A thread of the service worked on it.
    OnCpu,
    /// From its first segment until its data was at the socket.
    NetworkReceive,
    /// Its data was at the socket, or in a queue of the service, and all threads that could take it worked on other
    /// requests.
    ServiceQueue,
    /// A thread could run on and another had the CPU.
    RunQueue,
    /// The same, but the other thread is the tracer's. No cause of the service's: the diagnosis reports it separately.
    Tracer,
    /// The thread moved to another CPU, until its first moment there.
    Migration,
    /// The CPU woke from an idle state.
    IdleExit,
    /// An interrupt or softirq had the CPU.
    Interrupt,
    /// The hypervisor had the CPU.
    Stolen,
    /// A thread of the service worked on it while batch ran on a lane of the same core. The cost of that is the excess
    /// over the normal time.
    Sibling,
    /// The kernel filled in a page.
    PageFault,
    /// The runtime stopped all threads of the service to collect garbage.
    Collection,
    /// The runtime stopped all threads for another reason: a safepoint, class loading.
    Safepoint,
    /// It waited for a lock, in the kernel or in user space, that another thread held.
    Lock,
    /// Its thread slept until another thread woke it, and it is not known that it waited for a lock.
    HandOver,
    /// Its thread slept until a time that the program had set.
    Timer,
    /// It waited for a disk.
    Disk,
    /// The kernel freed memory first.
    Reclaim,
    /// The group had used up its CPU quota.
    Throttled,
    /// The group was frozen, or the process stopped.
    Frozen,
    /// The response lay in the send buffer, and the socket's state does not show why.
    SendBuffer,
    /// Nagle's algorithm held the response back until an acknowledgement came, which the peer delayed.
    Nagle,
    /// The client reads slowly: its receive window was full.
    SlowReader,
    /// As much of the response was in flight as the congestion window allows.
    CongestionWindow,
    /// The response waited in a queueing discipline, or TCP paced it.
    Pacing,
    /// All in the send buffer was in flight, and there was no room for the rest of the response.
    SendSpace,
    /// A segment was lost and sent again.
    Retransmission,
    /// It waited for the answer of another service.
    Downstream,
    /// It waited for a connection to another service.
    Connect,
    /// Another service did not answer, or was not reached, within the time that the program allows.
    NoAnswer,
    /// A pipe or socket to another process was full, and its thread waited until that was read.
    Full,
    /// The event loop that had it waited for events: the request waited for something inside the service that the kernel
    /// does not see.
    Inside,
    /// No record explains it.
    NotExplained,
}

/// The detail of a wait for a CPU that a thread of the service itself had.
pub const BY_OWN: u64 = 1;

/// The flag in the detail of [`Cause::Pacing`], beside the bytes, if TCP itself sent at a set rate.
pub const BY_TCP: u64 = 1 << 40;

impl Cause {
    /// All causes.
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
    pub fn needs(self) -> &'static [Kind] {
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

    /// Returns its name for people.
    pub fn words(self) -> &'static str {
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

    /// Returns its meaning, in a sentence.
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

    /// Returns its place in the order of precedence: if several are true at once, time goes to the highest. Those with
    /// 0 are stretches of a request's way, of which one at a time is true.
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

    /// Returns whether this cause can be found if only `recorded` can be recorded.
    pub fn can_be_told(self, recorded: Kinds) -> bool {
        self.needs().iter().all(|kind| recorded.has(*kind))
    }
}

/// Displays its key in results: `run-queue`.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_style_sheets_have_them() {
        assert_eq!((Cause::RunQueue.to_string(), Cause::OnCpu.to_string()), ("run-queue".into(), "on-cpu".into()));
    }
}
