/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * emit FILE COUNT: emits COUNT events into the slot at the start of FILE as fast as it can;
 * crates/formats/tests/emit.rs reads the slot at the same time. Every field of an event is computed from its number,
 * so that a mixture of two events is detected.
 */
#define _POSIX_C_SOURCE 199309L

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "../slot.h"

/* Number of events between two short sleeps, which let the reader run even if both share one
 * CPU. */
#define EVENTS_BETWEEN_RESTS 1024

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct sidelane_event_slot *map_slot(const char *path)
{
	int fd = open(path, O_RDWR);
	void *map = mmap(NULL, sizeof(struct sidelane_event_slot), PROT_READ | PROT_WRITE,
			 MAP_SHARED, fd, 0);

	if (map == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	return (struct sidelane_event_slot *)map;
}

static void emit_numbered(struct sidelane_event_slot *slot, uint32_t n)
{
	uint64_t payload[SIDELANE_PAYLOAD_WORDS];
	int i;

	for (i = 0; i < SIDELANE_PAYLOAD_WORDS; i++)
		payload[i] = (uint64_t)n * SIDELANE_PAYLOAD_WORDS + (uint64_t)i;
	sidelane_emit(slot, now_ns(), n + 1, n + 2, n + 3, payload);
}

int main(int argc, char **argv)
{
	const struct timespec rest = {0, 20000};
	struct sidelane_event_slot *slot;
	uint32_t count, n;

	if (argc != 3) {
		fprintf(stderr, "usage: %s FILE COUNT\n", argv[0]);
		return 2;
	}
	slot = map_slot(argv[1]);
	count = (uint32_t)strtoul(argv[2], NULL, 10);
	for (n = 1; n <= count; n++) {
		emit_numbered(slot, n);
		if (n % EVENTS_BETWEEN_RESTS == 0)
			nanosleep(&rest, NULL);
	}
	return 0;
}
