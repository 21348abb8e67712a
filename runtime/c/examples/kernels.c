/* SPDX-License-Identifier: Apache-2.0
 *
 * Elfen's three batch micro-benchmarks (ATC'16 §4, "Batch Workloads"). Each is a function that is
 * called again and again, so a check at its entry is enough:
 *
 *   loop     an empty function: fills the front end
 *   matrix   multiplies two 5 x 5 matrices: front end and functional units
 *   flush    zeroes 32 KB: throws the first-level cache out
 *
 *   kernels loop|matrix|flush SECONDS    runs that long and prints the calls made
 *   kernels pause|silent SECONDS         checks for half the time and then no more; never
 *
 * Build it with -pg, -pg -mfentry or -finstrument-functions, or with -DCHECK for checks of its own.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef CHECK
#include "../sidelane_gate.h"
#else
#define sidelane_check() ((void)0)
#endif

#define UNCHECKED __attribute__((noinline, no_instrument_function))
#define SIZE 5
#define FLUSHED_BYTES 32768
#define CALLS_BETWEEN_LOOKS 4096

static double a[SIZE][SIZE], b[SIZE][SIZE], product[SIZE][SIZE];
static char flushed[FLUSHED_BYTES];
static volatile unsigned long spun;

__attribute__((noinline)) static void loop(void)
{
	sidelane_check();
	__asm__ volatile("");
}

__attribute__((noinline)) static void matrix(void)
{
	sidelane_check();
	for (int row = 0; row < SIZE; row++) {
		for (int column = 0; column < SIZE; column++) {
			double sum = 0;
			for (int k = 0; k < SIZE; k++)
				sum += a[row][k] * b[k][column];
			product[row][column] = sum;
		}
	}
	__asm__ volatile("" : : "r"(product) : "memory");
}

__attribute__((noinline)) static void flush(void)
{
	sidelane_check();
	memset(flushed, 0, sizeof(flushed));
	__asm__ volatile("" : : "r"(flushed) : "memory");
}

UNCHECKED static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* Computes without checks until the time `end_s`. */
UNCHECKED static void spin_until(double end_s)
{
	while (now_s() < end_s)
		for (int i = 0; i < CALLS_BETWEEN_LOOKS; i++)
			spun++;
}

UNCHECKED static unsigned long call_until(void (*kernel)(void), double end_s)
{
	unsigned long calls = 0;

	while (now_s() < end_s) {
		for (int i = 0; i < CALLS_BETWEEN_LOOKS; i++)
			kernel();
		calls += CALLS_BETWEEN_LOOKS;
	}
	return calls;
}

int main(int argc, char **argv)
{
	double length_s = argc > 2 ? atof(argv[2]) : 1, began_s = now_s();
	const char *name = argc > 1 ? argv[1] : "";
	unsigned long calls = 0;

	for (int i = 0; i < SIZE * SIZE; i++)
		a[i / SIZE][i % SIZE] = b[i % SIZE][i / SIZE] = i;
	if (!strcmp(name, "loop"))
		calls = call_until(loop, began_s + length_s);
	else if (!strcmp(name, "matrix"))
		calls = call_until(matrix, began_s + length_s);
	else if (!strcmp(name, "flush"))
		calls = call_until(flush, began_s + length_s);
	else if (!strcmp(name, "pause"))
		calls = call_until(matrix, began_s + length_s / 2);
	else if (strcmp(name, "silent"))
		return 2;
	spin_until(began_s + length_s);
	printf("%lu\n", calls);
	return 0;
}
