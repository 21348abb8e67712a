// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs that do nothing, at the tracepoints of a trace: what the kernel charges for calling any program there.
 * `sidelane-lab bench tail` compares a trace with them.
 */
#include "kernel/types.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

/* Named as the programs of a trace are, so that the same ones are chosen. */
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
EMPTY(tale_segment, netif_receive_skb)
EMPTY(tale_transmit, net_dev_start_xmit)
EMPTY(tale_retransmit, tcp_retransmit_skb)
EMPTY(tale_acknowledge, tcp_probe)
EMPTY(tale_switch, sched_switch)
EMPTY(tale_waking, sched_waking)
EMPTY(tale_wakeup_new, sched_wakeup_new)
EMPTY(tale_migrate, sched_migrate_task)
EMPTY(tale_fault, page_fault_user)
EMPTY(tale_fault_in_kernel, page_fault_kernel)
EMPTY(tale_fault_ends, rss_stat)
EMPTY(tale_signal, signal_deliver)
EMPTY(tale_lock_wait, contention_begin)
EMPTY(tale_lock_taken, contention_end)
EMPTY(tale_reclaim_begins, mm_vmscan_direct_reclaim_begin)
EMPTY(tale_reclaim_ends, mm_vmscan_direct_reclaim_end)
EMPTY(tale_softirq_begins, softirq_entry)
EMPTY(tale_softirq_ends, softirq_exit)
EMPTY(tale_irq_begins, irq_handler_entry)
EMPTY(tale_irq_ends, irq_handler_exit)
EMPTY(tale_idle, cpu_idle)
EMPTY(tale_timer, hrtimer_expire_exit)
EMPTY(tale_timer_begins, hrtimer_expire_entry)
EMPTY(tale_wheel_begins, timer_expire_entry)
EMPTY(tale_wheel_ends, timer_expire_exit)
EMPTY(tale_disk_asked, block_rq_issue)
EMPTY(tale_disk_answers, block_rq_complete)
