/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch that writes nonsense into all arrays of the gate that it can write to, again and again.
 */
#include "nonsense.h"

#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t any(void)
{
	return anything(getpid());
}

int main(void)
{
	int fds[6];
	volatile uint64_t *arrays[6];
	uint64_t words[6] = { 0 };
	const char *gate = getenv("SIDELANE_GATE");
	if (!gate || sscanf(gate, "2:%d:%d:%d:%d:%d:%d:", fds, fds + 1, fds + 2, fds + 3, fds + 4, fds + 5) != 6)
		return 9;
	for (int at = 0; at < 6; at++) {
		struct bpf_map_info info = { 0 };
		union bpf_attr wanted;
		memset(&wanted, 0, sizeof wanted);
		wanted.info.bpf_fd = fds[at];
		wanted.info.info_len = sizeof info;
		wanted.info.info = (uintptr_t)&info;
		if (syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &wanted, sizeof wanted))
			continue;
		uint64_t length = ((info.value_size + 7ull) / 8 * 8 * info.max_entries + 4095) / 4096 * 4096;
		arrays[at] = mmap(0, length, PROT_READ | PROT_WRITE, MAP_SHARED, fds[at], 0);
		if (arrays[at] != MAP_FAILED)
			words[at] = length / 8;
	}
	for (;;) {
		for (int turn = 0; turn < 200; turn++) {
			int at = any() % 6;
			if (words[at])
				arrays[at][any() % words[at]] = any();
		}
		for (volatile int spin = 0; spin < 100000; spin++)
			;
	}
}
