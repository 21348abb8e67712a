/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Batch that looks for itself: the promises of its threads, and the word that they look at.
 * abi/gate.h says who writes what; crates/gate is the other side.
 *
 * All of this is dead code, and gone from the loaded program, unless settings.gated.
 */
#ifndef SIDELANE_GATED_H
#define SIDELANE_GATED_H

#include "maps.h"

#define PROMISES_PER_WORD 64

static __always_inline uint64_t *promises(uint32_t pid)
{
	uint32_t index = pid / PROMISES_PER_WORD;

	return bpf_map_lookup_elem(&gated_threads, &index);
}

/* The thread has promised to look at its lane often: no holder need be summoned for it. */
static __always_inline bool looks_for_itself(uint32_t pid)
{
	uint64_t *word = settings.gated ? promises(pid) : 0;

	return word && load_once(*word) >> (pid % PROMISES_PER_WORD) & 1;
}

/* A new thread runs the code of the one that made it, and makes the same promise. */
static __always_inline void inherit_promise(uint32_t parent, uint32_t child)
{
	uint64_t *word = looks_for_itself(parent) ? promises(child) : 0;

	if (word)
		__sync_fetch_and_or(word, 1ULL << (child % PROMISES_PER_WORD));
}

/* A thread that has ended, or runs another program now. */
static __always_inline void forget_promise(uint32_t pid)
{
	uint64_t *word = looks_for_itself(pid) ? promises(pid) : 0;

	if (word)
		__sync_fetch_and_and(word, ~(1ULL << (pid % PROMISES_PER_WORD)));
}

/* One more or one fewer request lane is busy. Several CPUs come here at once, and in another
 * order than their lanes changed; the sum is right all the same. */
static __always_inline void count_busy_lane(int32_t change)
{
	uint32_t only = 0;
	struct sidelane_service_word *service = settings.gated ? bpf_map_lookup_elem(&service_words, &only) : 0;

	if (service)
		__sync_fetch_and_add(&service->busy_lanes, change);
}

#endif
