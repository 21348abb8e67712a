/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Waits of threads in the kernel: page faults, the kernel's own locks, reclaim of memory, signals.
 */
#ifndef SIDELANE_TRACE_WAITS_H
#define SIDELANE_TRACE_WAITS_H

#include "trace/registers.h"
#include "trace/who.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef atomic64_t atomic_long_t;

struct mutex {
	atomic_long_t owner;
};

struct rw_semaphore {
	atomic_long_t owner;
};

#pragma clang attribute pop

/* ---- Page faults and signals, of the service's threads only ---- */

static __always_inline void tell_of_service(uint32_t type, uint32_t detail, uint64_t value)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (state && state->service)
		tell_of_present(state, cpu, type, detail, value);
}

#define FAULT_BEGINS 1
#define FAULT_ENDS 2
#define FAULT_BEGINS_IN_CALL 3

SEC("tp_btf/page_fault_user")
int BPF_PROG(trace_fault, unsigned long address)
{
	tell_of_service(SIDELANE_TRACE_PAGE_FAULT, FAULT_BEGINS, address);
	return 0;
}

/* Records a page fault in the kernel, while it copied to or from the thread's memory. */
SEC("tp_btf/page_fault_kernel")
int BPF_PROG(trace_fault_in_kernel, unsigned long address)
{
	tell_of_service(SIDELANE_TRACE_PAGE_FAULT, FAULT_BEGINS_IN_CALL, address);
	return 0;
}

/* Handles a change in the number of pages of a process, as the end of a page fault. A thread in the kernel outside
 * any system call is there for a page fault, and this is nearly its last step. Faults that do not change the number
 * of pages have no end here. */
SEC("tp_btf/rss_stat")
int BPF_PROG(trace_fault_ends, struct mm_struct *memory)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (!state || !state->service)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();

	if (is_in_no_call(registers_of(task)) && task->mm == memory)
		tell_of_present(state, cpu, SIDELANE_TRACE_PAGE_FAULT, FAULT_ENDS, 0);
	return 0;
}

SEC("tp_btf/signal_deliver")
int BPF_PROG(trace_signal, int number)
{
	tell_of_service(SIDELANE_TRACE_SIGNAL_DELIVERED, number, 0);
	return 0;
}

/* ---- Locks and reclaim, of all threads that serve requests ---- */

static __always_inline void tell_of_any(uint32_t type)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (state && state->tid && !is_interrupt(state))
		tell_of_present(state, cpu, type, 0, 0);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(trace_reclaim_begins)
{
	tell_of_any(SIDELANE_TRACE_RECLAIM_BEGAN);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(trace_reclaim_ends)
{
	tell_of_any(SIDELANE_TRACE_RECLAIM_ENDED);
	return 0;
}

/* Flags of the tracepoint contention_begin, as in include/trace/events/lock.h. */
#define LOCK_SPINS 0x01
#define LOCK_READS 0x02
#define LOCK_WRITES 0x04
#define LOCK_IS_MUTEX 0x20
/* Mask of a lock's owner field, whose lowest bits are flags of the lock. */
#define OWNER_MASK (~7ul)

/* Returns the holder of a kernel lock: always known for a mutex, for a semaphore only while a writer has it. */
static __always_inline struct task_struct *holder_of(const void *lock, uint32_t flags)
{
	uint64_t owner = 0;

	if (flags & LOCK_IS_MUTEX) {
		struct mutex *mutex = bpf_rdonly_cast(lock, bpf_core_type_id_kernel(struct mutex));
		owner = mutex->owner.counter;
	} else if (flags == LOCK_READS || flags == LOCK_WRITES) {
		struct rw_semaphore *semaphore = bpf_rdonly_cast(lock, bpf_core_type_id_kernel(struct rw_semaphore));
		owner = semaphore->owner.counter;
	}
	return owner & OWNER_MASK ?
		       bpf_rdonly_cast((void *)(owner & OWNER_MASK), bpf_core_type_id_kernel(struct task_struct)) :
		       0;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(trace_lock_wait, void *lock, unsigned int flags)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (!state || !state->tid || is_interrupt(state))
		return 0;
	struct task_struct *holder = holder_of(lock, flags);
	struct record record = {
		.at_ns = bpf_ktime_get_ns(),
		.type = SIDELANE_TRACE_LOCK_WAIT_BEGAN,
		.detail = flags,
		.tid = state->tid,
		.pid = state->pid,
		.other_tid = holder ? holder->pid : 0,
		.other_pid = holder ? holder->tgid : 0,
		.request = present_request(state, cpu),
		.value = (uint64_t)lock,
	};
	tell(state, cpu, &record);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(trace_lock_taken, void *lock)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (state && state->tid && !is_interrupt(state))
		tell_of_present(state, cpu, SIDELANE_TRACE_LOCK_WAIT_ENDED, 0, (uint64_t)lock);
	return 0;
}

#endif
