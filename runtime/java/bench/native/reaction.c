/* SPDX-License-Identifier: Apache-2.0
 *
 * Closes the stub's gate at random times and measures how long it takes until a thread reaches the
 * slow path: reaction FILE TIMES CLOSED_US OPEN_US_MEAN. Prints one JSON line.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stub.h"

#define GIVE_UP_NS 50000000u

static void spin_ns(uint64_t ns)
{
	uint64_t end = now_ns() + ns;

	while (now_ns() < end)
		__builtin_ia32_pause();
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Closes the gate once. Returns the nanoseconds until a thread reached the slow path; GIVE_UP_NS
 * if none did. */
static uint64_t close_once(struct stub *stub, uint64_t closed_ns)
{
	uint64_t begin, entered = 0;

	stub->entered_ns = 0;
	begin = now_ns();
	stub->word = 1;
	do
		entered = stub->entered_ns;
	while (!entered && now_ns() - begin < GIVE_UP_NS);
	if (entered)
		spin_ns(closed_ns);
	stub->word = 0;
	return entered ? entered - begin : GIVE_UP_NS;
}

int main(int argc, char **argv)
{
	int times = argc > 4 ? atoi(argv[2]) : 0;
	uint64_t *ns = calloc(times > 0 ? times : 1, sizeof(*ns));
	int fd = argc > 4 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
	struct stub *stub = MAP_FAILED;
	int missed = 0;

	if (fd >= 0 && ftruncate(fd, sizeof(*stub)) == 0)
		stub = mmap(NULL, sizeof(*stub), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (stub == MAP_FAILED || times <= 0 || !ns) {
		fprintf(stderr, "usage: reaction FILE TIMES CLOSED_US OPEN_US_MEAN\n");
		return 2;
	}
	srand48(1);
	for (int i = 0; i < times; i++) {
		usleep((useconds_t)(-log(1 - drand48()) * atof(argv[4])));
		ns[i] = close_once(stub, strtoull(argv[3], NULL, 10) * 1000);
		missed += ns[i] == GIVE_UP_NS;
	}
	qsort(ns, times, sizeof(*ns), ascending);
	printf("{\"closed\":%d,\"reaction_p50_ns\":%lu,\"reaction_p90_ns\":%lu,\"reaction_p99_ns\":%lu,\"reaction_max_ns\":%lu,\"nobody_came\":%d}\n",
		times, ns[times / 2], ns[times * 9 / 10], ns[times * 99 / 100], ns[times - 1], missed);
	return 0;
}
