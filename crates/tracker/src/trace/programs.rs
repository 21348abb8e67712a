//! Kernel programs of a trace: the records of each, and which of them are loaded.

use sidelane_timeline::record::{Kind, Kinds};

use super::options::TraceOptions;
use crate::tracepoints::Tracepoints;

/// Kernel program with its tracepoint, and the kinds of records that need it.
struct Program {
    name: &'static str,
    tracepoint: &'static str,
    kinds: &'static [Kind],
    /// Whether a light trace leaves the program out.
    heavy: bool,
}

const fn program(name: &'static str, tracepoint: &'static str, kinds: &'static [Kind]) -> Program {
    Program { name, tracepoint, kinds, heavy: false }
}

const fn full_trace_program(name: &'static str, tracepoint: &'static str, kinds: &'static [Kind]) -> Program {
    Program { name, tracepoint, kinds, heavy: true }
}

/// Programs of `bpf/trace/`, and programs of `bpf/requests/` that write records of a trace.
const PROGRAMS: [Program; 32] = [
    program("request_data", "sk_data_ready", &[Kind::DataReady]),
    program("request_received", "sock_recv_length", &[Kind::Received, Kind::RequestStarted]),
    program("request_sent", "sock_send_length", &[Kind::Sent, Kind::RequestFinished]),
    program("request_closed", "inet_sock_set_state", &[Kind::SocketState, Kind::Connects]),
    full_trace_program("trace_segment", "netif_receive_skb", &[Kind::Segment]),
    program("trace_transmit", "net_dev_start_xmit", &[Kind::Transmitted]),
    program("trace_retransmit", "tcp_retransmit_skb", &[Kind::Retransmitted]),
    program("trace_acknowledge", "tcp_probe", &[Kind::Acknowledged]),
    program("trace_switch", "sched_switch", &[Kind::Switched, Kind::Throttled, Kind::Frozen]),
    program("trace_waking", "sched_waking", &[Kind::Woken]),
    program("trace_wakeup_new", "sched_wakeup_new", &[]),
    program("trace_rename", "task_rename", &[]),
    program("trace_migrate", "sched_migrate_task", &[Kind::Migrated]),
    program("trace_fault", "page_fault_user", &[Kind::PageFault]),
    program("trace_fault_in_kernel", "page_fault_kernel", &[]),
    program("trace_fault_ends", "rss_stat", &[]),
    program("trace_signal", "signal_deliver", &[Kind::SignalDelivered]),
    program("trace_lock_wait", "contention_begin", &[Kind::LockWaitBegan]),
    program("trace_lock_taken", "contention_end", &[Kind::LockWaitEnded]),
    program("trace_reclaim_begins", "mm_vmscan_direct_reclaim_begin", &[Kind::ReclaimBegan]),
    program("trace_reclaim_ends", "mm_vmscan_direct_reclaim_end", &[Kind::ReclaimEnded]),
    full_trace_program("trace_softirq_begins", "softirq_entry", &[Kind::Softirq]),
    full_trace_program("trace_softirq_ends", "softirq_exit", &[Kind::Softirq]),
    program("trace_irq_begins", "irq_handler_entry", &[Kind::Interrupt]),
    program("trace_irq_ends", "irq_handler_exit", &[Kind::Interrupt]),
    program("trace_idle", "cpu_idle", &[Kind::IdleLeft]),
    program("trace_timer", "hrtimer_expire_exit", &[]),
    program("trace_timer_begins", "hrtimer_expire_entry", &[]),
    program("trace_wheel_begins", "timer_expire_entry", &[]),
    program("trace_wheel_ends", "timer_expire_exit", &[]),
    program("trace_disk_asked", "block_rq_issue", &[Kind::DiskIssued]),
    program("trace_disk_answers", "block_rq_complete", &[Kind::DiskCompleted]),
];

/// Returns whether the program `name` of the object is left out of this trace.
pub(super) fn is_left_out(name: &str, options: &TraceOptions, kernel: &Tracepoints) -> bool {
    let listed = PROGRAMS.iter().find(|program| program.name == name);
    listed.is_some_and(|program| !can_load(program, options, kernel))
}

fn can_load(program: &Program, options: &TraceOptions, kernel: &Tracepoints) -> bool {
    let missing = options.missing.contains(&program.tracepoint) || !kernel.has(program.tracepoint);
    let left_out = options.light && program.heavy;
    !missing && !left_out
}

/// Facts about a machine that decide which kinds of records exist.
#[derive(Clone, Copy, Debug)]
pub(super) struct AvailableInputs {
    /// Whether lanes are tracked.
    pub lanes: bool,
    /// Whether steal time is seen.
    pub stolen: bool,
    /// Whether the work of an interrupt is distinguished from the work of the thread that it interrupts.
    pub interrupts: bool,
}

/// Returns the kinds of records that the programs write on this kernel, without those of user space. If interrupts are
/// taken for threads, a wakeup has a time and no waker.
pub(super) fn recordable_kinds(options: &TraceOptions, kernel: &Tracepoints, available: AvailableInputs) -> Kinds {
    let unable = |kind: &Kind| PROGRAMS.iter().any(|p| p.kinds.contains(kind) && !can_load(p, options, kernel));
    let made = PROGRAMS.iter().flat_map(|program| program.kinds).filter(|kind| !unable(kind));
    let kinds = made.fold(Kinds::default(), |kinds, kind| kinds.with(*kind));
    let switches = kinds.has(Kind::Switched);
    let calls_are_known = cfg!(target_arch = "x86_64");
    let also = [
        (Kind::SleepsIn, switches && calls_are_known),
        (Kind::Stolen, switches && available.stolen),
        (Kind::Overlap, switches && available.lanes),
    ];
    let kinds = also.into_iter().filter(|(_, is_made)| *is_made).fold(kinds, |kinds, (kind, _)| kinds.with(kind));
    if available.interrupts { kinds } else { kinds.without(Kind::Woken) }
}

/// Returns the tracepoints that requests need and this kernel lacks.
pub(super) fn missing_request_tracepoints(options: &TraceOptions, kernel: &Tracepoints) -> Vec<&'static str> {
    let needed =
        PROGRAMS.iter().filter(|program| program.name.starts_with("request_") || program.name == "trace_switch");
    needed.filter(|program| !can_load(program, options, kernel)).map(|program| program.tracepoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracepoints_of_all_programs() -> Tracepoints {
        let types = PROGRAMS.iter().map(|program| format!("\0btf_trace_{}\0", program.tracepoint)).collect::<String>();
        Tracepoints::from_type_info(types.as_bytes()).unwrap()
    }

    const KNOWN: AvailableInputs = AvailableInputs { lanes: false, stolen: true, interrupts: true };

    #[test]
    fn wakeups_have_no_waker_if_interrupts_are_unknown() {
        let made = |interrupts| {
            recordable_kinds(
                &TraceOptions::default(),
                &tracepoints_of_all_programs(),
                AvailableInputs { interrupts, ..KNOWN },
            )
        };
        assert!(made(true).has(Kind::Woken) && !made(false).has(Kind::Woken));
        assert!(made(false).has(Kind::Switched) && made(false).has(Kind::DataReady));
    }

    #[test]
    fn missing_tracepoint_removes_its_record_kind_and_program() {
        let (all, lacking) = (
            tracepoints_of_all_programs(),
            tracepoints_of_all_programs().without("softirq_exit").without("sched_waking"),
        );
        let options = TraceOptions::default();
        assert!(
            recordable_kinds(&options, &all, KNOWN).has(Kind::Softirq)
                && recordable_kinds(&options, &all, KNOWN).has(Kind::Woken)
        );
        let made = recordable_kinds(&options, &lacking, KNOWN);
        assert!(!made.has(Kind::Softirq) && !made.has(Kind::Woken) && made.has(Kind::Switched));
        assert!(is_left_out("trace_waking", &options, &lacking) && !is_left_out("trace_waking", &options, &all));
    }

    #[test]
    fn a_light_trace_has_neither_softirqs_nor_segments() {
        let light = TraceOptions { light: true, ..TraceOptions::default() };
        let made = recordable_kinds(&light, &tracepoints_of_all_programs(), KNOWN);
        for kind in [Kind::Softirq, Kind::Segment] {
            assert!(!made.has(kind), "{kind:?}");
        }
        assert!(made.has(Kind::DataReady) && made.has(Kind::Switched) && made.has(Kind::Transmitted));
    }

    #[test]
    fn overlap_needs_lanes_and_stolen_time_needs_its_source() {
        let made = |lanes, stolen| {
            recordable_kinds(
                &TraceOptions::default(),
                &tracepoints_of_all_programs(),
                AvailableInputs { lanes, stolen, ..KNOWN },
            )
        };
        assert!(made(true, false).has(Kind::Overlap) && !made(true, false).has(Kind::Stolen));
        assert!(made(false, true).has(Kind::Stolen) && !made(false, true).has(Kind::Overlap));
    }

    #[test]
    fn missing_request_tracepoints_are_named() {
        let lacking = tracepoints_of_all_programs().without("sk_data_ready");
        assert_eq!(missing_request_tracepoints(&TraceOptions::default(), &lacking), ["sk_data_ready"]);
        assert!(missing_request_tracepoints(&TraceOptions::default(), &tracepoints_of_all_programs()).is_empty());
    }
}
