/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Summons: rings for the holder of a batch lane. hold.rs in crates/signal is the other side,
 * and its loom tests model both.
 */
#ifndef SIDELANE_SUMMONS_H
#define SIDELANE_SUMMONS_H

#include "maps.h"

static __always_inline bool ring_for_holder(uint32_t lane)
{
	void *ring = bpf_map_lookup_elem(&summons_rings, &lane);
	uint32_t token = lane;

	return ring && !bpf_ringbuf_output(ring, &token, sizeof(token), BPF_RB_FORCE_WAKEUP);
}

static __always_inline void summon(uint32_t lane, uint32_t from_state, bool lc_pays)
{
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &lane);

	if (!hold || load_once(hold->state) != from_state)
		return;
	if (__sync_val_compare_and_swap(&hold->state, from_state, SIDELANE_SUMMONED) != from_state)
		return;
	if (!ring_for_holder(lane)) {
		/* Not rung: whoever comes next tries again. */
		__sync_val_compare_and_swap(&hold->state, SIDELANE_SUMMONED, from_state);
		return;
	}
	__sync_fetch_and_add(&hold->summons, 1);
	if (lc_pays)
		__sync_fetch_and_add(&hold->lc_summons, 1);
}

#endif
