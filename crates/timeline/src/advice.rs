//! Advice for each cause.

use crate::cause::{BY_OWN, BY_TCP, Cause};
use crate::record::pause;

/// Returns the advice for `cause`; `detail` is that of the spans in which it took most time (`Span::detail`).
pub fn advice(cause: Cause, detail: u64) -> &'static str {
    match cause {
        Cause::Safepoint if detail == u64::from(pause::CLASS_LOADING) => {
            "Warm the service up before it gets requests; after a restart let a backup server answer first \
             (`sidelane proxy`); share class data (-XX:SharedArchiveFile)."
        }
        Cause::Pacing if detail & BY_TCP != 0 => {
            "TCP paces itself: `ss -tiem` shows its rate. Look at the congestion control (BBR measures the rate of the path), at \
             SO_MAX_PACING_RATE in the service, and send less."
        }
        Cause::RunQueue if detail == BY_OWN => {
            "The service's own threads had its CPUs: give it more of them, or let fewer of its threads work at once."
        }
        _ => usual(cause),
    }
}

/// Returns the advice for a cause with any detail.
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
            "Let a backup server answer during the pause (`sidelane proxy`); a collector with shorter pauses; more heap, less garbage."
        }
        Cause::Safepoint => {
            "Let a backup server answer during the pause (`sidelane proxy`); find what stops the runtime (-Xlog:safepoint)."
        }
        Cause::Lock => "Hold the lock for less, split it, or let fewer threads contend for it.",
        Cause::HandOver => "Look at the thread that it waited for; do the work where the request is received.",
        Cause::Timer => "The program sleeps while a request waits: wait for an event in place of a time.",
        Cause::Disk => "Keep data in memory, read ahead, write in the background; a faster disk, or one of its own.",
        Cause::Reclaim => "More memory, or a higher limit of the group; keep batch's memory in a group with a limit.",
        Cause::Throttled => "Raise the group's quota (cpu.max), or give it CPUs (cpuset) in place of a quota.",
        Cause::Frozen => "Find who froze or stopped the service: the freezer of its group, SIGSTOP, a debugger.",
        Cause::SendBuffer
        | Cause::Nagle
        | Cause::SlowReader
        | Cause::CongestionWindow
        | Cause::Pacing
        | Cause::SendSpace => of_sending(cause),
        Cause::Retransmission => {
            "Segments are lost: look at the network card's and the switch's drops and at queue lengths."
        }
        Cause::Downstream => {
            "Trace the service that was asked (`sidelane trace` there); ask it earlier, or a copy of it too."
        }
        Cause::Connect | Cause::NoAnswer | Cause::Full | Cause::Inside => of_wait(cause),
        Cause::NotExplained => {
            "Trace more kinds of records, without `--light` where it was set; see what cannot be told here."
        }
    }
}

/// Returns the advice for a response that leaves slowly.
fn of_sending(cause: Cause) -> &'static str {
    match cause {
        Cause::Nagle => {
            "Set TCP_NODELAY, or write the response at once: Nagle's algorithm waited for an acknowledgement that the peer \
             delayed."
        }
        Cause::SlowReader => {
            "The client reads slowly, or has a small receive buffer (SO_RCVBUF): look at the client; send less, or let a proxy \
             that has room take the response."
        }
        Cause::CongestionWindow => {
            "The response takes several round trips: keep connections open, so that the window grows; a larger initcwnd (`ip \
             route`), net.ipv4.tcp_slow_start_after_idle=0; send less."
        }
        Cause::Pacing => {
            "Look at limits and backlogs of the queueing discipline (`tc -s qdisc`), at SO_MAX_PACING_RATE, and at the \
             bandwidth that the container may use."
        }
        Cause::SendSpace => {
            "The send buffer is smaller than what the network has in flight: leave SO_SNDBUF alone, or raise it and \
             net.ipv4.tcp_wmem."
        }
        _ => {
            "The socket does not tell what held the response back: look at it while that happens (`ss -tiem`), and for TCP_CORK \
             or MSG_MORE in the service."
        }
    }
}

/// Returns the advice for a wait for something outside the thread.
fn of_wait(cause: Cause) -> &'static str {
    match cause {
        Cause::Connect => {
            "Keep connections open (a pool); look at lost segments, at the accept queue of the service that is asked, and at \
             name look-ups."
        }
        Cause::NoAnswer => {
            "Find out why the service that was asked does not answer (`sidelane trace` there); ask a second one sooner, or \
             allow less time."
        }
        Cause::Full => {
            "Look at the process that reads so slowly; do not write to it while a request waits, or drop what is late."
        }
        _ => {
            "Look in the program at what the request awaits (a timer, a lock of coroutines, a channel, a pool, a worker); the \
             kernel sees no more of it."
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
    fn only_nagles_algorithm_is_a_matter_of_nodelay() {
        let says = |cause: &Cause| advice(*cause, 100).contains("Set TCP_NODELAY,");
        let sending: Vec<Cause> = Cause::ALL.into_iter().filter(says).collect();
        assert_eq!(sending, [Cause::Nagle]);
    }
}
