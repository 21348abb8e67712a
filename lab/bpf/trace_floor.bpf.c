// SPDX-License-Identifier: GPL-2.0-only
/*
 * Empty programs at the tracepoints of a trace. Their cost is the kernel's own cost of calling any program there.
 * `sidelane-lab bench tail` compares the cost of a trace with it.
 */
#include "kernel/types.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

/* Defines a kernel program that does nothing, under the name of one of the trace's programs. User space can then load
 * the same programs, selected by name, as a trace does. */
#define EMPTY(name, tracepoint)                \
	SEC("tp_btf/" #tracepoint)             \
	int name(unsigned long long *context)  \
	{                                      \
		return 0;                      \
	}

EMPTY(lane_fork, sched_process_fork)
EMPTY(lane_free, sched_process_free)
EMPTY(request_data, sk_data_ready)
EMPTY(request_received, sock_recv_length)
EMPTY(request_sent, sock_send_length)
EMPTY(request_closed, inet_sock_set_state)
EMPTY(trace_segment, netif_receive_skb)
EMPTY(trace_transmit, net_dev_start_xmit)
EMPTY(trace_retransmit, tcp_retransmit_skb)
EMPTY(trace_acknowledge, tcp_probe)
EMPTY(trace_switch, sched_switch)
EMPTY(trace_waking, sched_waking)
EMPTY(trace_wakeup_new, sched_wakeup_new)
EMPTY(trace_migrate, sched_migrate_task)
EMPTY(trace_fault, page_fault_user)
EMPTY(trace_fault_in_kernel, page_fault_kernel)
EMPTY(trace_fault_ends, rss_stat)
EMPTY(trace_signal, signal_deliver)
EMPTY(trace_lock_wait, contention_begin)
EMPTY(trace_lock_taken, contention_end)
EMPTY(trace_reclaim_begins, mm_vmscan_direct_reclaim_begin)
EMPTY(trace_reclaim_ends, mm_vmscan_direct_reclaim_end)
EMPTY(trace_softirq_begins, softirq_entry)
EMPTY(trace_softirq_ends, softirq_exit)
EMPTY(trace_irq_begins, irq_handler_entry)
EMPTY(trace_irq_ends, irq_handler_exit)
EMPTY(trace_idle, cpu_idle)
EMPTY(trace_timer, hrtimer_expire_exit)
EMPTY(trace_timer_begins, hrtimer_expire_entry)
EMPTY(trace_wheel_begins, timer_expire_entry)
EMPTY(trace_wheel_ends, timer_expire_exit)
EMPTY(trace_disk_asked, block_rq_issue)
EMPTY(trace_disk_answers, block_rq_complete)
