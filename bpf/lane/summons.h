/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Summons: a wakeup of the holder of a batch lane. hold.rs in crates/formats is the holder's side, and its loom tests
 * model both sides. If batch has a scheduler of its own (scx.h), no holder comes to the lane: the scheduler checks the
 * lane again.
 */
#ifndef SIDELANE_SUMMONS_H
#define SIDELANE_SUMMONS_H

#include "maps.h"

/* Set of states of a hold word with one member. */
#define IN_STATE(state) (1U << (state))

#ifdef SIDELANE_SCX
#include "scx/scx.h"
#else
#include "scx/none.h"
#endif

static __always_inline bool ring_for_holder(uint32_t lane)
{
	void *ring = bpf_map_lookup_elem(&summons_rings, &lane);
	uint32_t token = lane;

	return ring && !bpf_ringbuf_output(ring, &token, sizeof(token), BPF_RB_FORCE_WAKEUP);
}

/* Wakes the keeper of a lane, its holder or a thread on another lane, if the lane's hold word is in one of `states`. */
static __always_inline void call_keeper(uint32_t lane, struct sidelane_hold_word *hold, uint32_t states, bool lc_pays)
{
	uint32_t from_state = load_once(hold->state);

	if (!(IN_STATE(from_state) & states))
		return;
	if (__sync_val_compare_and_swap(&hold->state, from_state, SIDELANE_SUMMONED) != from_state)
		return;
	if (!ring_for_holder(lane)) {
		/* The wakeup could not be sent; the next summons tries again. */
		__sync_val_compare_and_swap(&hold->state, SIDELANE_SUMMONED, from_state);
		return;
	}
	__sync_fetch_and_add(&hold->summons, 1);
	if (lc_pays)
		__sync_fetch_and_add(&hold->lc_summons, 1);
}

/* Makes batch leave a lane that is lent. */
static __always_inline void summon_from_lent(uint32_t lane, struct sidelane_hold_word *hold, bool lc_pays)
{
	if (ext_is_on())
		ext_summon(lane, SIDELANE_LENT, lc_pays);
	else
		call_keeper(lane, hold, IN_STATE(SIDELANE_LENT), lc_pays);
}

/* Wakes the keeper of an evicted lane that has asked for it, because the service has stopped. The keeper asks at most
 * once in 10 ms, so a service that stops thousands of times a second pays few of these wakeups. */
static __always_inline void call_when_idle(uint32_t lane, struct sidelane_hold_word *hold)
{
	if (!load_once(hold->call_when_idle))
		return;
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &lane);

	if (role && !a_partner_is_busy(role) && __sync_lock_test_and_set(&hold->call_when_idle, 0))
		ring_for_holder(lane);
}

/* Makes batch leave a lane beside which the service is busy. If batch was evicted from the lane, the holder is put
 * back: batch has returned, or never left. */
static __always_inline void summon_beside_busy(uint32_t lane, struct sidelane_hold_word *hold, bool lc_pays)
{
	if (ext_is_on())
		ext_summon(lane, SIDELANE_RELEASED, lc_pays);
	else
		call_keeper(lane, hold, IN_STATE(SIDELANE_RELEASED) | IN_STATE(SIDELANE_EVICTED), lc_pays);
}

#endif
