// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records each class change of the lanes, for a drawing of a short part of a run. It is attached after
 * bpf/lanes.bpf.c to the same tracepoint, so the lane's word that it reads already belongs to this context switch.
 */
#include "kernel/types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "abi/lane.h"

char LICENSE[] SEC("license") = "GPL";

/* Class of a lane whose holder runs, in addition to the classes of enum sidelane_class. */
#define HOLDER 4
#define CHANGES 16384

/* Class change of a lane; lab/src/experiment/changes.rs mirrors this struct. */
struct change {
	uint64_t at_ns; /* time of the change; 0: not recorded yet */
	uint32_t cpu;
	uint32_t class_;
};

/* Placeholders for two maps: user space replaces them by the tracker's own maps. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_lane_word);
} lane_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_hold_word);
} hold_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CHANGES);
	__type(key, uint32_t);
	__type(value, struct change);
} changes SEC(".maps");

/* Number of class changes so far. */
uint64_t count;

SEC("tp_btf/sched_switch")
int BPF_PROG(lane_change, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	uint32_t cpu = bpf_get_smp_processor_id(), index = __sync_fetch_and_add(&count, 1);
	struct sidelane_lane_word *word = bpf_map_lookup_elem(&lane_words, &cpu);
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &cpu);
	struct change *change = bpf_map_lookup_elem(&changes, &index);

	if (!word || !hold || !change)
		return 0;
	change->cpu = cpu;
	change->class_ = hold->holder_pid && hold->holder_pid == (uint32_t)next->pid ? HOLDER : word->class_;
	*(volatile uint64_t *)&change->at_ns = word->since_ns;
	return 0;
}
