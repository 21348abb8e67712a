/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Accounting of lanes: clocks of the service's threads, latency histograms, turns.
 */
#ifndef SIDELANE_ACCOUNTING_H
#define SIDELANE_ACCOUNTING_H

#include "maps.h"

/* Reads the run time of latency-critical (LC) threads on another lane: the ended turns, and the start of a turn that
 * still lasts. Returns whether both values are of the same moment. */
static __always_inline bool look_at_lc_clock(struct sidelane_lane_word *word, uint64_t *done_ns, uint64_t *since_ns)
{
	uint64_t before = load_once(word->since_ns);

	*done_ns = load_once(word->lc_done_ns);
	*since_ns = load_once(word->lc_since_ns);
	return before && before == load_once(word->since_ns);
}

/* Returns the time that latency-critical (LC) threads have run on a lane, up to `now_ns`. A read that collides with a
 * context switch there is repeated; two collisions in a row are rare. The repetition is not a loop: compilers place the
 * exit of a loop so that the verifiers of Linux 6.1 and before reject it. */
static __always_inline uint64_t lc_clock_ns(struct sidelane_lane_word *word, uint64_t now_ns)
{
	uint64_t done_ns = 0, since_ns = 0;

	if (!look_at_lc_clock(word, &done_ns, &since_ns) && !look_at_lc_clock(word, &done_ns, &since_ns) &&
	    !look_at_lc_clock(word, &done_ns, &since_ns))
		look_at_lc_clock(word, &done_ns, &since_ns);
	return done_ns + (since_ns && now_ns > since_ns ? now_ns - since_ns : 0);
}

static __always_inline uint32_t log2_floor(uint64_t v)
{
	uint32_t r = 0;

	if (v >> 32) { v >>= 32; r += 32; }
	if (v >> 16) { v >>= 16; r += 16; }
	if (v >> 8) { v >>= 8; r += 8; }
	if (v >> 4) { v >>= 4; r += 4; }
	if (v >> 2) { v >>= 2; r += 2; }
	return r + (v >> 1);
}

static __always_inline void record(uint32_t *hist, uint64_t latency_ns)
{
	uint64_t bucket = latency_ns;

	if (latency_ns >= 1 << SIDELANE_HIST_SUB_BITS) {
		uint32_t shift = log2_floor(latency_ns) - SIDELANE_HIST_SUB_BITS;
		bucket = (shift << SIDELANE_HIST_SUB_BITS) + (latency_ns >> shift);
	}
	if (bucket >= SIDELANE_HIST_BUCKETS)
		bucket = SIDELANE_HIST_BUCKETS - 1;
	hist[bucket & (SIDELANE_HIST_BUCKETS - 1)]++;
}

/* Records the turn, by a thread of the class `was`, that ends now; called before the lane's word changes. The record is
 * needed for requests that the service emits, since this program does not learn when such requests start. */
static __always_inline void note_turn(uint32_t cpu, struct sidelane_lane_word *word, uint32_t was, uint64_t now_ns)
{
	struct sidelane_lane_turns *turns;

	if (was != SIDELANE_LC && was != SIDELANE_BATCH)
		return;
	turns = bpf_map_lookup_elem(&lane_turns, &cpu);
	if (!turns)
		return;
	struct sidelane_turn *turn = &turns->turns[turns->count & (SIDELANE_TURNS - 1)];
	store_once(turn->began_ns, word->since_ns);
	store_once(turn->ended_ns, now_ns);
	store_once(turn->pid, word->pid);
	store_once(turn->class_, was);
	store_once(turns->count, turns->count + 1);
}

#endif
