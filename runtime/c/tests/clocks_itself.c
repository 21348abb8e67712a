/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that notes when it runs: it reads the clock all the time, and a gap between two reads is time in which
 * it did not run. So its turns do not contain what the scheduler, the freezer or the hypervisor took.
 *
 *   clocks_itself FILE             runs until it is ended
 *   clocks_itself FILE on-command  reads file names, and runs until a file of that name exists
 *
 * FILE: the number of turns, then begin and end of each, as 64-bit nanoseconds of CLOCK_MONOTONIC.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Shortest gap between two reads of the clock that counts as an absence of the thread from the
 * CPU. It is longer than most interrupts. */
#define GAP_NS 50000
#define TURNS_MAX (1 << 22)

struct turns {
	volatile uint64_t count;
	volatile uint64_t span[TURNS_MAX][2];
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void run(struct turns *turns, const char *end)
{
	uint64_t last = 0;

	while (!end || access(end, F_OK)) {
		uint64_t now = now_ns();
		if (now - last > GAP_NS && turns->count < TURNS_MAX) {
			turns->span[turns->count][0] = now;
			turns->span[turns->count][1] = now;
			turns->count++;
		}
		turns->span[turns->count - 1][1] = now;
		last = now;
	}
}

int main(int argc, char **argv)
{
	static char line[4096];
	int file = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
	struct turns *turns;

	if (file < 0 || ftruncate(file, sizeof(*turns)))
		return 1;
	turns = mmap(NULL, sizeof(*turns), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (turns == MAP_FAILED)
		return 1;
	printf("%d\n", getpid());
	fflush(stdout);
	if (argc < 3)
		run(turns, NULL);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		run(turns, line);
	}
	return 0;
}
