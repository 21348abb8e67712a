/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Instructions and cycles that a request lane counts from the start of a request to its end. Elfen's dynamic refresh
 * compares the IPC of requests (ATC'16 Fig. 9(d)).
 *
 * Counters belong to the lane and count every thread that runs there. So a request is counted only if it had its lane
 * to itself: it finished on the CPU on which it had started, without a switch in between. User space opens the counters
 * if it wants them (src/counters.rs).
 *
 * Unless settings.counters is set, all of this is dead code, and the loaded program does not contain it.
 */
#ifndef SIDELANE_REQUEST_COUNTERS_H
#define SIDELANE_REQUEST_COUNTERS_H

#include "requests/state.h"

/* Instruction and cycle counters of each request lane, in one group, so that both count or neither does. The map has as
 * many entries as the machine has CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, uint32_t);
	__type(value, uint32_t);
} lane_instructions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, uint32_t);
	__type(value, uint32_t);
} lane_cycles SEC(".maps");

static __always_inline bool read_counts(struct counts *counts)
{
	struct bpf_perf_event_value value;

	if (bpf_perf_event_read_value(&lane_instructions, BPF_F_CURRENT_CPU, &value, sizeof(value)))
		return false;
	counts->instructions = value.counter;
	if (bpf_perf_event_read_value(&lane_cycles, BPF_F_CURRENT_CPU, &value, sizeof(value)))
		return false;
	counts->cycles = value.counter;
	counts->away_ns = value.enabled - value.running;
	return true;
}

/* Starts to count for a request that starts on this CPU. The number of switches is read first, so that a switch
 * during the reads is noticed. */
static __always_inline void begin_counting(struct counts *start, uint32_t cpu)
{
	struct sidelane_lane_word *word = settings.counters ? lane_word(cpu) : 0;

	if (!word)
		return;
	start->lane_switches = load_once(word->switches);
	start->known = read_counts(start);
}

/* Ends counting for the request that started at `start` on `lane`, and has finished on this CPU. */
static __always_inline void end_counting(const struct counts *start, uint32_t lane, uint32_t cpu,
					 struct sidelane_request_record *record)
{
	struct sidelane_lane_word *word = settings.counters ? lane_word(cpu) : 0;
	struct counts end = {};

	if (!word || !start->known || lane != cpu || !read_counts(&end))
		return;
	if (load_once(word->switches) != start->lane_switches || end.away_ns != start->away_ns)
		return;
	record->instructions = end.instructions - start->instructions;
	record->cycles = end.cycles - start->cycles;
}

#endif
