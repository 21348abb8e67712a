/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Events that keep a CPU from a thread that serves requests and runs there or waits for it: interrupts, softirqs,
 * idle states, the hypervisor. Events on other CPUs, and short events, are not recorded.
 */
#ifndef SIDELANE_TRACE_CPUS_H
#define SIDELANE_TRACE_CPUS_H

#include "trace/lost.h"

static __always_inline bool is_wanted(struct sidelane_trace_cpu *state)
{
	return state->tid || load_once(state->waiting) > 0;
}

/* Records an event on this CPU that began at `since_ns` and ends now, unless it was shorter than the trace's limit. */
static __always_inline void tell_if_long(struct sidelane_trace_cpu *state, uint32_t cpu, uint32_t type, uint32_t detail,
					 uint64_t since_ns)
{
	uint64_t now_ns = since_ns ? bpf_ktime_get_ns() : 0;
	struct record record = {
		.at_ns = now_ns,
		.type = type,
		.detail = detail,
		.tid = state->tid,
		.pid = state->pid,
		.request = present_request(state, cpu),
		.value = now_ns - since_ns,
	};

	if (record.value >= settings.trace_long_ns && since_ns)
		tell(state, cpu, &record);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(trace_softirq_begins, unsigned int vector)
{
	struct sidelane_trace_cpu *state = trace_cpu(bpf_get_smp_processor_id());

	if (state)
		state->softirq_since_ns = is_wanted(state) ? bpf_ktime_get_ns() : 0;
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(trace_softirq_ends, unsigned int vector)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (state)
		tell_if_long(state, cpu, SIDELANE_TRACE_SOFTIRQ, vector, state->softirq_since_ns);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(trace_irq_begins, int number)
{
	struct sidelane_trace_cpu *state = trace_cpu(bpf_get_smp_processor_id());

	if (state)
		state->irq_since_ns = is_wanted(state) ? bpf_ktime_get_ns() : 0;
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(trace_irq_ends, int number)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (state)
		tell_if_long(state, cpu, SIDELANE_TRACE_INTERRUPT, number, state->irq_since_ns);
	return 0;
}

#define IDLE_ENDS 0xffffffff

SEC("tp_btf/cpu_idle")
int BPF_PROG(trace_idle, unsigned int idle_state, unsigned int of_cpu)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (!state)
		return 0;
	if (idle_state != IDLE_ENDS) {
		state->idle_since_ns = bpf_ktime_get_ns();
		state->idle_state = idle_state;
		look_at_stolen(state, cpu, bpf_get_current_task_btf(), state->idle_since_ns);
	} else if (load_once(state->waiting) > 0 && state->idle_since_ns) {
		uint64_t now_ns = bpf_ktime_get_ns();
		struct record record = {
			.at_ns = now_ns,
			.type = SIDELANE_TRACE_IDLE_LEFT,
			.detail = state->idle_state,
			.value = now_ns - state->idle_since_ns,
		};
		tell(state, cpu, &record);
	}
	return 0;
}

/* Records whether a timer's function runs on this CPU: a wakeup during it comes from a timer, either a high-resolution
 * timer or one of the timer wheel. Each begin replaces the one before, so a missed end matters only until the next
 * timer. */
static __always_inline void timer_runs(bool runs)
{
	struct sidelane_trace_cpu *state = trace_cpu(bpf_get_smp_processor_id());

	if (state)
		store_once(state->in_timer, runs);
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(trace_timer_begins, struct hrtimer *timer)
{
	timer_runs(true);
	return 0;
}

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(trace_wheel_begins)
{
	timer_runs(true);
	return 0;
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(trace_wheel_ends)
{
	timer_runs(false);
	return 0;
}

/* Checks for stolen time at the end of each timer. A timer comes at once after a long gap, and every few
 * milliseconds on a CPU that works. */
SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(trace_timer, struct hrtimer *timer)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (!state)
		return 0;
	store_once(state->in_timer, 0);
	look_at_stolen(state, cpu, bpf_get_current_task_btf(), bpf_ktime_get_ns());
	return 0;
}

#endif
