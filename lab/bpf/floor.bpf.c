// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs that do nothing, at the tracepoints of bpf/lanes.bpf.c: what the kernel charges
 * for calling any program there. `sidelane-lab bench hold` measures both.
 */
#include "kernel/types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/sched_switch")
int BPF_PROG(floor_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(floor_waking, struct task_struct *task)
{
	return 0;
}
