// SPDX-License-Identifier: GPL-2.0-only
/*
 * Empty programs at the tracepoints of bpf/lanes.bpf.c. Their cost is the kernel's own cost of calling any
 * program there. `sidelane-lab bench hold` compares the cost of bpf/lanes.bpf.c with it.
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
