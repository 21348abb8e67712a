/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Time that a thread seems to have but does not have: stolen by the hypervisor, shared with batch on a lane of the same
 * core, or refused by its group's quota or freezer.
 */
#ifndef SIDELANE_TRACE_LOST_H
#define SIDELANE_TRACE_LOST_H

#include "lane/stolen.h"
#include "requests/thread.h"
#include "trace/who.h"

/* Shortest gap of stolen time that is recorded. Any entry into the guest causes shorter gaps. */
#define STOLEN_MIN_NS 1000
/* Least time between two reads of stolen time: gaps that are worth a record are longer. */
#define STOLEN_LOOK_NS 50000
/* Thread state of the freezer, as in include/linux/sched.h. */
#define TASK_FROZEN 0x8000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct___throttled {
	bool throttled;
};

struct task_struct___frozen {
	unsigned int frozen : 1;
};

struct cfs_rq___throttled {
	int throttle_count;
};

#pragma clang attribute pop

/* Records the time that the hypervisor took on this CPU since the last read, if a thread that serves requests runs
 * there or waits for it. While the CPU works, reads are a few milliseconds apart at most. */
static __always_inline void look_at_stolen(struct sidelane_trace_cpu *state, uint32_t cpu, struct task_struct *task,
					   uint64_t now_ns)
{
	struct sidelane_lane_stats *stats = 0;

	if (settings.stolen_offset && now_ns - state->looked_ns >= STOLEN_LOOK_NS)
		stats = bpf_map_lookup_elem(&lane_stats, &cpu);
	if (!stats)
		return;
	find_run_queue(stats, task);
	uint64_t clock_ns = stolen_clock_ns(stats), seen_ns = state->stolen_seen_ns;
	state->stolen_seen_ns = clock_ns;
	state->looked_ns = now_ns;
	if (!seen_ns || above(clock_ns, seen_ns) < STOLEN_MIN_NS || (!state->tid && state->waiting <= 0))
		return;
	struct record record = {
		.at_ns = now_ns,
		.type = SIDELANE_TRACE_STOLEN,
		.tid = state->tid,
		.pid = state->pid,
		.request = present_request(state, cpu),
		.value = clock_ns - seen_ns,
	};
	tell(state, cpu, &record);
}

/* Records how long batch ran beside the service's thread since the last OVERLAP record. */
static __always_inline void tell_of_overlap(struct sidelane_trace_cpu *state, uint32_t cpu, uint64_t request,
					    uint64_t now_ns)
{
	struct sidelane_lane_role *role = 0;

	if (settings.lanes)
		role = bpf_map_lookup_elem(&lane_roles, &cpu);
	if (!role || role->role != SIDELANE_ROLE_REQUEST || !role->partner_count)
		return;
	uint64_t batch_ns = partners_batch_ns(cpu, now_ns), mark_ns = state->overlap_mark_ns;
	state->overlap_mark_ns = batch_ns;
	if ((int64_t)(batch_ns - mark_ns) <= 0 || !state->tid)
		return;
	struct record record = {
		.at_ns = now_ns,
		.type = SIDELANE_TRACE_OVERLAP,
		.detail = role->partners[0],
		.tid = state->tid,
		.pid = state->pid,
		.request = request,
		.value = batch_ns - mark_ns,
	};
	tell(state, cpu, &record);
}

/* Returns whether a thread is stopped by the CPU quota of its cgroup. Since Linux 6.18 a throttled thread leaves the
 * CPU by itself. In older kernels, the whole run queue of its cgroup is taken off the CPU. */
static __always_inline bool is_throttled(struct task_struct *task)
{
	struct task_struct___throttled *since_6_18 = (void *)task;
	struct cfs_rq___throttled *queue = (void *)task->se.cfs_rq;

	if (bpf_core_field_exists(since_6_18->throttled))
		return since_6_18->throttled;
	return bpf_core_field_exists(queue->throttle_count) && queue->throttle_count > 0;
}

/* Returns whether a thread is frozen: by the freezer of cgroup v1 or of cgroup v2. */
static __always_inline bool is_frozen(struct task_struct *task)
{
	struct task_struct___frozen *in_v2 = (void *)task;

	if (task->__state & TASK_FROZEN)
		return true;
	return bpf_core_field_exists(in_v2->frozen) && BPF_CORE_READ_BITFIELD(in_v2, frozen);
}

static __always_inline void tell_of_thread(struct sidelane_trace_cpu *state, uint32_t cpu, struct task_struct *task,
					   uint32_t type, uint32_t detail, uint64_t now_ns)
{
	struct record record = {
		.at_ns = now_ns,
		.type = type,
		.detail = detail,
		.tid = task->pid,
		.pid = task->tgid,
	};
	tell(state, cpu, &record);
}

/* Records that a service's thread leaves the CPU because of its CPU quota or the freezer. */
static __always_inline void note_denied(struct sidelane_trace_cpu *state, uint32_t cpu, struct task_struct *task,
					bool preempted, uint64_t now_ns)
{
	bool throttled = preempted && is_throttled(task), frozen = !preempted && is_frozen(task);
	struct sidelane_trace_thread *thread = throttled || frozen ? see_thread(task) : 0;

	if (!thread)
		return;
	if (throttled && !thread->throttled)
		tell_of_thread(state, cpu, task, SIDELANE_TRACE_THROTTLED, 1, now_ns);
	if (frozen && !thread->frozen)
		tell_of_thread(state, cpu, task, SIDELANE_TRACE_FROZEN, 1, now_ns);
	thread->throttled |= throttled;
	thread->frozen |= frozen;
}

/* Records that a throttled or frozen thread is on a CPU again. */
static __always_inline void note_allowed(struct sidelane_trace_cpu *state, uint32_t cpu, struct task_struct *task,
					 struct sidelane_trace_thread *thread, uint64_t now_ns)
{
	if (thread->throttled)
		tell_of_thread(state, cpu, task, SIDELANE_TRACE_THROTTLED, 0, now_ns);
	if (thread->frozen)
		tell_of_thread(state, cpu, task, SIDELANE_TRACE_FROZEN, 0, now_ns);
	thread->throttled = thread->frozen = 0;
}

#endif
