/* SPDX-License-Identifier: Apache-2.0
 *
 * A faulty service: it emits one request, and then writes random values to random places of
 * its file, for 2 ms at a time with as much rest in between.
 */
#include "../sidelane.h"

#include <string.h>

static uint64_t state = 88172645463325252u;

static uint64_t anything(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	switch (state >> 40 & 7) {
	case 0: return UINT64_MAX;
	case 1: return 0;
	case 2: return sidelane_now_ns();
	case 3: return state >> 56;
	default: return state;
	}
}

int main(void)
{
	struct timespec rest = { 0, 2000000 };
	uint64_t end_ns, words = sizeof(struct sidelane_emit_file) / 8, first = sizeof(struct sidelane_emit_head) / 8;
	uint64_t *file, ring, word;

	sidelane_request_receive(1);
	sidelane_request_start(1);
	file = (uint64_t *)sidelane_emit_self_.file;
	for (;; nanosleep(&rest, 0)) {
		end_ns = sidelane_now_ns() + 2000000;
		while (sidelane_now_ns() < end_ns) {
			file[first + anything() % (words - first)] = anything();
			/* Random positions rarely hit the heads of rings, a small part of the
			 * file, so the test also writes to them directly. */
			ring = anything() % SIDELANE_EMIT_THREADS;
			word = anything() % (sizeof(struct sidelane_emit_thread) / 8);
			file[first + ring * sizeof(struct sidelane_emit_ring) / 8 + word] = anything();
			memset(&file[3], 0xff, 8);
		}
	}
}
