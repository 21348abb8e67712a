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
CHECKED_ALONE uint64_t beside_waited_ns(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats,
					uint64_t began_ns, uint64_t now_ns)
{
	uint64_t longest_ns = 0;

	if (!role || !stats)
		return 0;
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

/* State of the partner lanes of a batch lane, taken together. */
struct partners {
	uint64_t lc_clock_ns;    /* run time of the service's threads */
	uint64_t lc_stolen_ns;   /* time stolen from them */
	uint32_t busy;           /* 1: the service needs one of the lanes */
};

static __always_inline void look_at_partners(struct sidelane_lane_role *role, uint64_t now_ns, struct partners *all)
{
	for_each_partner(lane, role) {
		struct sidelane_lane_word *word = lane_word(lane);
		if (!word)
			continue;
		all->busy |= load_once(word->busy);
		all->lc_clock_ns += lc_clock_ns(word, now_ns);
		all->lc_stolen_ns += stolen_from_lc_ns(lane, word);
	}
}

/* Returns the end of the service's last busy period on the partner lanes; 0 before the first. */
static __always_inline uint64_t idle_since_ns(struct sidelane_lane_role *role)
{
	uint64_t last_ns = 0;

	for_each_partner(lane, role) {
		struct sidelane_lane_word *word = lane_word(lane);
		uint64_t since_ns = word ? load_once(word->idle_since_ns) : 0;
		if (since_ns > last_ns)
			last_ns = since_ns;
	}
	return last_ns;
}

/* Records how long batch ran beside each busy partner lane, in a turn of batch that ends now. */
CHECKED_ALONE int record_reactions(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats,
				   uint64_t began_ns, uint64_t stolen_ns, uint64_t now_ns)
{
	if (!role || !stats)
		return 0;
	for_each_partner(lane, role) {
		struct sidelane_lane_word *request = lane_word(lane);
		if (request && load_once(request->busy))
			record(stats->off_hist, above(both_ran_ns(request, began_ns, now_ns), stolen_ns));
	}
	return 0;
}

/* Handles the end of a turn of the batch thread `pid`. */
CHECKED_ALONE int batch_turn_ends(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats,
				  struct sidelane_hold_word *hold, uint32_t pid, uint64_t now_ns)
{
	struct partners partners = {};

	if (!role || !stats || !hold)
		return 0;
	look_at_partners(role, now_ns, &partners);
	uint64_t began_ns = stats->batch_since_ns;
	bool lent = ext_is_on() ? ext_turn_was_lent(stats, hold) : stats->turn_is_lent;
	uint64_t stolen_ns = surely_stolen_ns(stats, partners.lc_stolen_ns, !lent && (hold->holder_pid || ext_is_on()));
	uint64_t both_ns = above(above(partners.lc_clock_ns, stats->overlap_mark_ns), stolen_ns);

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
	if (partners.busy)
		record_reactions(role, stats, began_ns, stolen_ns, now_ns);
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

/* Handles the begin of a turn of the batch thread `pid` on this CPU, after the thread `before`. The caller has set the
 * begin in `stats`. */
CHECKED_ALONE int batch_turn_begins(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats,
				    struct sidelane_hold_word *hold, uint32_t before, uint32_t pid)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct partners partners = {};

	if (!role || !stats || !hold)
		return 0;
	uint32_t state = load_once(hold->state);
	uint64_t now_ns = stats->batch_since_ns;
	uint64_t stolen_ns = above(stats->stolen_seen_ns, load_once(stats->stolen_mark_ns));

	stats->turn_is_lent = state == SIDELANE_LENT;
	look_at_partners(role, now_ns, &partners);
	begin_stolen(stats, partners.lc_stolen_ns);
	stats->overlap_mark_ns = partners.lc_clock_ns;
	/* Batch that is switched in on a held lane is a leak, unless a keeper on another lane let batch in just before
	 * the hold. */
	if (state == SIDELANE_HELD && (partners.busy || !ext_is_on()))
		stats->leaks++;
	bool was_refused = ext_took_back(cpu);
	if (looks_for_itself(pid))
		return 0;
	if (state == SIDELANE_LENT && a_waited_request_runs(role)) {
		summon_from_lent(cpu, hold, false);
	} else if (partners.busy) {
		summon_beside_busy(cpu, hold, false);
	} else if (was_refused || is_holder(hold, before)) {
		uint64_t lc_off_ns = idle_since_ns(role);
		/* A holder that ran only to check the lane, while the service was idle, has not held the lane. */
		bool after_hold = was_refused || stats->holder_since_ns < lc_off_ns;
		if (after_hold && lc_off_ns && now_ns >= lc_off_ns)
			record(stats->on_hist, above(now_ns - lc_off_ns, stolen_ns));
	}
	return 0;
}

/* Handles a switch from one batch thread to another, without a holder in between. If the service has started during the
 * first thread's turn, that thread may be self-checking, or about to leave. The second thread is neither, so it is
 * summoned here. */
CHECKED_ALONE int batch_turn_goes_on(struct sidelane_lane_role *role, struct sidelane_hold_word *hold, uint32_t pid)
{
	uint32_t cpu = bpf_get_smp_processor_id();

	if (!role || !hold || looks_for_itself(pid))
		return 0;
	if (a_partner_is_busy(role))
		summon_beside_busy(cpu, hold, false);
	if (a_waited_request_runs(role))
		summon_from_lent(cpu, hold, false);
	return 0;
}

#endif
