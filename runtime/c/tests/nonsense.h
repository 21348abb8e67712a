/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers, many of them at limits, for programs that write nonsense where Sidelane reads.
 */
#ifndef NONSENSE_H
#define NONSENSE_H

#include <stdint.h>

static uint64_t state = 88172645463325252u;

/* Returns a random number, or one that is likely to be taken for a real one: `own` is such a number. */
static uint64_t anything(uint64_t own)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	switch (state >> 40 & 7) {
	case 0: return UINT64_MAX;
	case 1: return 0;
	case 2: return own;
	case 3: return state >> 56;
	default: return state;
	}
}

#endif
