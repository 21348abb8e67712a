/* SPDX-License-Identifier: GPL-2.0-only
 *
 * In place of bpf/kernel/word.h: the words are this program's own.
 */
#include <stdint.h>

static inline uint64_t kernel_word(uint64_t address)
{
	return *(uint64_t *)address;
}
