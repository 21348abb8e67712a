/* SPDX-License-Identifier: GPL-2.0-only
 *
 * CPU of a thread. src/tracker/self_check.rs compares this number once with the CPU of a thread that knows its CPU.
 */
#ifndef SIDELANE_PLACE_H
#define SIDELANE_PLACE_H

#include "kernel/types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Returns the CPU on which a thread runs, or ran last. */
static __always_inline uint32_t cpu_of(struct task_struct *task)
{
	struct task_struct___before_5_16 *old = (void *)task;

	return bpf_core_field_exists(old->cpu) ? old->cpu : task->thread_info.cpu;
}

#endif
