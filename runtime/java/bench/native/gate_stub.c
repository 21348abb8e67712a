/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces libsidelane_gate.so where no service runs. The word is in a file ($SIDELANE_STUB_WORD)
 * that a second process may map to close the gate; without that file the gate stays open.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stub.h"

static struct stub always_open;
static struct stub *stub = &always_open;

__attribute__((constructor)) static void map_word(void)
{
	const char *path = getenv("SIDELANE_STUB_WORD");
	int fd = path ? open(path, O_RDWR) : -1;
	void *page;

	if (fd < 0)
		return;
	page = mmap(NULL, sizeof(*stub), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (page != MAP_FAILED)
		stub = page;
}

uint32_t *sidelane_check_address(void)
{
	return (uint32_t *)&stub->word;
}

void sidelane_gate_slow_path(void)
{
	uint64_t now = now_ns(), none = 0;

	if (!stub->word) /* the first call of a thread is its promise to check */
		return;
	__atomic_compare_exchange_n(&stub->entered_ns, &none, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	stub->slow_paths++;
	while (stub->word)
		__builtin_ia32_pause();
}
