/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Self-checking batch: the promises of its threads to check, and the word that they check. abi/gate.h says which side
 * writes what; crates/gate is batch's side.
 *
 * Unless settings.self_checking is set, all of this is dead code, and the loaded program does not contain it.
 */
#ifndef SIDELANE_SELF_CHECKING_H
#define SIDELANE_SELF_CHECKING_H

#include "maps.h"

#define PROMISES_PER_WORD 64

static __always_inline uint64_t *promises(uint32_t pid)
{
	uint32_t index = pid / PROMISES_PER_WORD;

	return bpf_map_lookup_elem(&self_checking_threads, &index);
}

/* Returns whether the thread has promised to check by itself, often, whether it has to leave its lane. No holder is
 * summoned for such a thread. */
static __always_inline bool looks_for_itself(uint32_t pid)
{
	uint64_t *word = settings.self_checking ? promises(pid) : 0;

	return word && load_once(*word) >> (pid % PROMISES_PER_WORD) & 1;
}

/* Copies a thread's promise to check its lane to a new thread, which runs the same code. */
static __always_inline void inherit_promise(uint32_t parent, uint32_t child)
{
	uint64_t *word = looks_for_itself(parent) ? promises(child) : 0;

	if (word)
		__sync_fetch_and_or(word, 1ULL << (child % PROMISES_PER_WORD));
}

/* Clears the promise to check its lane of a thread that has ended, or runs another program now. */
static __always_inline void forget_promise(uint32_t pid)
{
	uint64_t *word = looks_for_itself(pid) ? promises(pid) : 0;

	if (word)
		__sync_fetch_and_and(word, ~(1ULL << (pid % PROMISES_PER_WORD)));
}

/* Longest time since a napping thread's last accounting entry that is counted as nap; the same limit as in
 * crates/gate/src/chunk.rs. */
#define OPEN_NAP_MAX_NS 200000
/* Number of attempts to read a napping thread's accounting; a read between two of its writes is repeated. */
#define NAP_CLOCK_TRIES 2

/* Returns how long `pid` has napped since `mark_ns`, the time of the thread's last accounting entry. The thread's
 * present turn on the lane began at `turn_ns`. The thread reads the clock itself, so `mark_ns` may be a little after
 * `now_ns`; the result is negative then. */
static __always_inline int64_t open_nap_ns(struct sidelane_gate_word *gate, uint32_t pid, uint64_t mark_ns,
					   uint64_t turn_ns, uint64_t now_ns)
{
	int64_t napped_ns = now_ns - (mark_ns > turn_ns ? mark_ns : turn_ns);

	if (!mark_ns || !turn_ns || load_once(gate->nap_tid) != pid)
		return 0;
	return napped_ns > -OPEN_NAP_MAX_NS && napped_ns < OPEN_NAP_MAX_NS ? napped_ns : 0;
}

/* Returns the time since `since_ns` in which threads of the service certainly ran on the partner lanes, summed over the
 * lanes. Only a thread's present turn counts; earlier turns are unknown here. */
static __always_inline uint64_t surely_beside_ns(struct sidelane_lane_role *role, uint64_t since_ns, uint64_t now_ns)
{
	uint64_t beside_ns = 0;

	for_each_partner(lane, role) {
		struct sidelane_lane_word *request = lane_word(lane);
		uint64_t began_ns = request ? load_once(request->lc_since_ns) : 0;
		if (!began_ns)
			continue;
		if (began_ns < since_ns)
			began_ns = since_ns;
		beside_ns += began_ns < now_ns ? now_ns - began_ns : 0;
	}
	return beside_ns;
}

/* Counts the nap of a batch thread that is switched out, whose present turn began at `turn_ns`. Otherwise the time
 * since the thread's last accounting entry would be counted nowhere. */
static __always_inline void note_cut_nap(uint32_t lane, struct sidelane_lane_role *role, struct sidelane_lane_stats *stats,
					 uint32_t pid, uint64_t turn_ns, uint64_t now_ns)
{
	struct sidelane_gate_word *gate = settings.self_checking ? bpf_map_lookup_elem(&gate_words, &lane) : 0;
	int64_t napped_ns = gate ? open_nap_ns(gate, pid, load_once(gate->nap_mark_ns), turn_ns, now_ns) : 0;

	if (napped_ns > 0) {
		store_once(stats->cut_naps_ns, stats->cut_naps_ns + napped_ns);
		store_once(stats->cut_naps_lc_ns,
			   stats->cut_naps_lc_ns + surely_beside_ns(role, now_ns - napped_ns, now_ns));
	}
}

/* Returns the time that batch has napped on its lane, as batch's own accounting says. Batch may write any number there,
 * so the result may only affect how much contention is charged to requests. */
static __always_inline uint64_t nap_clock_ns(uint32_t lane, struct sidelane_lane_stats *stats, uint64_t now_ns)
{
	struct sidelane_gate_word *gate = settings.self_checking ? bpf_map_lookup_elem(&gate_words, &lane) : 0;
	struct sidelane_lane_word *word = gate ? lane_word(lane) : 0;
	uint64_t mark_ns = 0, napped_ns = 0;

	if (!word)
		return 0;
	for (int try = 0; try < NAP_CLOCK_TRIES; try++) {
		mark_ns = load_once(gate->nap_mark_ns);
		napped_ns = load_once(gate->napped_ns);
		if (mark_ns && mark_ns == load_once(gate->nap_mark_ns))
			break;
	}
	napped_ns += load_once(stats->cut_naps_ns);
	return napped_ns + open_nap_ns(gate, load_once(word->pid), mark_ns, load_once(word->since_ns), now_ns);
}

/* Counts one more or one fewer busy request lane beside a batch lane. Several CPUs may do so at once, in another order
 * than their lanes changed; the sum is still right. */
static __always_inline void count_busy_lane(struct sidelane_lane_role *role, int32_t change)
{
	struct sidelane_service_word *service = settings.self_checking ? service_word(role->service) : 0;

	if (service)
		__sync_fetch_and_add(&service->busy_lanes, change);
}

#endif
