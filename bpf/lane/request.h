/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Begin and end of the service's work on a request lane: the busy flag of the lane's word, and the lanes to summon.
 */
#ifndef SIDELANE_REQUEST_LANE_H
#define SIDELANE_REQUEST_LANE_H

#include "lane/alarm.h"
#include "lane/accounting.h"
#include "lane/self_checking.h"
#include "lane/stolen.h"
#include "lane/summons.h"
#include "who.h"

/* Returns whether batch has to be summoned from a lane: it runs there, or will run when the thread that preempted it
 * has ended its turn. */
static __always_inline bool batch_is_on(uint32_t lane, struct sidelane_hold_word *hold)
{
	struct sidelane_lane_word *word = lane_word(lane);

	if (!word)
		return false;
	if (load_once(word->class_) == SIDELANE_BATCH)
		return !looks_for_itself(load_once(word->pid));
	return load_once(hold->batch_waits) && !looks_for_itself(load_once(hold->waiting_pid));
}

/* Summons the holders of all partner lanes, because the service starts on a lane with this role. The caller has just
 * set that lane's word to busy, with a full barrier. */
CHECKED_ALONE int service_starts(struct sidelane_lane_role *role, uint32_t lc_pays)
{
	if (!role)
		return 0;
	count_busy_lane(role, 1);
	for_each_partner(lane, role) {
		struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &lane);
		if (!hold || !batch_is_on(lane, hold))
			continue;
		mark_stolen(lane);
		summon_beside_busy(lane, hold, lc_pays);
	}
	return 0;
}

/* Records the reaction of batch that never left the lane in a busy period, though it had to: without an end of batch's
 * turn, nothing else records the reaction. Shorter busy periods are left out, since they end while batch is about to
 * leave. */
static __always_inline void record_unanswered(uint32_t lane, struct sidelane_hold_word *hold, uint64_t busy_since_ns,
					      uint64_t now_ns)
{
	struct sidelane_lane_word *word = lane_word(lane);

	if (!word || ext_is_on() || load_once(word->class_) != SIDELANE_BATCH)
		return;
	struct sidelane_lane_stats *stats = bpf_map_lookup_elem(&lane_stats, &lane);
	uint64_t began_ns = stats ? load_once(stats->batch_since_ns) : 0;
	if (!began_ns || load_once(stats->turn_is_lent) || !has_to_be_empty(hold) || looks_for_itself(load_once(word->pid)))
		return;
	uint64_t both_ns = above(now_ns, began_ns > busy_since_ns ? began_ns : busy_since_ns);
	if (both_ns >= UNANSWERED_NS)
		record(stats->off_hist, both_ns);
}

/* Handles the end of a busy period of the service on the lane `own`. The caller has just set the lane's word to not
 * busy, with a full barrier. */
CHECKED_ALONE int service_stops(struct sidelane_lane_role *role, struct sidelane_lane_word *own)
{
	if (!role || !own)
		return 0;
	uint64_t busy_since_ns = load_once(own->busy_since_ns), idle_since_ns = load_once(own->idle_since_ns);

	count_busy_lane(role, -1);
	for_each_partner(lane, role) {
		struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &lane);
		if (!hold)
			continue;
		/* A shorter busy period than this leaves nothing unanswered. */
		if (idle_since_ns - busy_since_ns >= UNANSWERED_NS)
			record_unanswered(lane, hold, busy_since_ns, idle_since_ns);
		if (load_once(hold->state) == SIDELANE_HELD)
			mark_stolen(lane);
		call_when_idle(lane, hold);
		if (ext_is_on())
			ext_let_in(lane);
	}
	return 0;
}

static __always_inline bool make_busy(struct sidelane_lane_word *word, uint64_t now_ns)
{
	if (load_once(word->busy))
		return false;
	store_once(word->busy_since_ns, now_ns);
	return !__sync_lock_test_and_set(&word->busy, 1);
}

static __always_inline bool make_idle(struct sidelane_lane_word *word, struct sidelane_lane_stats *stats, uint64_t now_ns)
{
	if (!load_once(word->busy))
		return false;
	uint64_t busy_ns = above(now_ns, load_once(word->busy_since_ns));
	store_once(word->idle_since_ns, now_ns);
	if (!__sync_lock_test_and_set(&word->busy, 0))
		return false;
	__sync_fetch_and_add(&stats->busy_ns, busy_ns);
	return true;
}

/* Returns whether a thread may run on `cpu`. The CPU affinity of a sleeping thread may have changed since it last
 * ran. */
static __always_inline bool may_run_on(struct task_struct *task, uint32_t cpu)
{
	unsigned long word = 0;

	if (cpu < 64)
		return task->cpus_ptr->bits[0] >> cpu & 1;
	bpf_core_read(&word, sizeof(word), &task->cpus_ptr->bits[cpu / 64]);
	return word >> (cpu % 64) & 1;
}

/* Marks `cpu` busy, because a thread of the service is about to run there. */
static __always_inline void service_woken(struct task_struct *task, uint32_t cpu)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);

	if (!role || role->role != SIDELANE_ROLE_REQUEST)
		return;
	struct sidelane_lane_word *word = lane_word(cpu);
	if (!word || load_once(word->busy))
		return;
	if (classify(task) == SIDELANE_LC && may_run_on(task, cpu) && make_busy(word, bpf_ktime_get_ns()))
		service_starts(role, cpu == bpf_get_smp_processor_id());
}

#endif
