/* SPDX-License-Identifier: GPL-2.0-only
 *
 * System call in which a thread is, if any, from the registers that the kernel saved at its entry. Reading them when
 * the thread goes to sleep costs nothing at other times. Tracepoints at the begin and end of each call would slow every
 * program of the machine.
 */
#ifndef SIDELANE_TRACE_REGISTERS_H
#define SIDELANE_TRACE_REGISTERS_H

#include "kernel/types.h"
#include <bpf/bpf_helpers.h>

#if defined(__TARGET_ARCH_x86)
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long r10;
	unsigned long r8;
	unsigned long orig_ax;
	unsigned long sp;
};

struct thread_struct {
	unsigned long fsbase;
};

struct task_struct___x86 {
	struct thread_struct thread;
};

#pragma clang attribute pop

/* Returns the number of the system call in saved registers, as the kernel's interface defines it; -1 if the entry
 * was no system call. */
#define number_of_call(regs) ((uint32_t)(regs)->orig_ax)
#define first_argument(regs) ((regs)->di)
#define argument(regs, number) \
	((number) == 2 ? (regs)->si : (number) == 3 ? (regs)->dx : (number) == 4 ? (regs)->r10 : (regs)->r8)
#define is_in_no_call(regs) ((long)(regs)->orig_ax == -1)
#define stack_pointer(regs) ((regs)->sp)
/* Returns the address of a thread's control block, in which its C library keeps the thread's state. */
#define control_block_of(task) (((struct task_struct___x86 *)(task))->thread.fsbase)
#define calls_are_known true
#else
struct pt_regs;
#define number_of_call(regs) ((void)(regs), 0)
#define first_argument(regs) ((void)(regs), 0)
#define argument(regs, number) ((void)(regs), 0)
#define is_in_no_call(regs) ((void)(regs), false)
#define stack_pointer(regs) ((void)(regs), 0)
#define control_block_of(task) ((void)(task), 0)
#define calls_are_known false
#endif

static __always_inline struct pt_regs *registers_of(struct task_struct *task)
{
	return (struct pt_regs *)bpf_task_pt_regs(task);
}

#endif
