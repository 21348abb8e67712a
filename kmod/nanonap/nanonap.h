/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/nanonap: a thread keeps its lane without using the core.
 *
 * The caller names a word in its own memory, the value that it last read there, and a longest time.
 * The lane sleeps, with the caller on it, until the word's cache line is written, an interrupt
 * arrives, or the time is over. The caller cannot tell which of these happened, and a nap may end
 * without a reason: read the word again and, if needed, nap again.
 */
#ifndef NANONAP_H
#define NANONAP_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct nanonap_nap {
	__u64 word;       /*  0: address of a 32-bit word, aligned; it need not be writable */
	__u32 expected;   /*  8: no nap if the word has another value when the watch begins */
	__u32 longest_ns; /* 12: 1 to NANONAP_LONGEST_NS */
};

/* Longest nap: a quarter of the shortest timer tick. So a thread waits for a napping lane no
 * longer than for a computing one. */
#define NANONAP_LONGEST_NS 250000

/* Naps. Returns 0 after a nap, or without one if the word has changed. EFAULT: `word` is not in
 * the caller's memory; EINVAL: `word` is not aligned, or `longest_ns` is out of range. */
#define NANONAP_NAP _IOW('N', 0x40, struct nanonap_nap)

#endif
