/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Work on a batch lane beside the service that is no turn of batch: kernel threads, other programs, interrupts.
 *
 * Overlap counts turns of batch's threads. It does not count the kernel's work, for batch or for others, on a lane that
 * is kept empty of batch. That work is counted here, in switches of batch lanes only: switches of the service cost no
 * more.
 */
#ifndef SIDELANE_KERNEL_WORK_H
#define SIDELANE_KERNEL_WORK_H

#include "lane/accounting.h"
#include "lane/stolen.h"

/* Flags of a kernel thread or worker in task_struct, the same since Linux 3.10. */
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD 0x00200000

static __always_inline bool serves_interrupts(struct task_struct *task)
{
	bool is_softirqd = task->comm[0] == 'k' && task->comm[1] == 's' && task->comm[2] == 'o' &&
			   task->comm[3] == 'f';

	return is_softirqd ||
	       (task->comm[0] == 'i' && task->comm[1] == 'r' && task->comm[2] == 'q' && task->comm[3] == '/');
}

/* Returns the kind of a turn that begins, by its thread. */
static __always_inline uint32_t turn_kind(struct task_struct *task, uint32_t class_, bool is_the_holder)
{
	if (class_ == SIDELANE_IDLE || is_the_holder)
		return SIDELANE_TURN_EMPTY;
	if (class_ != SIDELANE_OTHER)
		return SIDELANE_TURN_OWN;
	if (!(task->flags & PF_KTHREAD))
		return SIDELANE_TURN_PROGRAM;
	if (task->flags & PF_WQ_WORKER)
		return SIDELANE_TURN_WORKER;
	return serves_interrupts(task) ? SIDELANE_TURN_INTERRUPT : SIDELANE_TURN_KERNEL;
}

/* Returns the time that the lane has spent in softirqs and interrupts: two adjacent fields of the kernel's
 * statistics of each CPU. */
static __always_inline uint64_t interrupts_clock_ns(struct sidelane_lane_stats *stats)
{
	uint64_t times_ns[2] = {};

	if (settings.interrupts_offset && stats->run_queue)
		bpf_probe_read_kernel(times_ns, sizeof(times_ns),
				      (void *)(stats->run_queue + settings.interrupts_offset));
	return times_ns[0] + times_ns[1];
}

/* Handles the end of a turn of any kind on the batch lane `cpu`, and the begin of a turn of the kind `next`. */
CHECKED_ALONE int kernel_work_turn(uint32_t cpu, uint32_t next, uint64_t now_ns)
{
	struct sidelane_kernel_work *work = bpf_map_lookup_elem(&kernel_work, &cpu);
	struct sidelane_lane_stats *stats = bpf_map_lookup_elem(&lane_stats, &cpu);

	if (!work || !stats)
		return 0;
	uint64_t clock_ns = partners_lc_clock_ns(cpu, now_ns);
	uint64_t interrupts_ns = interrupts_clock_ns(stats);
	uint32_t turn = load_once(work->turn);

	if (turn != SIDELANE_TURN_OWN) {
		uint64_t both_ns = above(clock_ns, work->mark_ns);
		uint64_t taken_ns = above(interrupts_ns, work->interrupts_mark_ns);
		both_ns = above(both_ns, above(stats->stolen_seen_ns, work->stolen_mark_ns));
		if (taken_ns > both_ns)
			taken_ns = both_ns;
		store_once(work->interrupts_ns, work->interrupts_ns + taken_ns);
		if (turn >= SIDELANE_TURN_WORKER) {
			uint32_t kind = (turn - SIDELANE_TURN_WORKER) & (SIDELANE_OTHER_KINDS - 1);
			store_once(work->beside_ns[kind], work->beside_ns[kind] + both_ns - taken_ns);
		}
	}
	work->mark_ns = clock_ns;
	work->stolen_mark_ns = stats->stolen_seen_ns;
	work->interrupts_mark_ns = interrupts_ns;
	store_once(work->turn, next);
	return 0;
}

#endif
