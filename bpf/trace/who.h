/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Threads that serve requests: those of a service, and threads that were woken by such a thread, directly or through
 * other threads, until they sleep again. The number of wakeups in between is limited. A flag of each CPU says whether
 * the running thread serves requests.
 */
#ifndef SIDELANE_TRACE_WHO_H
#define SIDELANE_TRACE_WHO_H

#include "trace/record.h"
#include "who.h"

/* Number of wakeups in a row that are followed: a service's thread wakes a kernel thread, which wakes another. Threads
 * after more wakeups rarely serve requests. */
#define FOLLOWED_WAKES 3

/* Bit of the preempt count while a softirq is served, since Linux 2.6, unless it is a real-time kernel. */
#define SERVES_SOFTIRQ 0x100
#define SERVES_INTERRUPT 0xff0000

extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

/* Reference count; stands for any kernel type that begins with one. */
struct refcount_struct {
	atomic_t refs;
};

#pragma clang attribute pop

/* Finds the address of the CPU's preempt count. Kernels do not tell BPF programs the addresses of variables, but the
 * variables of one CPU are at fixed distances. */
static __always_inline void find_preempt_count(struct sidelane_trace_cpu *state, struct task_struct *task)
{
	if (settings.preempt_count_offset && !state->preempt_count)
		state->preempt_count = (uint64_t)BPF_CORE_READ(task, se.cfs_rq, rq) + settings.preempt_count_offset;
}

/* Returns whether an interrupt or a softirq does the present work, and not the thread that it interrupted. If that
 * is unknown, the work counts as the thread's own. */
static __always_inline bool is_interrupt(struct sidelane_trace_cpu *state)
{
	if (!settings.preempt_count_offset || !state->preempt_count)
		return false;
	void *where = (void *)state->preempt_count;
	struct refcount_struct *count = bpf_rdonly_cast(where, bpf_core_type_id_kernel(struct refcount_struct));
	return count->refs.counter & (SERVES_SOFTIRQ | SERVES_INTERRUPT);
}

/* Returns the table entry for a thread id; the entry may contain another thread. */
static __always_inline struct sidelane_trace_thread *trace_thread(uint32_t tid)
{
	uint32_t place = tid % SIDELANE_TRACE_THREADS;

	return bpf_map_lookup_elem(&trace_threads, &place);
}

/* Returns the thread's table entry, and takes the entry over if another thread has it. */
static __always_inline struct sidelane_trace_thread *see_thread(struct task_struct *task)
{
	struct sidelane_trace_thread *thread = trace_thread(task->pid);

	if (!thread || thread->tid == (uint32_t)task->pid)
		return thread;
	thread->follow = thread->frozen = thread->throttled = thread->watched = 0;
	thread->woken_ns = 0;
	bpf_probe_read_kernel(thread->comm, sizeof(thread->comm), task->comm);
	store_once(thread->tid, task->pid);
	return thread;
}

/* Returns the request of the running thread. */
static __always_inline uint64_t present_request(struct sidelane_trace_cpu *state, uint32_t cpu)
{
	struct sidelane_request_word *word = state->service ? request_word(cpu) : 0;

	return word ? word->running : 0;
}

/* Records an event of the running thread. */
static __always_inline void tell_of_present(struct sidelane_trace_cpu *state, uint32_t cpu, uint32_t type,
					    uint32_t detail, uint64_t value)
{
	struct record record = {
		.at_ns = bpf_ktime_get_ns(),
		.type = type,
		.detail = detail,
		.tid = state->tid,
		.pid = state->pid,
		.request = present_request(state, cpu),
		.value = value,
	};
	tell(state, cpu, &record);
}

#endif
