/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Context switches for request tracking, if neither lanes nor a trace need them. The program is attached only once
 * requests need it (switches_tell), since there are twice as many switches as requests.
 */
#ifndef SIDELANE_REQUEST_TURN_H
#define SIDELANE_REQUEST_TURN_H

#include "requests/thread.h"
#include "who.h"

/* Handles a thread that leaves the CPU. The thread's sleep shows that it has answered all requests that it received
 * together. Once a thread has answered a request that another thread received, sleeps also show when a thread started a
 * request. */
static __always_inline void leaves_what_it_answered(struct task_struct *prev, bool preempted)
{
	struct request_thread *thread = 0;

	if (!preempted && classify(prev) == SIDELANE_LC)
		thread = bpf_task_storage_get(&request_threads, prev, 0, 0);
	if (thread)
		thread_rests(thread, prev->pid);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(request_turn, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	bool preempted = was_preempted(preempt, prev);

	if (!load_once(requests_are_handed_over)) {
		leaves_what_it_answered(prev, preempted);
		return 0;
	}
	uint32_t was = classify(prev), is = classify(next);
	if (was == SIDELANE_LC || is == SIDELANE_LC)
		request_switch(bpf_get_smp_processor_id(), prev, was, preempted, next, is, bpf_ktime_get_ns());
	return 0;
}

#endif
