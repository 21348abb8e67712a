/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Alarms: a wakeup of the watchdog in user space, because of batch that a summons cannot move. Either a batch thread
 * outranks the lane's holder, or batch stays on a lane beside the service although it must leave.
 *
 * An alarm is a hint: the watchdog reads the lane words itself and decides. Hints are limited in number, so that batch
 * cannot keep the watchdog busy.
 */
#ifndef SIDELANE_ALARM_H
#define SIDELANE_ALARM_H

#include "lane/self_checking.h"
#include "maps.h"

/* Kernel priority of a holder, SCHED_FIFO 10 (HOLDER_PRIORITY in crates/host). A thread with this number or a lower
 * one does not yield to the holder. */
#define HOLDER_PRIO 89
/* Time after which a summons counts as unanswered. Batch normally leaves its lane within microseconds. */
#define UNANSWERED_NS 2000000
/* Minimum time between two alarms of a lane. */
#define ALARM_EVERY_NS 1000000

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} lane_alarms SEC(".maps");

static __always_inline void raise_alarm(uint32_t lane, struct sidelane_lane_stats *stats, uint64_t now_ns)
{
	uint32_t token = lane;

	if (now_ns - load_once(stats->alarm_ns) < ALARM_EVERY_NS)
		return;
	store_once(stats->alarm_ns, now_ns);
	bpf_ringbuf_output(&lane_alarms, &token, sizeof(token), BPF_RB_FORCE_WAKEUP);
}

static __always_inline bool outranks_the_holder(struct task_struct *task)
{
	return task->prio <= HOLDER_PRIO;
}

/* Returns whether batch must be off a lane while the service runs on a partner lane. */
static __always_inline bool has_to_be_empty(struct sidelane_hold_word *hold)
{
	uint32_t state = load_once(hold->state);

	return state == SIDELANE_SUMMONED || state == SIDELANE_HELD || state == SIDELANE_EVICTED;
}

static __always_inline bool a_partner_is_busy_since(struct sidelane_lane_role *role, uint64_t since_ns)
{
	for_each_partner(lane, role) {
		struct sidelane_lane_word *partner = lane_word(lane);
		if (partner && load_once(partner->busy) && load_once(partner->busy_since_ns) <= since_ns)
			return true;
	}
	return false;
}

/* Raises an alarm at a timer interrupt of the lane, if batch stays there although it must leave. This also detects
 * batch that never switches. */
static __always_inline void look_for_unanswered(uint32_t lane, struct sidelane_lane_role *role,
						struct sidelane_lane_stats *stats, struct sidelane_lane_word *word)
{
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &lane);

	if (!hold || word->class_ != SIDELANE_BATCH || !has_to_be_empty(hold) || looks_for_itself(word->pid))
		return;
	uint64_t now_ns = bpf_ktime_get_ns();
	if (stats->batch_since_ns && now_ns - stats->batch_since_ns >= UNANSWERED_NS && a_partner_is_busy_since(role, now_ns - UNANSWERED_NS))
		raise_alarm(lane, stats, now_ns);
}

#endif
