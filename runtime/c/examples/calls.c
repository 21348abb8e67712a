/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the time of a call of a small function in nanoseconds: the minimum of many short batches,
 * in which no other program ran. The difference between builds with and without checks is the cost
 * of a check.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <time.h>

#ifdef CHECK
#include "../sidelane_gate.h"
#else
#define sidelane_check() ((void)0)
#endif

#define UNCHECKED __attribute__((noinline, no_instrument_function))
#define BATCHES 400
#define CALLS 20000

__attribute__((noinline)) static unsigned long step(unsigned long x)
{
	sidelane_check();
	return x * 6364136223846793005UL + 1442695040888963407UL;
}

UNCHECKED static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

UNCHECKED int main(void)
{
	volatile unsigned long keep;
	unsigned long x = 1;
	double least_ns = 1e18;

	for (int batch = 0; batch < BATCHES; batch++) {
		double began_ns = now_ns();
		for (int i = 0; i < CALLS; i++)
			x = step(x);
		double took_ns = now_ns() - began_ns;
		if (took_ns < least_ns)
			least_ns = took_ns;
	}
	keep = x;
	(void)keep;
	printf("%.4f\n", least_ns / CALLS);
	return 0;
}
