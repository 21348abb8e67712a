/* SPDX-License-Identifier: Apache-2.0
 *
 * A faulty service: it emits one request, and then writes random values to random places of
 * its file, for 2 ms at a time with as much rest in between.
 */
#include "../sidelane.h"
#include "nonsense.h"

#include <string.h>

static uint64_t any(void)
{
	return anything(sidelane_now_ns());
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
			file[first + any() % (words - first)] = any();
			/* Random positions rarely hit the heads of rings, a small part of the
			 * file, so the test also writes to them directly. */
			ring = any() % SIDELANE_EMIT_THREADS;
			word = any() % (sizeof(struct sidelane_emit_thread) / 8);
			file[first + ring * sizeof(struct sidelane_emit_ring) / 8 + word] = any();
			memset(&file[3], 0xff, 8);
		}
	}
}
