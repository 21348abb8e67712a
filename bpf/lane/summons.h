/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Summons: a wakeup of the holder of a batch lane. hold.rs in crates/formats is the holder's side, and its loom tests
 * model both sides. If batch has a scheduler of its own (scx.h), no holder comes to the lane: the scheduler checks the
 * lane again.
 */
#ifndef SIDELANE_SUMMONS_H
#define SIDELANE_SUMMONS_H

#include "maps.h"

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

/* Wakes the keeper of a lane: its holder, or a thread on another lane. */
static __always_inline void call_keeper(uint32_t lane, uint32_t from_state, bool lc_pays)
{
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &lane);

	if (!hold || load_once(hold->state) != from_state)
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

/* Makes batch leave a lane whose hold word has the state `from_state`. */
static __always_inline void summon(uint32_t lane, uint32_t from_state, bool lc_pays)
{
	if (ext_is_on())
		ext_summon(lane, from_state, lc_pays);
	else
		call_keeper(lane, from_state, lc_pays);
}

/* Summons the holder of a batch lane beside which the service is busy. If batch was evicted from the lane, the holder
 * is put back: batch has returned, or never left. */
static __always_inline void summon_beside_busy(uint32_t lane, bool lc_pays)
{
	summon(lane, SIDELANE_RELEASED, lc_pays);
	if (!ext_is_on())
		call_keeper(lane, SIDELANE_EVICTED, lc_pays);
}

#endif
