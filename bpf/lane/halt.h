/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Halts of Sidelane itself: a holder that is stopped or frozen keeps batch off no lane. This program runs whether or
 * not Sidelane does, and sees the switch with which a thread halts. So it wakes the guardian, another process.
 */
#ifndef SIDELANE_HALT_H
#define SIDELANE_HALT_H

#include "maps.h"
#include "kernel/preempted.h"

/* Thread states of a stopped or frozen thread. The freezer of cgroup v1 sets TASK_FROZEN since Linux 6.1. */
#define TASK_STOPPED 0x4
#define TASK_TRACED 0x8
#define TASK_FROZEN 0x8000
/* Flag that the freezer of cgroup v1 set before Linux 6.1. */
#define PF_FROZEN 0x10000
/* Job control flag: the freezer of cgroup v2 holds the thread (JOBCTL_TRAP_FREEZE). */
#define TRAP_FREEZE (1UL << 23)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} halt_events SEC(".maps");

static __always_inline bool is_halted(struct task_struct *task)
{
	unsigned int state = state_of(task);

	return state & (TASK_STOPPED | TASK_TRACED | TASK_FROZEN) ||
	       (state && (task->flags & PF_FROZEN || task->jobctl & TRAP_FREEZE));
}

static __always_inline void note_halt(struct task_struct *prev)
{
	uint32_t agent = settings.agent;

	if (agent && (uint32_t)prev->tgid == agent && is_halted(prev)) {
		uint32_t pid = prev->pid;
		bpf_ringbuf_output(&halt_events, &pid, sizeof(pid), BPF_RB_FORCE_WAKEUP);
	}
}

#endif
