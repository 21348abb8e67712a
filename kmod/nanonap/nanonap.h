/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/nanonap: a thread keeps its lane while using none of its core.
 *
 * The caller names a word in its own memory, the value it last saw there, and a longest time. The
 * lane sleeps, with the caller on it, until the word's cache line is written, an interrupt comes,
 * or the time is over. There is no telling which, and a nap may end for no reason: look and, if
 * need be, nap again.
 */
#ifndef NANONAP_H
#define NANONAP_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct nanonap_nap {
	__u64 word;       /*  0: address of a 32-bit word, aligned; it need not be writable */
	__u32 expected;   /*  8: no nap if the word has another value once it is watched */
	__u32 longest_ns; /* 12: 1 to NANONAP_LONGEST_NS */
};

/* A quarter of the shortest timer tick there is: nobody waits for a napping lane for longer than
 * for a computing one. */
#define NANONAP_LONGEST_NS 250000

/* Returns 0 after a nap, or without one if the word has changed. EFAULT: no memory of the
 * caller's at `word`; EINVAL: `word` is not aligned, or `longest_ns` out of its bounds. */
#define NANONAP_NAP _IOW('N', 0x40, struct nanonap_nap)

#endif
