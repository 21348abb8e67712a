/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Words of the kernel's own memory, at addresses that this program computes.
 */
#ifndef SIDELANE_KERNEL_WORD_H
#define SIDELANE_KERNEL_WORD_H

#include "kernel/types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Casts a pointer to a kernel type, since Linux 6.2, at no cost: the verifier checks each read through the result. The
 * kernel's helpers for such casts are calls, which are expensive if returns are guarded against speculation. */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

/* Returns the 64-bit word at `address`; 0 if it cannot be read. `struct kernel_cpustat` is an array of such words. */
static __always_inline uint64_t kernel_word(uint64_t address)
{
	uint64_t word = 0;

	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		struct kernel_cpustat *words =
			bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct kernel_cpustat));
		return words->cpustat[0];
	}
	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

#endif
