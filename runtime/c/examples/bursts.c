/* SPDX-License-Identifier: Apache-2.0
 *
 * A program whose speed changes every few microseconds: it counts fast for a while, then slowly,
 * and stores the current phase in a tag. An observer that samples it rarely sees only the mean of
 * the two speeds. `bursts [CYCLES [SECONDS]]`: each phase takes CYCLES cycles of the time stamp
 * counter.
 */
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

#include "../sidelane_signal.h"

#include <time.h>

/* Number of divisions between two counts, in a fast and in a slow phase. */
enum { FAST = 2, SLOW = 40 };

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t work(uint64_t value, int divisions)
{
	while (divisions--)
		value = ~0ull / (value | 1) + 12345;
	return value;
}

int main(int argc, char **argv)
{
	uint64_t cycles = argc > 1 ? strtoull(argv[1], 0, 10) : 20000;
	double seconds = argc > 2 ? atof(argv[2]) : 1e9, began = now_s();
	uint64_t *phase = sidelane_tag("bursts.phase"), *done = sidelane_counter("bursts.done");
	uint64_t value = 1, count = 0;

	if (!cycles || seconds <= 0) {
		fprintf(stderr, "usage: bursts [CYCLES [SECONDS]], as in bursts 20000 5\n");
		return 2;
	}
	sidelane_name("bursts.phase", 0, "fast");
	sidelane_name("bursts.phase", 1, "slow");
	while (now_s() - began < seconds) {
		for (int turn = 0; turn < 1000; turn++) {
			uint64_t ends = __rdtsc() + cycles;
			int slow = turn & 1;

			sidelane_set(phase, slow);
			while (__rdtsc() < ends) {
				value = work(value, slow ? SLOW : FAST);
				sidelane_set(done, ++count);
			}
		}
	}
	printf("%.0f\n", (double)count / (now_s() - began));
	return value == 0; /* never true, but the compiler does not know */
}
