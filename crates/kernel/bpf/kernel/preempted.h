/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Was it preempted? Also compiled into the lab's emulated sibling.
 */
#ifndef SIDELANE_PREEMPTED_H
#define SIDELANE_PREEMPTED_H

#include "kernel/types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* A thread that was switched out, but would rather run on. */
static __always_inline bool was_preempted(bool preempt, struct task_struct *prev)
{
	if (preempt)
		return true;
	if (bpf_core_field_exists(prev->__state))
		return prev->__state == 0;
	struct task_struct___before_5_14 *old = (void *)prev;
	return BPF_CORE_READ(old, state) == 0;
}

#endif
