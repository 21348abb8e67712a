/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Preemption of a thread. Also compiled into the lab's emulated sibling.
 */
#ifndef SIDELANE_PREEMPTED_H
#define SIDELANE_PREEMPTED_H

#include "kernel/types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Returns the kernel's TASK_ flags of a thread; 0: it can run. */
static __always_inline unsigned int state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	struct task_struct___before_5_14 *old = (void *)task;
	return BPF_CORE_READ(old, state);
}

/* Returns whether a thread that was switched out was preempted, and so could have run on. */
static __always_inline bool was_preempted(bool preempt, struct task_struct *prev)
{
	return preempt || state_of(prev) == 0;
}

#endif
