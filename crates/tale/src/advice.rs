//! What to do about each cause.

use crate::cause::Cause;
use crate::record::pause;

/// A response of which more than this waits in the send buffer waits for the network, not for Nagle's algorithm.
const SEGMENTS_OF_NAGLE: u64 = 16_384;

/// What to do about `cause`; `detail` is that of the spans that it had most of (`Span::detail`).
pub fn advice(cause: Cause, detail: u64) -> &'static str {
    match cause {
        Cause::SendBuffer if detail > SEGMENTS_OF_NAGLE => {
            "The peer or the network takes the response slowly: larger socket buffers, a smaller response, compression."
        }
        Cause::Safepoint if detail == u64::from(pause::CLASS_LOADING) => {
            "Warm the service up before it gets requests; after a restart let a backup server answer first \
             (`sidelane proxy`); share class data (-XX:SharedArchiveFile)."
        }
        _ => usual(cause),
    }
}

/// What to do about a cause, whatever its detail.
pub fn usual(cause: Cause) -> &'static str {
    match cause {
        Cause::OnCpu => "The request itself is long: profile the service; keep long requests away from short ones.",
        Cause::NetworkReceive => {
            "The client sends slowly or in parts: let it write a request at once, set TCP_NODELAY there."
        }
        Cause::ServiceQueue => {
            "Requests come faster than threads take them up: more threads or CPUs, fewer long requests."
        }
        Cause::RunQueue => {
            "Keep others off the service's CPUs: pin them elsewhere, or run batch beside the service with `sidelane run`."
        }
        Cause::Tracer => {
            "Keep sidelane off the service's CPUs: start it where it may use another CPU, or record less with `--light`."
        }
        Cause::Migration => "Pin the service's threads (`taskset`, cpuset), so that they keep their CPUs and caches.",
        Cause::IdleExit => {
            "Forbid deep idle states (/dev/cpu_dma_latency, `cpupower idle-set`), or poll while it matters."
        }
        Cause::Interrupt => {
            "Send interrupts to CPUs without the service (/proc/irq/*/smp_affinity, RPS), or fewer of them."
        }
        Cause::Stolen => {
            "The host gives the virtual machine too little: dedicated CPUs, another host, fewer neighbours."
        }
        Cause::Sibling => "Run what works beside the service with `sidelane run`, which gives the core back in time.",
        Cause::PageFault => {
            "Touch memory before it is needed: -XX:+AlwaysPreTouch, mlockall, MAP_POPULATE; look at transparent huge pages."
        }
        Cause::Collection => {
            "Let a backup server answer meanwhile (`sidelane proxy`); a collector with shorter pauses; more heap, less garbage."
        }
        Cause::Safepoint => {
            "Let a backup server answer meanwhile (`sidelane proxy`); find what stops the runtime (-Xlog:safepoint)."
        }
        Cause::Lock => "Hold the lock for less, split it, or let fewer threads contend for it.",
        Cause::HandOver => "Look at the thread that it waited for; do the work where the request is received.",
        Cause::Timer => "The program sleeps while a request waits: wait for an event in place of a time.",
        Cause::Disk => "Keep data in memory, read ahead, write in the background; a faster disk, or one of its own.",
        Cause::Reclaim => "More memory, or a higher limit of the group; keep batch's memory in a group with a limit.",
        Cause::Throttled => "Raise the group's quota (cpu.max), or give it CPUs (cpuset) in place of a quota.",
        Cause::Frozen => "Find who froze or stopped the service: the freezer of its group, SIGSTOP, a debugger.",
        Cause::SendBuffer => {
            "Set TCP_NODELAY, or write the response at once: Nagle's algorithm waited for an acknowledgement that the peer \
             delayed."
        }
        Cause::Retransmission => {
            "Segments are lost: look at the network card's and the switch's drops and at queue lengths."
        }
        Cause::Downstream => {
            "Trace the service that was asked (`sidelane trace` there); ask it earlier, or a copy of it too."
        }
        Cause::NotExplained => {
            "Trace more kinds of records, without `--light` where it was set; see what cannot be told here."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_advice() {
        assert!(Cause::ALL.into_iter().all(|cause| advice(cause, 0).len() > 20));
    }

    #[test]
    fn a_long_response_is_no_matter_of_nagles_algorithm() {
        assert!(advice(Cause::SendBuffer, 100).contains("TCP_NODELAY"));
        assert!(!advice(Cause::SendBuffer, 1_000_000).contains("TCP_NODELAY"));
    }
}
