/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Context switches on a batch lane: turns of batch, their overlap with the service, and reactions. If batch comes
 * beside a busy service, a summons starts here.
 */
#ifndef SIDELANE_BATCH_LANE_H
#define SIDELANE_BATCH_LANE_H

#include "lane/alarm.h"
#include "lane/accounting.h"
#include "lane/self_checking.h"
#include "lane/stolen.h"
#include "lane/summons.h"
#include "who.h"

/* Returns how long batch ran beside the service, in a turn of batch that ends now beside a busy lane. The result is
 * 0 if the service was woken but does not run yet: then batch leaves before the request starts. */
static __always_inline uint64_t both_ran_ns(struct sidelane_lane_word *request, uint64_t began_ns, uint64_t now_ns)
{
	uint64_t both_ns = load_once(request->lc_since_ns);

	if (!both_ns)
		return 0;
	if (both_ns < began_ns)
		both_ns = began_ns;
	return both_ns < now_ns ? now_ns - both_ns : 0;
}

#ifdef SIDELANE_SCX
#include "scx/turn.h"
#endif

/* Returns the request that runs on `partner`, if it had to wait; otherwise null. Batch may not run beside such a
 * request, not even on a lent lane, unless user space has permitted that. */
static __always_inline struct sidelane_request_word *waited_request(struct sidelane_lane_role *role, uint32_t partner)
{
	if (role->lends_to_waited)
		return 0;
	struct sidelane_request_word *request = bpf_map_lookup_elem(&request_words, &partner);

	return request && load_once(request->waited) && load_once(request->running) ? request : 0;
}

static __always_inline bool a_waited_request_runs(struct sidelane_lane_role *role)
{
	for_each_partner(lane, role) {
		if (waited_request(role, lane))
			return true;
	}
	return false;
}

/* Returns how long batch ran beside requests that had to wait, in a turn of batch that ends now. */
static __always_inline uint64_t beside_waited_ns(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats,
						 uint64_t began_ns, uint64_t now_ns)
{
	uint64_t longest_ns = 0;

	for_each_partner(lane, role) {
		struct sidelane_request_word *request = waited_request(role, lane);
		if (!request)
			continue;
		uint64_t both_ns = load_once(request->started_ns);
		if (both_ns < began_ns)
			both_ns = began_ns;
		uint64_t beside_ns = both_ns < now_ns ? now_ns - both_ns : 0;
		record(stats->off_hist, beside_ns);
		if (beside_ns > longest_ns)
			longest_ns = beside_ns;
	}
	return longest_ns;
}

static __always_inline void lent_turn_ends(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats,
					   uint64_t began_ns, uint64_t both_ns, uint64_t now_ns)
{
	uint64_t leaked_ns = ext_is_on() ? ext_after_lent_ns(began_ns, now_ns) :
					   beside_waited_ns(role, stats, began_ns, now_ns);

	if (leaked_ns > both_ns)
		leaked_ns = both_ns;
	stats->overlap_ns += leaked_ns;
	stats->lent_overlap_ns += both_ns - leaked_ns;
}

/* Handles the end of a turn of the batch thread `pid` on `cpu`. */
CHECKED_ALONE int batch_turn_ends(uint32_t cpu, uint32_t pid, uint64_t now_ns)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);
	struct sidelane_lane_stats *stats = bpf_map_lookup_elem(&lane_stats, &cpu);
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &cpu);

	if (!role || !stats || !hold)
		return 0;
	uint64_t began_ns = stats->batch_since_ns;
	uint64_t clock_ns = partners_lc_clock_ns(cpu, now_ns);
	bool lent = ext_is_on() ? ext_turn_was_lent(stats, hold) : stats->turn_is_lent;
	uint64_t stolen_ns = surely_stolen_ns(role, stats, !lent && (hold->holder_pid || ext_is_on()));
	uint64_t both_ns = above(above(clock_ns, stats->overlap_mark_ns), stolen_ns);

	stats->batch_ns += now_ns - began_ns;
	stats->batch_since_ns = 0;
	if (looks_for_itself(pid)) {
		/* No reaction is recorded here, and naps are not subtracted: self-checking batch counts both in its own
		 * accounting. */
		stats->overlap_ns += both_ns;
		return 0;
	}
	if (lent) {
		lent_turn_ends(role, stats, began_ns, both_ns, now_ns);
		return 0;
	}
	stats->overlap_ns += both_ns;
	for_each_partner(lane, role) {
		struct sidelane_lane_word *request = lane_word(lane);
		if (request && load_once(request->busy))
			record(stats->off_hist, above(both_ran_ns(request, began_ns, now_ns), stolen_ns));
	}
	return 0;
}

/* Records a reaction of 0 ns if the holder takes a lane before waiting batch has run there. */
static __always_inline void holder_was_first(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats)
{
	for_each_partner(lane, role) {
		struct sidelane_lane_word *request = lane_word(lane);
		if (request && load_once(request->busy))
			record(stats->off_hist, 0);
	}
}

/* Handles the begin of a turn of the batch thread `pid` on `cpu`, after the thread `before`. */
CHECKED_ALONE int batch_turn_begins(uint32_t cpu, uint32_t before, uint32_t pid, uint64_t now_ns)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);
	struct sidelane_lane_stats *stats = bpf_map_lookup_elem(&lane_stats, &cpu);
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &cpu);

	if (!role || !stats || !hold)
		return 0;
	uint64_t lc_off_ns = 0;
	bool busy = a_partner_is_busy(role);
	uint64_t stolen_ns = above(stats->stolen_seen_ns, load_once(stats->stolen_mark_ns));

	begin_stolen(role, stats);
	stats->batch_since_ns = now_ns;
	stats->turn_is_lent = load_once(hold->state) == SIDELANE_LENT;
	stats->overlap_mark_ns = partners_lc_clock_ns(cpu, now_ns);
	/* Batch that is switched in on a held lane is a leak, unless a keeper on another lane let batch in just before
	 * the hold. */
	if (load_once(hold->state) == SIDELANE_HELD && (busy || !ext_is_on()))
		stats->leaks++;
	for_each_partner(lane, role) {
		struct sidelane_lane_word *request = lane_word(lane);
		if (!request)
			continue;
		uint64_t off_ns = load_once(request->idle_since_ns);
		if (off_ns > lc_off_ns)
			lc_off_ns = off_ns;
	}
	/* A holder that ran only to check the lane, while the service was idle, has not held the lane. */
	bool after_hold = ext_took_back(cpu) || (is_holder(hold, before) && stats->holder_since_ns < lc_off_ns);
	if (looks_for_itself(pid))
		return 0;
	if (stats->turn_is_lent && a_waited_request_runs(role))
		summon(cpu, SIDELANE_LENT, false);
	else if (busy)
		summon_beside_busy(cpu, false);
	else if (after_hold && lc_off_ns && now_ns >= lc_off_ns)
		record(stats->on_hist, above(now_ns - lc_off_ns, stolen_ns));
	return 0;
}

/* Handles a switch from one batch thread to another, without a holder in between. If the service has started during the
 * first thread's turn, that thread may be self-checking, or about to leave. The second thread is neither, so it is
 * summoned here. */
CHECKED_ALONE int batch_turn_goes_on(uint32_t cpu, uint32_t pid)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);

	if (!role || looks_for_itself(pid))
		return 0;
	if (a_partner_is_busy(role))
		summon_beside_busy(cpu, false);
	if (a_waited_request_runs(role))
		summon(cpu, SIDELANE_LENT, false);
	return 0;
}

#endif
