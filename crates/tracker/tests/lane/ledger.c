/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Enters turns of batch into empty ledgers: each four arguments are the turn's length, and the time of it in which the
 * service was busy, that the hypervisor took, and that interrupts took. Prints the six accounts of each turn: idle,
 * busy, interrupts and steal time beside the idle and the busy service.
 */
#include <stdio.h>
#include <stdlib.h>

#include "maps.h"

#include "lane/ledger.h"

static uint64_t number(const char *text)
{
	return strtoull(text, 0, 10);
}

int main(int argc, char **argv)
{
	for (int at = 1; at + 3 < argc; at += 4) {
		struct sidelane_lane_ledger ledger = { .turn = SIDELANE_TURN_BATCH };

		turn_ends(&ledger, number(argv[at + 1]), number(argv[at + 2]), number(argv[at + 3]), number(argv[at]));
		printf("%llu %llu %llu %llu %llu %llu\n", (unsigned long long)ledger.idle_ns[SIDELANE_TURN_BATCH],
		       (unsigned long long)ledger.busy_ns[SIDELANE_TURN_BATCH],
		       (unsigned long long)ledger.interrupts_ns[0], (unsigned long long)ledger.interrupts_ns[1],
		       (unsigned long long)ledger.stolen_ns[0], (unsigned long long)ledger.stolen_ns[1]);
	}
	return 0;
}
