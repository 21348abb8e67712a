/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Stubs for the program without a sched_ext scheduler: ext_is_on always returns false.
 */
#ifndef SIDELANE_NO_SCX_H
#define SIDELANE_NO_SCX_H

#include "maps.h"

static __always_inline bool ext_is_on(void)
{
	return false;
}

static __always_inline void ext_summon(uint32_t cpu, uint32_t from_state, bool lc_pays) {}

static __always_inline void ext_let_in(uint32_t cpu) {}

static __always_inline void ext_note_class(struct task_struct *task) {}

static __always_inline bool ext_took_back(uint32_t cpu)
{
	return false;
}

static __always_inline bool ext_turn_was_lent(struct sidelane_lane_stats *stats, struct sidelane_hold_word *hold)
{
	return false;
}

static __always_inline uint64_t ext_after_lent_ns(uint64_t began_ns, uint64_t now_ns)
{
	return 0;
}

#endif
