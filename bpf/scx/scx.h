/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Parts of sched_ext that the lane program needs: whether batch may run, and how it is made to leave a lane. scx/ops.h
 * is the scheduler itself.
 *
 * The verifier checks a function that is not inlined once, and not once for each path to it: without that, loading the
 * program would take several times as long.
 */
#ifndef SIDELANE_SCX_H
#define SIDELANE_SCX_H

#include "maps.h"

/* Numbers of the kernel's scheduling class for sched_ext and of its kick flags. They belong to no stable interface,
 * but have never changed. */
#define SCHED_EXT 7
#define SCX_KICK_IDLE (1ULL << 0)
#define SCX_KICK_PREEMPT (1ULL << 1)

extern void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym;

static __always_inline void call_keeper(uint32_t lane, struct sidelane_hold_word *hold, uint32_t states, bool lc_pays);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_ext_word);
} ext_words SEC(".maps");

/* Flags of lanes: 1 if batch waited when it was last refused there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, uint32_t);
} ext_refused SEC(".maps");

static __always_inline struct sidelane_ext_word *ext_word(void)
{
	uint32_t only = 0;

	return bpf_map_lookup_elem(&ext_words, &only);
}

static __always_inline bool ext_is_on(void)
{
	struct sidelane_ext_word *ext = ext_word();

	return ext && load_once(ext->on);
}

static __always_inline struct sidelane_lane_role *batch_lane(uint32_t cpu)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);

	return role && role->role == SIDELANE_ROLE_BATCH ? role : 0;
}

/* Returns whether the hold word lets batch run on a lane. In state EVICTED it does: threads that were sent away have
 * to run until they reach a point where they can be stopped. */
static __always_inline bool ext_may_run(uint32_t cpu, struct sidelane_lane_role *role)
{
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &cpu);

	switch (hold ? load_once(hold->state) : SIDELANE_HELD) {
	case SIDELANE_LENT:
	case SIDELANE_EVICTED:
		return true;
	case SIDELANE_HELD:
		return false;
	}
	return !a_partner_is_busy(role);
}

static __always_inline void ext_refuse(uint32_t cpu)
{
	uint32_t *refused = bpf_map_lookup_elem(&ext_refused, &cpu);

	if (refused)
		store_once(*refused, 1);
}

/* Returns whether batch, which is switched in, was refused on this lane before. */
static __always_inline bool ext_took_back(uint32_t cpu)
{
	uint32_t *refused = bpf_map_lookup_elem(&ext_refused, &cpu);

	if (!refused || !load_once(*refused))
		return false;
	store_once(*refused, 0);
	return true;
}

/* Counts a batch thread that has left the SCHED_EXT class. This program cannot stop it; user space puts it back. */
static __always_inline void ext_note_class(struct task_struct *task)
{
	struct sidelane_ext_word *ext = ext_word();

	if (ext && load_once(ext->on) && task->policy != SCHED_EXT)
		__sync_fetch_and_add(&ext->outsiders, 1);
}

static __always_inline void ext_stop_lending(struct sidelane_hold_word *hold)
{
	store_once(hold->lent_until_ns, bpf_ktime_get_ns());
}

/* Makes the scheduler check a lane that batch is to leave. If the lane is not lent, the scheduler refuses batch there
 * because the request lanes are busy, so the lane's state stays. A lent lane stops being lent. */
CHECKED_ALONE int ext_summon(uint32_t cpu, uint32_t from_state, uint32_t lc_pays)
{
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &cpu);

	if (!hold)
		return 0;
	if (from_state == SIDELANE_LENT) {
		if (__sync_val_compare_and_swap(&hold->state, SIDELANE_LENT, SIDELANE_HELD) != SIDELANE_LENT)
			return 0;
		ext_stop_lending(hold);
	} else if (load_once(hold->state) == SIDELANE_LENT || load_once(hold->state) == SIDELANE_EVICTED) {
		return 0;
	}
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	__sync_fetch_and_add(&hold->summons, 1);
	if (lc_pays)
		__sync_fetch_and_add(&hold->lc_summons, 1);
	return 0;
}

/* Handles the end of the service beside a lane, so that batch may run there. Whether batch waits for this lane is
 * unknown, only whether any batch thread can run. Only the kick finds out whether the lane is idle: a lane that is
 * just leaving batch still looks as if it ran batch. */
CHECKED_ALONE int ext_let_in(uint32_t cpu)
{
	struct sidelane_ext_word *ext = ext_word();
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &cpu);

	/* A keeper that does not nap on the lane has to learn that a hold may end. */
	if (hold)
		call_keeper(cpu, hold, IN_STATE(SIDELANE_HELD), true);
	if (ext && load_once(ext->runnable) > 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 0;
}

#endif
