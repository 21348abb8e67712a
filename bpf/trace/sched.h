/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Scheduling events of threads that serve requests: they come, leave, wait and are woken. While a service's thread
 * waits for a CPU, the thread that has the CPU is recorded, too.
 */
#ifndef SIDELANE_TRACE_SCHED_H
#define SIDELANE_TRACE_SCHED_H

#include "trace/lost.h"
#include "trace/objects.h"

/* Thread states, as in include/linux/sched.h. */
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED_OR_TRACED 0xc
#define TASK_ENDED 0xb0 /* zombie, dead, or in its last switch */
#define TASK_NOLOAD 0x400 /* flag: the thread only seems to be blocked */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct___on_rq {
	int on_rq;
};

#pragma clang attribute pop

static __always_inline uint32_t why_it_leaves(struct task_struct *task, bool preempted)
{
	unsigned int state = task->__state;

	if (preempted)
		return SIDELANE_TRACE_LEFT_PREEMPTED;
	if (state & TASK_STOPPED_OR_TRACED)
		return SIDELANE_TRACE_LEFT_STOPPED;
	if (state & TASK_ENDED)
		return SIDELANE_TRACE_LEFT_ENDED;
	if (state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD))
		return SIDELANE_TRACE_LEFT_BLOCKED;
	return SIDELANE_TRACE_LEFT_SLEEPS;
}

/* Counts one more or one fewer thread of the service that waits for this CPU. */
static __always_inline void change_waiting(uint32_t cpu, int64_t by)
{
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (state && (by > 0 || load_once(state->waiting) > 0))
		__sync_fetch_and_add(&state->waiting, by);
}

/* Returns whether a thread of another program is recorded although no service thread woke it: the service waits until
 * that thread reads from a pipe or socket. */
static __always_inline bool is_watched(struct task_struct *task)
{
	struct sidelane_trace_thread *thread = trace_thread(task->pid);

	return thread && thread->tid == (uint32_t)task->pid && thread->watched;
}

/* Returns how many further wakeups are traced in a chain of wakeups that begins with this thread; 0: the thread does
 * not serve requests. */
static __always_inline uint32_t follow_of(struct task_struct *task, uint32_t class_)
{
	struct sidelane_trace_thread *thread = class_ == SIDELANE_OTHER ? trace_thread(task->pid) : 0;

	if (class_ == SIDELANE_LC)
		return FOLLOWED_WAKES;
	return thread && thread->tid == (uint32_t)task->pid ? thread->follow ?: thread->watched : 0;
}

/* Returns the request of the thread that leaves the CPU. The lanes' own program has already written the request of
 * the next thread. */
static __always_inline uint64_t request_that_leaves(struct sidelane_trace_cpu *state, uint32_t cpu,
						    struct task_struct *task)
{
	struct request_thread *thread = 0;

	if (!settings.lanes)
		return present_request(state, cpu);
	if (state->service)
		thread = bpf_task_storage_get(&request_threads, task, 0, 0);
	return thread ? thread->running : 0;
}

/* Returns the record of a service's thread that leaves the CPU to sleep: the reason is its system call. */
static __always_inline struct record of_call(struct task_struct *task, uint64_t request, uint64_t now_ns)
{
	struct pt_regs *regs = registers_of(task);

	struct record record = {
		.at_ns = now_ns,
		.type = SIDELANE_TRACE_SLEEPS_IN,
		.detail = number_of_call(regs),
		.tid = task->pid,
		.pid = task->tgid,
		.request = request,
		.value = first_argument(regs),
	};

	name_object(&record, task, regs);
	return record;
}

static __always_inline void leaves(struct sidelane_trace_cpu *state, uint32_t cpu, struct task_struct *task,
				   uint64_t request, bool preempted, uint64_t now_ns)
{
	struct sidelane_trace_thread *thread = state->service ? 0 : trace_thread(task->pid);

	if (state->service) {
		tell_of_overlap(state, cpu, request, now_ns);
		note_denied(state, cpu, task, preempted, now_ns);
		if (preempted)
			change_waiting(cpu, 1);
	} else if (thread && !preempted && why_it_leaves(task, false) != SIDELANE_TRACE_LEFT_BLOCKED) {
		/* The thread has done the work for which it was woken. */
		thread->follow = 0;
	}
}

/* Handles a thread that comes to the CPU. Returns when it was woken, 0 if it was only preempted before. */
static __always_inline uint64_t comes(struct sidelane_trace_cpu *state, uint32_t cpu, struct task_struct *task,
				      uint32_t identity, uint32_t follow, uint64_t now_ns)
{
	struct sidelane_trace_thread *thread = task->pid ? see_thread(task) : 0;
	uint64_t woken_ns = 0;

	if (thread) {
		woken_ns = thread->woken_ns;
		thread->woken_ns = 0;
	}
	if (follow && identity) {
		change_waiting(cpu, -1);
		if (thread)
			note_allowed(state, cpu, task, thread, now_ns);
	}
	return woken_ns;
}

static __always_inline void is_on(struct sidelane_trace_cpu *state, uint32_t cpu, struct task_struct *task,
				  uint32_t identity, uint32_t follow, uint64_t now_ns)
{
	state->tid = follow ? task->pid : 0;
	state->pid = follow ? task->tgid : 0;
	state->follow = follow;
	state->service = follow ? number_of(identity) : 0;
	if (state->service)
		tell_of_overlap(state, cpu, 0, now_ns);
	/* No thread waits for an idle CPU: this corrects a wrong count. */
	if (!task->pid)
		store_once(state->waiting, 0);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(trace_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);
	uint32_t identity = next->tgid ? identity_of(next->tgid) : 0, is = class_of(identity);

	if (!state)
		return 0;
	uint32_t follow = follow_of(next, is);
	if (!follow && !state->tid && load_once(state->waiting) <= 0)
		return 0;
	find_preempt_count(state, next);
	uint64_t now_ns = bpf_ktime_get_ns();
	uint32_t was = state->service ? SIDELANE_LC : SIDELANE_OTHER;
	bool preempted = was_preempted(preempt, prev);

	bool sleeps = calls_are_known && state->tid && !preempted && (state->service || is_watched(prev));
	uint64_t request = request_that_leaves(state, cpu, prev);

	look_at_stolen(state, cpu, next, now_ns);
	if (state->tid)
		leaves(state, cpu, prev, request, preempted, now_ns);
	else if (prev->pid)
		see_thread(prev);
	uint64_t woken_ns = comes(state, cpu, next, identity, follow, now_ns);
	struct record record = {
		.at_ns = now_ns,
		.type = SIDELANE_TRACE_SWITCHED,
		.detail = why_it_leaves(prev, preempted),
		.tid = prev->pid,
		.pid = prev->tgid,
		.other_tid = next->pid,
		.other_pid = next->tgid,
		.request = request,
		.value = woken_ns,
	};
	if (sleeps) {
		struct record call = of_call(prev, request, now_ns);
		tell_both(state, cpu, &call, &record);
	} else {
		tell(state, cpu, &record);
	}
	is_on(state, cpu, next, identity, follow, now_ns);
	if (!settings.lanes)
		request_switch(cpu, prev, was, preempted, next, is, now_ns);
	return 0;
}

/* Returns the user thread that runs on this CPU and serves no requests. Returns null if an interrupt may do the present
 * work. A kernel thread may deliver segments as an interrupt does, and is treated as one. */
static __always_inline struct task_struct *stranger_here(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!settings.preempt_count_offset || !task->mm)
		return 0;
	return task;
}

/* Returns the number plus 1 of the system call in which the running thread wakes another thread; 0 if it is unknown, or
 * in none. */
static __always_inline uint64_t call_of_waker(void)
{
	struct pt_regs *regs = registers_of(bpf_get_current_task_btf());

	return calls_are_known && !is_in_no_call(regs) ? (uint64_t)number_of_call(regs) + 1 : 0;
}

/* Returns flags of a WOKEN record: whether the running thread wakes all threads that wait at a futex, and whether the
 * futex is in its own control block. */
static __always_inline uint64_t flags_of_wake(uint64_t call)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = registers_of(task);
	uint64_t flags = 0;

	if (!calls_are_known || call != CALL_FUTEX + 1)
		return 0;
	if ((int)argument(regs, 3) > 1)
		flags |= SIDELANE_TRACE_WAKES_SEVERAL;
	if (first_argument(regs) - control_block_of(task) < CONTROL_BLOCK_BYTES)
		flags |= SIDELANE_TRACE_WAKES_JOINER;
	return flags;
}

/* Records that the running thread, or an interrupt, wakes a thread. */
static __always_inline void is_woken(struct task_struct *task)
{
	uint32_t cpu = bpf_get_smp_processor_id(), class_ = classify(task);
	struct sidelane_trace_cpu *state = trace_cpu(cpu);
	struct task_struct___on_rq *queued = (void *)task;

	if (!state || (class_ != SIDELANE_LC && state->follow <= 1))
		return;
	find_preempt_count(state, bpf_get_current_task_btf());
	bool by_timer = load_once(state->in_timer), by_interrupt = by_timer || is_interrupt(state);
	if (class_ != SIDELANE_LC && by_interrupt)
		return;
	struct task_struct *stranger = by_interrupt || state->tid ? 0 : stranger_here();
	uint64_t call = by_interrupt ? 0 : call_of_waker();
	struct sidelane_trace_thread *waker = stranger ? see_thread(stranger) : 0;
	if (waker && call && receives(call - 1))
		waker->watched = 1;
	struct sidelane_trace_thread *thread = see_thread(task);
	/* The value is read once. Otherwise the compiler reads a thread and a map's value by one instruction, which
	 * the verifier refuses. */
	struct record record = {
		.at_ns = bpf_ktime_get_ns(),
		.type = SIDELANE_TRACE_WOKEN,
		.detail = cpu_of(task),
		.tid = by_interrupt ? 0 : stranger ? (uint32_t)load_once(stranger->pid) : state->tid,
		.pid = by_interrupt ? 0 : stranger ? (uint32_t)load_once(stranger->tgid) : state->pid,
		.other_tid = task->pid,
		.other_pid = task->tgid,
		.request = by_interrupt ? 0 : present_request(state, cpu),
		.value = by_timer ? SIDELANE_TRACE_BY_TIMER : call | flags_of_wake(call),
	};
	if (thread) {
		thread->woken_ns = record.at_ns;
		thread->follow = class_ == SIDELANE_LC ? 0 : state->follow - 1;
	}
	if (class_ == SIDELANE_LC && !queued->on_rq)
		change_waiting(cpu_of(task), 1);
	tell(state, cpu, &record);
}

/* Records a wakeup. Runs on the waker's CPU, before the kernel chooses a CPU for the thread. */
SEC("tp_btf/sched_waking")
int BPF_PROG(trace_waking, struct task_struct *task)
{
	is_woken(task);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(trace_wakeup_new, struct task_struct *task)
{
	is_woken(task);
	return 0;
}

/* Stores the new name of a thread, set by prctl or by the execution of another program. */
SEC("tp_btf/task_rename")
int BPF_PROG(trace_rename, struct task_struct *task, const char *comm)
{
	struct sidelane_trace_thread *thread = trace_thread(task->pid);

	if (thread && thread->tid == (uint32_t)task->pid)
		bpf_probe_read_kernel_str(thread->comm, sizeof(thread->comm), comm);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(trace_migrate, struct task_struct *task, int to_cpu)
{
	uint32_t cpu = bpf_get_smp_processor_id(), from_cpu = cpu_of(task);
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (!state || classify(task) != SIDELANE_LC)
		return 0;
	change_waiting(from_cpu, -1);
	change_waiting(to_cpu, 1);
	struct record record = {
		.at_ns = bpf_ktime_get_ns(),
		.type = SIDELANE_TRACE_MIGRATED,
		.detail = from_cpu,
		.tid = task->pid,
		.pid = task->tgid,
		.value = to_cpu,
	};
	tell(state, cpu, &record);
	return 0;
}

#endif
