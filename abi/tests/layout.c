/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Prints the layout that the C compiler gives the headers: "struct.field offset size" for every
 * field, "struct size" for every struct and "CONSTANT value" for every constant.
 * crates/formats/tests/layout.rs compares it with the layout of the Rust mirror. It also compiles as
 * C++, to check the headers with that language.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../emit.h"
#include "../gate.h"
#include "../hazard.h"
#include "../lane.h"
#include "../request.h"
#include "../signal.h"
#include "../slot.h"

#define STRUCT(s) printf(#s " %u\n", (unsigned)sizeof(struct s))
#define FIELD(s, f)                                                            \
	printf(#s "." #f " %u %u\n", (unsigned)offsetof(struct s, f),          \
	       (unsigned)sizeof(((struct s *)0)->f))
#define CONSTANT(c) printf(#c " %u\n", (unsigned)(c))

static void event_slot(void)
{
	STRUCT(sidelane_event_slot);
	FIELD(sidelane_event_slot, timestamp_ns);
	FIELD(sidelane_event_slot, type);
	FIELD(sidelane_event_slot, seq);
	FIELD(sidelane_event_slot, tid);
	FIELD(sidelane_event_slot, pid);
	FIELD(sidelane_event_slot, payload);
	CONSTANT(SIDELANE_PAYLOAD_WORDS);
}

static void lane_word(void)
{
	STRUCT(sidelane_lane_word);
	FIELD(sidelane_lane_word, since_ns);
	FIELD(sidelane_lane_word, class_);
	FIELD(sidelane_lane_word, pid);
	FIELD(sidelane_lane_word, tgid);
	FIELD(sidelane_lane_word, switches);
	FIELD(sidelane_lane_word, busy);
	FIELD(sidelane_lane_word, lc_visitors);
	FIELD(sidelane_lane_word, busy_since_ns);
	FIELD(sidelane_lane_word, idle_since_ns);
	FIELD(sidelane_lane_word, lc_done_ns);
	FIELD(sidelane_lane_word, lc_since_ns);
	CONSTANT(SIDELANE_IDLE);
	CONSTANT(SIDELANE_LC);
	CONSTANT(SIDELANE_BATCH);
	CONSTANT(SIDELANE_OTHER);
}

static void hold_word(void)
{
	STRUCT(sidelane_hold_word);
	FIELD(sidelane_hold_word, state);
	FIELD(sidelane_hold_word, holder_pid);
	FIELD(sidelane_hold_word, summons);
	FIELD(sidelane_hold_word, lc_summons);
	FIELD(sidelane_hold_word, batch_waits);
	FIELD(sidelane_hold_word, waiting_pid);
	FIELD(sidelane_hold_word, lent_until_ns);
	FIELD(sidelane_hold_word, kept_off);
	FIELD(sidelane_hold_word, call_when_idle);
	FIELD(sidelane_hold_word, threshold_ns);
	FIELD(sidelane_hold_word, comparing_ns);
	CONSTANT(SIDELANE_RELEASED);
	CONSTANT(SIDELANE_SUMMONED);
	CONSTANT(SIDELANE_HELD);
	CONSTANT(SIDELANE_EVICTED);
	CONSTANT(SIDELANE_LENT);
}

static void request_word(void)
{
	STRUCT(sidelane_request_word);
	FIELD(sidelane_request_word, stamp_ns);
	FIELD(sidelane_request_word, running);
	FIELD(sidelane_request_word, arrived_ns);
	FIELD(sidelane_request_word, started_ns);
	FIELD(sidelane_request_word, finished_ns);
	FIELD(sidelane_request_word, waited);
	FIELD(sidelane_request_word, finished);
	FIELD(sidelane_request_word, reserved);
}

static void service_word(void)
{
	STRUCT(sidelane_service_word);
	FIELD(sidelane_service_word, queue_len);
	FIELD(sidelane_service_word, busy_lanes);
	FIELD(sidelane_service_word, tracked);
	FIELD(sidelane_service_word, reserved);
}

static void lane_limits(void)
{
	STRUCT(sidelane_lane_limits);
	FIELD(sidelane_lane_limits, budget_ns);
	FIELD(sidelane_lane_limits, min_idle_ns);
	FIELD(sidelane_lane_limits, policy);
	FIELD(sidelane_lane_limits, contention_cost_ppm);
	FIELD(sidelane_lane_limits, request_count);
	FIELD(sidelane_lane_limits, requests);
	FIELD(sidelane_lane_limits, queued_ns);
	CONSTANT(SIDELANE_GATE_VERSION);
	CONSTANT(SIDELANE_GATE_PARTNERS);
}

static void gate_word(void)
{
	STRUCT(sidelane_gate_word);
	FIELD(sidelane_gate_word, nap_tid);
	FIELD(sidelane_gate_word, naps);
	FIELD(sidelane_gate_word, nap_since_ns);
	FIELD(sidelane_gate_word, napped_ns);
	FIELD(sidelane_gate_word, napped_lc_ns);
	FIELD(sidelane_gate_word, slow_paths);
	FIELD(sidelane_gate_word, lent_lc_ns);
	FIELD(sidelane_gate_word, promises);
	FIELD(sidelane_gate_word, nap_mark_ns);
	FIELD(sidelane_gate_word, on_hist);
	FIELD(sidelane_gate_word, off_hist);
	CONSTANT(SIDELANE_GATE_HIST_BUCKETS);
}

static void emitted(void)
{
	STRUCT(sidelane_emit_head);
	FIELD(sidelane_emit_head, magic);
	FIELD(sidelane_emit_head, version);
	FIELD(sidelane_emit_head, pid);
	FIELD(sidelane_emit_head, threads);
	FIELD(sidelane_emit_head, events);
	FIELD(sidelane_emit_head, lost);
	FIELD(sidelane_emit_head, reserved);
	STRUCT(sidelane_emit_thread);
	FIELD(sidelane_emit_thread, written);
	FIELD(sidelane_emit_thread, received);
	FIELD(sidelane_emit_thread, started);
	FIELD(sidelane_emit_thread, finished);
	FIELD(sidelane_emit_thread, running);
	FIELD(sidelane_emit_thread, running_since_ns);
	FIELD(sidelane_emit_thread, owner);
	FIELD(sidelane_emit_thread, reserved);
	STRUCT(sidelane_emit_event);
	FIELD(sidelane_emit_event, seq);
	FIELD(sidelane_emit_event, id);
	FIELD(sidelane_emit_event, at_ns);
	FIELD(sidelane_emit_event, kind);
	FIELD(sidelane_emit_event, tid);
	CONSTANT(SIDELANE_EMIT_VERSION);
	CONSTANT(SIDELANE_EMIT_THREADS);
	CONSTANT(SIDELANE_EMIT_EVENTS);
	CONSTANT(SIDELANE_EMIT_RECEIVED);
	CONSTANT(SIDELANE_EMIT_STARTED);
	CONSTANT(SIDELANE_EMIT_FINISHED);
}

static void emitted_signals(void)
{
	STRUCT(sidelane_signals_head);
	FIELD(sidelane_signals_head, magic);
	FIELD(sidelane_signals_head, version);
	FIELD(sidelane_signals_head, pid);
	FIELD(sidelane_signals_head, signals);
	FIELD(sidelane_signals_head, names);
	FIELD(sidelane_signals_head, names_end);
	FIELD(sidelane_signals_head, reserved);
	STRUCT(sidelane_signal);
	FIELD(sidelane_signal, value);
	FIELD(sidelane_signal, unused);
	FIELD(sidelane_signal, kind);
	FIELD(sidelane_signal, tid);
	FIELD(sidelane_signal, name);
	FIELD(sidelane_signal, reserved);
	CONSTANT(SIDELANE_SIGNALS_VERSION);
	CONSTANT(SIDELANE_SIGNALS);
	CONSTANT(SIDELANE_SIGNAL_NAME_BYTES);
	CONSTANT(SIDELANE_SIGNAL_NAMES);
	CONSTANT(SIDELANE_SIGNAL_TAG);
	CONSTANT(SIDELANE_SIGNAL_COUNTER);
}

static void hazards(void)
{
	STRUCT(sidelane_hazard_head);
	FIELD(sidelane_hazard_head, magic);
	FIELD(sidelane_hazard_head, version);
	FIELD(sidelane_hazard_head, servers);
	FIELD(sidelane_hazard_head, reserved);
	STRUCT(sidelane_hazard_word);
	FIELD(sidelane_hazard_word, since_ns);
	FIELD(sidelane_hazard_word, hazards);
	FIELD(sidelane_hazard_word, began);
	FIELD(sidelane_hazard_word, reserved);
	CONSTANT(SIDELANE_HAZARD_VERSION);
	CONSTANT(SIDELANE_HAZARD_SERVERS);
	CONSTANT(SIDELANE_HAZARD_JVM_GC);
	CONSTANT(SIDELANE_HAZARD_SAFEPOINT);
	CONSTANT(SIDELANE_HAZARD_STOPPED);
	CONSTANT(SIDELANE_HAZARD_THROTTLED);
	CONSTANT(SIDELANE_HAZARD_RESTART);
}

int main(void)
{
	event_slot();
	lane_word();
	hold_word();
	request_word();
	service_word();
	lane_limits();
	gate_word();
	emitted();
	emitted_signals();
	hazards();
	return 0;
}
