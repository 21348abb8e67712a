/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Shares: CPU time of each service, each job and the idle task, on each CPU. The agent reads them, since it manages a
 * whole machine, where most CPUs are no lanes.
 */
#ifndef SIDELANE_SHARES_H
#define SIDELANE_SHARES_H

#include "maps.h"
#include "who.h"

/* Adds the CPU time of the turn that ends to its service or job, and begins a turn of the class `class_` and the
 * identity `identity`. */
static __always_inline void note_share(uint32_t cpu, uint32_t class_, uint32_t identity, uint64_t now_ns)
{
	struct sidelane_cpu_shares *shares = bpf_map_lookup_elem(&cpu_shares, &cpu);

	if (!shares)
		return;
	uint64_t since_ns = shares->since_ns;
	uint64_t turn_ns = since_ns && now_ns > since_ns ? now_ns - since_ns : 0;
	uint64_t *ran_ns = &shares->ran_ns[shares->identity & (SIDELANE_SHARES - 1)];

	store_once(shares->since_ns, 0);
	if (shares->class_ == SIDELANE_IDLE)
		store_once(shares->idle_ns, shares->idle_ns + turn_ns);
	else
		store_once(*ran_ns, *ran_ns + turn_ns);
	store_once(shares->class_, class_);
	store_once(shares->identity, number_of(identity) << 1 | (identity & SIDELANE_IDENTITY_BATCH));
	store_once(shares->since_ns, now_ns);
}

#endif
