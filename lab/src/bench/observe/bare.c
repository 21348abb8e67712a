/* SPDX-License-Identifier: Apache-2.0
 *
 * The physical limit of reading a tag: a bare loop that only reads and counts (the consumer of
 * thesis Figure 3.8). `bare PID SIGNAL SECONDS`: prints the cycles of one turn.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

#include "../sidelane_signal.h"

#define TURNS 1000000

static struct sidelane_signals_file *map_signals(const char *pid)
{
	char path[64], link[128];
	DIR *files;
	struct dirent *file;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	files = opendir(path);
	while (files && (file = readdir(files))) {
		ssize_t length = readlinkat(dirfd(files), file->d_name, link, sizeof(link) - 1);
		void *memory;
		int fd;

		if (length < 0)
			continue;
		link[length] = 0;
		if (!strstr(link, "memfd:" SIDELANE_SIGNALS_NAME))
			continue;
		fd = openat(dirfd(files), file->d_name, O_RDONLY);
		memory = mmap(0, sizeof(struct sidelane_signals_file), PROT_READ, MAP_SHARED, fd, 0);
		if (memory != MAP_FAILED)
			return (struct sidelane_signals_file *)memory;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sidelane_signals_file *file = argc > 3 ? map_signals(argv[1]) : 0;
	double seconds = argc > 3 ? atof(argv[3]) : 0;
	volatile uint64_t *word = 0;
	uint64_t sum = 0, turns = 0, began, ends;

	for (int i = 0; file && i < SIDELANE_SIGNALS; i++)
		if (!strcmp(file->signals[i].name, argv[2]))
			word = &file->signals[i].value;
	if (!word) {
		fprintf(stderr, "bare: process %s emits no signal %s\n", argc > 1 ? argv[1] : "?", argc > 2 ? argv[2] : "?");
		return 1;
	}
	began = __rdtsc();
	ends = began + (uint64_t)(seconds * 2e9);
	while (__rdtsc() < ends) {
		for (int turn = 0; turn < TURNS; turn++)
			sum += *word;
		turns += TURNS;
	}
	printf("%.4f\n", (double)(__rdtsc() - began) / (double)turns);
	return sum == 1; /* keeps the compiler from removing the reads */
}
