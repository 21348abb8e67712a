//! Comparison of the Rust mirror of `abi/*.h` with the headers, as a C compiler and a C++ compiler see them: every
//! field's offset and size, and every constant's value. A field that exists on one side only is an error, too.

use std::mem::offset_of;

use sidelane_formats::{
    EMIT_EVENTS, EMIT_THREADS, EMIT_VERSION, EmitEvent, EmitHead, EmitKind, EmitThread, EmittedKind, EmittedSignal,
    EventSlot, GATE_HIST_BUCKETS, GATE_PARTNERS, GATE_VERSION, GateWord, HAZARD_SERVERS, HAZARD_VERSION, HazardBit,
    HazardHead, HazardWord, HoldState, HoldWord, LaneClass, LaneLimits, LaneWord, PAYLOAD_WORDS, RequestWord,
    SIGNAL_NAME_BYTES, SIGNAL_NAMES, SIGNALS, SIGNALS_VERSION, ServiceWord, SignalsHead,
};
use sidelane_policy::borrow::LaneState;

mod support;

/// Returns the size of the field that a pointer-to-field function returns.
fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Returns the lines that `abi/tests/layout.c` prints for a struct. The macro gets its C name and, for each field, the
/// C name and the Rust name.
macro_rules! layout {
    ($rust:ty, $c:literal: $($c_field:literal $field:ident),* $(,)?) => {{
        let mut lines = vec![format!("{} {}", $c, size_of::<$rust>())];
        $(lines.push(format!(
            "{}.{} {} {}",
            $c,
            $c_field,
            offset_of!($rust, $field),
            size_of_field(|s: &$rust| &s.$field),
        ));)*
        lines
    }};
}

fn event_slot_layout() -> Vec<String> {
    layout!(EventSlot, "sidelane_event_slot":
        "timestamp_ns" timestamp_ns, "type" kind, "seq" seq, "tid" tid, "pid" pid,
        "payload" payload)
}

fn lane_word_layout() -> Vec<String> {
    layout!(LaneWord, "sidelane_lane_word":
        "since_ns" since_ns, "class_" class, "pid" pid, "tgid" tgid, "switches" switches,
        "busy" busy, "lc_visitors" lc_visitors, "busy_since_ns" busy_since_ns,
        "idle_since_ns" idle_since_ns, "lc_done_ns" lc_done_ns, "lc_since_ns" lc_since_ns)
}

fn hold_word_layout() -> Vec<String> {
    layout!(HoldWord, "sidelane_hold_word":
        "state" state, "holder_pid" holder_pid, "summons" summons, "lc_summons" lc_summons,
        "batch_waits" batch_waits, "waiting_pid" waiting_pid, "lent_until_ns" lent_until_ns, "kept_off" kept_off,
        "call_when_idle" call_when_idle, "threshold_ns" threshold_ns, "comparing_ns" comparing_ns)
}

fn request_word_layout() -> Vec<String> {
    layout!(RequestWord, "sidelane_request_word":
        "stamp_ns" stamp_ns, "running" running, "arrived_ns" arrived_ns, "started_ns" started_ns,
        "finished_ns" finished_ns, "waited" waited, "finished" finished, "reserved" reserved)
}

fn service_word_layout() -> Vec<String> {
    layout!(ServiceWord, "sidelane_service_word":
        "queue_len" queue_len, "busy_lanes" busy_lanes, "tracked" tracked, "reserved" reserved)
}

fn lane_limits_layout() -> Vec<String> {
    layout!(LaneLimits, "sidelane_lane_limits":
        "budget_ns" budget_ns, "min_idle_ns" min_idle_ns, "policy" policy, "contention_cost_ppm" contention_cost_ppm,
        "request_count" request_count, "requests" requests, "queued_ns" queued_ns)
}

fn gate_word_layout() -> Vec<String> {
    layout!(GateWord, "sidelane_gate_word":
        "nap_tid" nap_tid, "naps" naps, "nap_since_ns" nap_since_ns, "napped_ns" napped_ns,
        "napped_lc_ns" napped_lc_ns, "slow_paths" slow_paths, "lent_lc_ns" lent_lc_ns,
        "promises" promises, "nap_mark_ns" nap_mark_ns, "on_hist" on_hist,
        "off_hist" off_hist)
}

fn emitted_layout() -> Vec<String> {
    let head = layout!(EmitHead, "sidelane_emit_head":
        "magic" magic, "version" version, "pid" pid, "threads" threads, "events" events, "lost" lost,
        "reserved" reserved);
    let thread = layout!(EmitThread, "sidelane_emit_thread":
        "written" written, "received" received, "started" started, "finished" finished, "running" running,
        "running_since_ns" running_since_ns, "owner" owner, "reserved" reserved);
    let event = layout!(EmitEvent, "sidelane_emit_event":
        "seq" seq, "id" id, "at_ns" at_ns, "kind" kind, "tid" tid);
    [head, thread, event].concat()
}

fn emitted_signals_layout() -> Vec<String> {
    let head = layout!(SignalsHead, "sidelane_signals_head":
        "magic" magic, "version" version, "pid" pid, "signals" signals, "names" names, "names_end" names_end,
        "reserved" reserved);
    let signal = layout!(EmittedSignal, "sidelane_signal":
        "value" value, "unused" unused, "kind" kind, "tid" tid, "name" name, "reserved" reserved);
    [head, signal].concat()
}

fn hazards_layout() -> Vec<String> {
    let head = layout!(HazardHead, "sidelane_hazard_head":
        "magic" magic, "version" version, "servers" servers, "reserved" reserved);
    let word = layout!(HazardWord, "sidelane_hazard_word":
        "since_ns" since_ns, "hazards" hazards, "began" began, "reserved" reserved);
    [head, word].concat()
}

fn constant_lines() -> Vec<String> {
    let values = [
        ("SIDELANE_PAYLOAD_WORDS", PAYLOAD_WORDS as u32),
        ("SIDELANE_IDLE", LaneClass::Idle as u32),
        ("SIDELANE_LC", LaneClass::Lc as u32),
        ("SIDELANE_BATCH", LaneClass::Batch as u32),
        ("SIDELANE_OTHER", LaneClass::Other as u32),
        ("SIDELANE_RELEASED", LaneState::Released as u32),
        ("SIDELANE_SUMMONED", HoldState::SUMMONED),
        ("SIDELANE_HELD", LaneState::Held as u32),
        ("SIDELANE_EVICTED", LaneState::Evicted as u32),
        ("SIDELANE_LENT", LaneState::Lent as u32),
        ("SIDELANE_GATE_VERSION", GATE_VERSION),
        ("SIDELANE_GATE_PARTNERS", GATE_PARTNERS as u32),
        ("SIDELANE_GATE_HIST_BUCKETS", GATE_HIST_BUCKETS as u32),
        ("SIDELANE_EMIT_VERSION", EMIT_VERSION),
        ("SIDELANE_EMIT_THREADS", EMIT_THREADS as u32),
        ("SIDELANE_EMIT_EVENTS", EMIT_EVENTS as u32),
        ("SIDELANE_EMIT_RECEIVED", EmitKind::Received as u32),
        ("SIDELANE_EMIT_STARTED", EmitKind::Started as u32),
        ("SIDELANE_EMIT_FINISHED", EmitKind::Finished as u32),
        ("SIDELANE_SIGNALS_VERSION", SIGNALS_VERSION),
        ("SIDELANE_SIGNALS", SIGNALS as u32),
        ("SIDELANE_SIGNAL_NAME_BYTES", SIGNAL_NAME_BYTES as u32),
        ("SIDELANE_SIGNAL_NAMES", SIGNAL_NAMES as u32),
        ("SIDELANE_SIGNAL_TAG", EmittedKind::Tag as u32),
        ("SIDELANE_SIGNAL_COUNTER", EmittedKind::Counter as u32),
        ("SIDELANE_HAZARD_VERSION", HAZARD_VERSION),
        ("SIDELANE_HAZARD_SERVERS", HAZARD_SERVERS as u32),
        ("SIDELANE_HAZARD_JVM_GC", HazardBit::JvmGc as u32),
        ("SIDELANE_HAZARD_SAFEPOINT", HazardBit::Safepoint as u32),
        ("SIDELANE_HAZARD_STOPPED", HazardBit::Stopped as u32),
        ("SIDELANE_HAZARD_THROTTLED", HazardBit::Throttled as u32),
        ("SIDELANE_HAZARD_RESTART", HazardBit::Restart as u32),
    ];
    values.map(|(name, value)| format!("{name} {value}")).to_vec()
}

fn rust_layout() -> Vec<String> {
    let words = [
        lane_word_layout(),
        hold_word_layout(),
        request_word_layout(),
        service_word_layout(),
        lane_limits_layout(),
        gate_word_layout(),
    ];
    let emitted = [emitted_layout(), emitted_signals_layout(), hazards_layout()];
    sorted([event_slot_layout(), words.concat(), emitted.concat(), constant_lines()].concat())
}

fn c_layout(program: support::Program) -> Vec<String> {
    let output = program.command().output().expect("the compiled program runs");
    assert!(output.status.success(), "layout.c: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("it prints ASCII");
    sorted(text.lines().map(str::to_owned).collect())
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn c_and_rust_agree() {
    if let Some(program) = support::compile_c("layout.c") {
        assert_eq!(c_layout(program), rust_layout());
    }
}

#[test]
fn cpp_and_rust_agree() {
    if let Some(program) = support::compile_cpp("layout.c") {
        assert_eq!(c_layout(program), rust_layout());
    }
}
