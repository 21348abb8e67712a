/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Hazards: reasons why a server is slow for a while. A watcher reports them to the proxy in front of the server
 * (thesis "SHIM and Its Applications", section 4.2.3: the profiler tells the proxy). crates/proxy writes this
 * format for the watchers of crates/hazards, and reads it; crates/formats/src/hazard.rs mirrors it and asserts every
 * offset. Any language can write it.
 *
 * A page of shared memory holds
 *
 *   struct sidelane_hazard_head
 *   SIDELANE_HAZARD_SERVERS times: struct sidelane_hazard_word
 *
 * and an eventfd goes with it. One watcher writes the word of a server: since_ns and began first,
 * then hazards (release); then it writes to the eventfd, which wakes the proxy. The proxy reads
 * hazards (acquire), then the rest.
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_HAZARD_H
#define SIDELANE_ABI_HAZARD_H

#define SIDELANE_HAZARD_MAGIC 0x6472617a61687364ull /* "dshazard", little-endian */
#define SIDELANE_HAZARD_VERSION 1
#define SIDELANE_HAZARD_SERVERS 4

/* Hazards of a server, as bit numbers. Bits 5 and 6 are for hazards that the proxy itself
 * notices; they are unused here. */
enum sidelane_hazard {
	SIDELANE_HAZARD_JVM_GC = 0,    /* the server's JVM collects garbage */
	SIDELANE_HAZARD_SAFEPOINT = 1, /* the server's JVM has stopped all threads */
	SIDELANE_HAZARD_STOPPED = 2,   /* the server's process is stopped or frozen */
	SIDELANE_HAZARD_THROTTLED = 3, /* the server's cgroup has used up its quota of CPU time */
	SIDELANE_HAZARD_RESTART = 4,   /* the server has ended, and no process listens for it yet */
};

struct sidelane_hazard_head {
	uint64_t magic;   /*  0: constant that identifies this format */
	uint32_t version; /*  8: version of this format */
	uint32_t servers; /* 12: number of servers: SIDELANE_HAZARD_SERVERS */
	uint64_t reserved[6];
};

struct sidelane_hazard_word {
	uint64_t since_ns; /*  0: when the server's latest hazard began, CLOCK_MONOTONIC */
	uint32_t hazards;  /*  8: bits of the present hazards, enum sidelane_hazard */
	uint32_t began;    /* 12: number of hazards that have begun so far */
	uint64_t reserved[6];
};

#endif
