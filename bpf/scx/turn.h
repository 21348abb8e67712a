/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Turns of batch on a lane without a holder. A holder takes a lane to change its state, and so ends batch's turn.
 * Without a holder, a turn outlives such a change.
 */
#ifndef SIDELANE_SCX_TURN_H
#define SIDELANE_SCX_TURN_H

#include "lane/accounting.h"
#include "scx/scx.h"

/* Returns whether the lane was lent at any time of batch's present turn. */
static __always_inline bool ext_turn_was_lent(struct sidelane_lane_stats *stats, struct sidelane_hold_word *hold)
{
	return load_once(hold->state) == SIDELANE_LENT || load_once(hold->lent_until_ns) > stats->batch_since_ns;
}

/* Returns how long batch ran beside a request after the lane stopped being lent, in a turn of batch that ends now on
 * this CPU. */
CHECKED_ALONE uint64_t ext_after_lent_ns(uint64_t began_ns, uint64_t now_ns)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_lane_role *role = batch_lane(cpu);
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &cpu);
	struct sidelane_lane_stats *stats = bpf_map_lookup_elem(&lane_stats, &cpu);
	uint64_t longest_ns = 0;

	if (!role || !hold || !stats || load_once(hold->state) == SIDELANE_LENT)
		return 0;
	uint64_t until_ns = load_once(hold->lent_until_ns);
	for_each_partner(lane, role) {
		struct sidelane_lane_word *request = lane_word(lane);
		if (!request || !load_once(request->busy))
			continue;
		uint64_t beside_ns = both_ran_ns(request, began_ns > until_ns ? began_ns : until_ns, now_ns);
		record(stats->off_hist, beside_ns);
		if (beside_ns > longest_ns)
			longest_ns = beside_ns;
	}
	return longest_ns;
}

#endif
