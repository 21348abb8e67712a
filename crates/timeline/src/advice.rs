//! Advice to the user for each cause of a slow request.

use crate::cause::{BY_OWN, BY_TCP, Cause};
use crate::record::pause;

/// Returns the advice for `cause`. `detail` is the `Span::detail` of the spans in which the
/// cause took most time.
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
        _ => general_advice(cause),
    }
}

/// Returns the advice for a cause whose advice does not depend on the detail of its spans.
pub fn general_advice(cause: Cause) -> &'static str {
    match cause {
        Cause::OnCpu => "The request itself is long: profile the service; keep long requests away from short ones.",
        Cause::NetworkReceive => {
            "The client sends slowly or in parts: let it write a request at once, set TCP_NODELAY there."
        }
        Cause::ServiceQueue => {
            "Requests arrive faster than threads take them up: use more threads or CPUs, or fewer long requests."
        }
        Cause::RunQueue => {
            "Keep others off the service's CPUs: pin them elsewhere, or run batch beside the service with `sidelane run`."
        }
        Cause::Tracer => {
            "Keep sidelane off the service's CPUs: start it where it may use another CPU, or record less with `--light`."
        }
        Cause::Migration => "Pin the service's threads (`taskset`, cpuset), so that they keep their CPUs and caches.",
        Cause::IdleExit => "Forbid deep idle states (/dev/cpu_dma_latency, `cpupower idle-set`).",
        Cause::Interrupt => {
            "Send interrupts to CPUs without the service (/proc/irq/*/smp_affinity, RPS), or fewer of them."
        }
        Cause::Stolen => {
            "The host gives the virtual machine too little CPU time: use dedicated CPUs, another host, or fewer \
             neighbours."
        }
        Cause::Sibling => "Run the batch beside the service with `sidelane run`, which gives the core back in time.",
        Cause::PageFault => {
            "Touch memory before it is needed: -XX:+AlwaysPreTouch, mlockall, MAP_POPULATE; check transparent huge \
             pages."
        }
        Cause::Collection => {
            "Let a backup server answer during the pause (`sidelane proxy`); use a collector with shorter pauses, more \
             heap, or less garbage."
        }
        Cause::Safepoint => {
            "Let a backup server answer during the pause (`sidelane proxy`); find the reason of the pause \
             (-Xlog:safepoint)."
        }
        Cause::Lock => "Hold the lock for a shorter time, split it, or let fewer threads contend for it.",
        Cause::HandOver => {
            "Look at the thread that it waited for; do the work in the thread that receives the \
                            request."
        }
        Cause::Timer => "The program sleeps while a request waits: wait for an event, not for a time.",
        Cause::Disk => {
            "Keep data in memory, read ahead, write in the background; use a faster disk, or one for the \
                        service alone."
        }
        Cause::Reclaim => "Give the service more memory, or its cgroup a higher limit; limit the memory of batch.",
        Cause::Throttled => "Raise the quota of its cgroup (cpu.max), or give it CPUs (cpuset) in place of a quota.",
        Cause::Frozen => "Find what froze or stopped the service: the freezer of its cgroup, SIGSTOP, a debugger.",
        Cause::SendBuffer
        | Cause::Nagle
        | Cause::SlowReader
        | Cause::CongestionWindow
        | Cause::Pacing
        | Cause::SendSpace => sending_advice(cause),
        Cause::Retransmission => "Segments are lost: check the drops of network card and switch, and queue lengths.",
        Cause::Downstream => {
            "Trace the other service (`sidelane trace` there); ask it earlier, or ask a copy of it, too."
        }
        Cause::Connect | Cause::NoAnswer | Cause::Full | Cause::Inside => wait_advice(cause),
        Cause::NotExplained => "Trace without `--light`; see what is not known here.",
    }
}

/// Returns the advice for a cause that delays the sending of a response.
fn sending_advice(cause: Cause) -> &'static str {
    match cause {
        Cause::Nagle => {
            "Set TCP_NODELAY, or write the response at once: Nagle's algorithm waited for an acknowledgement that the peer \
             delayed."
        }
        Cause::SlowReader => {
            "The client reads slowly, or has a small receive buffer (SO_RCVBUF): check the client; send less, or let a \
             proxy buffer the response."
        }
        Cause::CongestionWindow => {
            "The response takes several round trips: keep connections open, so that the window grows; set a larger \
             initcwnd (`ip route`) and net.ipv4.tcp_slow_start_after_idle=0; send less."
        }
        Cause::Pacing => {
            "Check limits and backlog of the queueing discipline (`tc -s qdisc`), SO_MAX_PACING_RATE, and the \
             bandwidth limit of the container."
        }
        Cause::SendSpace => {
            "The send buffer is smaller than what the network has in flight: leave SO_SNDBUF alone, or raise it and \
             net.ipv4.tcp_wmem."
        }
        _ => {
            "The socket does not show what held the response back: check it while that happens (`ss -tiem`), and \
             TCP_CORK or MSG_MORE in the service."
        }
    }
}

/// Returns the advice for a cause that is a wait for something outside the thread, such as a lock or a disk.
fn wait_advice(cause: Cause) -> &'static str {
    match cause {
        Cause::Connect => {
            "Keep connections open (a pool); check lost segments, the accept queue of the other service, and name \
             look-ups."
        }
        Cause::NoAnswer => {
            "Find out why the other service does not answer (`sidelane trace` there); ask a second one sooner, or \
             shorten the timeout."
        }
        Cause::Full => {
            "Check the process that reads slowly; do not write to it while a request waits, or drop data that is late."
        }
        _ => {
            "Find in the program what the request awaits (a timer, a lock of coroutines, a channel, a pool, a worker); \
             the kernel does not see it."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_advice_of_its_own() {
        let all: std::collections::BTreeSet<&str> = Cause::ALL.into_iter().map(general_advice).collect();
        assert_eq!(all.len(), Cause::ALL.len());
    }

    #[test]
    fn detail_decides_the_advice_of_three_causes() {
        for (cause, special, usual) in [
            (Cause::Safepoint, pause::CLASS_LOADING.into(), pause::SAFEPOINT.into()),
            (Cause::Pacing, BY_TCP | 5_000, 5_000),
            (Cause::RunQueue, BY_OWN, 0),
        ] {
            assert_ne!(advice(cause, special), general_advice(cause), "{cause}");
            assert_eq!(advice(cause, usual), general_advice(cause), "{cause}");
        }
    }

    #[test]
    fn each_cause_has_advice() {
        assert!(Cause::ALL.into_iter().all(|cause| advice(cause, 0).len() > 20));
    }

    #[test]
    fn only_advice_for_nagle_recommends_tcp_nodelay() {
        let says = |cause: &Cause| advice(*cause, 100).contains("Set TCP_NODELAY,");
        let sending: Vec<Cause> = Cause::ALL.into_iter().filter(says).collect();
        assert_eq!(sending, [Cause::Nagle]);
    }
}
