/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that emits its activity: a tag that goes through three phases, and a counter of the
 * work done. `phases PERIOD [SECONDS]`: its inner loop stores both once in PERIOD cycles of the
 * time stamp counter, on average, and works in between, for SECONDS or until it is ended. Prints
 * the units of work done per second.
 */
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

#include "../sidelane_signal.h"

#include <time.h>

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Does `steps` multiplications that depend on each other, so that the processor can neither skip
 * them nor run them in parallel. */
static uint64_t work(uint64_t value, long steps)
{
	for (long step = 0; step < steps; step++)
		value = (value ^ (value >> 7)) * 0x9e3779b97f4a7c15u;
	return value;
}

/* Returns the number of work steps that take `cycles` cycles, without the loop's own cycles. */
static long steps_in(long cycles)
{
	const long measured = 1000000;
	uint64_t began = __rdtsc();
	uint64_t value = work(began | 1, measured);
	double cycles_a_step = (double)(__rdtsc() - began + (value == 0)) / (double)measured;
	double steps = (double)cycles / cycles_a_step;

	return steps < 1 ? 1 : (long)steps;
}

int main(int argc, char **argv)
{
	long period = argc > 1 ? atol(argv[1]) : 1000;
	double seconds = argc > 2 ? atof(argv[2]) : 1e9;
	long steps = steps_in(period);
	uint64_t *phase = sidelane_tag("phases.phase"), *done = sidelane_counter("phases.done");
	uint64_t value = 1, count = 0;
	double began = now_s(), passed = 0;

	if (period < 1 || seconds <= 0) {
		fprintf(stderr, "usage: phases PERIOD [SECONDS], as in phases 1200 5\n");
		return 2;
	}
	sidelane_name("phases.phase", 0, "read");
	sidelane_name("phases.phase", 1, "work");
	sidelane_name("phases.phase", 2, "write");
	while (passed < seconds) {
		for (int turn = 0; turn < 10000; turn++) {
			sidelane_set(phase, count % 3);
			value = work(value, steps);
			sidelane_set(done, ++count);
		}
		passed = now_s() - began;
	}
	printf("%.0f\n", (double)count / passed);
	return value == 0; /* never true, but the compiler does not know */
}
