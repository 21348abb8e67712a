/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDELANE_STUB_H
#define SIDELANE_STUB_H

#include <stdint.h>
#include <time.h>

/* Shared file of gate_stub.c and the process that closes its gate. */
struct stub {
	_Atomic uint32_t word;       /*  0: not 0: the gate is closed */
	_Atomic uint32_t slow_paths; /*  4: number of times that a thread reached the slow path */
	_Atomic uint64_t entered_ns; /*  8: when the first thread reached the closed gate; set to 0 before closing */
};

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
