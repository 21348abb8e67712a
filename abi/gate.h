/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The instrumented gate: what an agent and batch programs that check their own lane share.
 * crates/formats/src/gate.rs mirrors this file and asserts every offset.
 *
 * The agent starts batch with file descriptors of six arrays, each with one entry for each CPU
 * unless noted, and names them in the environment:
 *
 *   SIDELANE_GATE=2:LANES:REQUESTS:SERVICES:LIMITS:GATES:THREADS:NUMBER
 *
 *   2         the version of this format
 *   LANES     struct sidelane_lane_word, to be mapped read-only
 *   REQUESTS  struct sidelane_request_word, to be mapped read-only
 *   SERVICES  struct sidelane_service_word, a page a service, to be mapped read-only
 *   LIMITS    struct sidelane_lane_limits, to be mapped read-only
 *   GATES     struct sidelane_gate_word
 *   THREADS   uint64_t, one bit a thread id, 64 to an entry: threads that check
 *   NUMBER    which page of SERVICES is the service's
 *
 * The check word is busy_lanes of the service word. The kernel program counts the busy lanes there
 * only while batch is gated.
 *
 * A thread that sets its bit promises to check often. While such a thread runs on a lane, the
 * kernel program does not summon the lane's holder. It copies the bit to threads and processes that
 * the thread creates, and clears it when the thread ends or executes another program. The holder
 * looks at the lane from time to time; if a thread does not keep its promise, the holder notices
 * and takes the promise back.
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_GATE_H
#define SIDELANE_ABI_GATE_H

#define SIDELANE_GATE_VERSION 2
#define SIDELANE_GATE_ENV "SIDELANE_GATE"

/* The policy; see crates/policy/src/borrow/kind.rs. */
enum sidelane_policy {
	SIDELANE_BORROW_IDLE = 0,
	SIDELANE_FIXED_BUDGET = 1,
	SIDELANE_REFRESH_BUDGET = 2,
	SIDELANE_DYNAMIC_REFRESH = 3,
	SIDELANE_DEADLINE = 4,
	SIDELANE_ELFEN_FIXED = 5, /* the last three as the paper prints them */
	SIDELANE_ELFEN_REFRESH = 6,
	SIDELANE_ELFEN_DYNAMIC = 7,
};

/* POWER has eight lanes on each core. */
#define SIDELANE_GATE_PARTNERS 7

/* The lending limits of a batch lane: written by the agent, read by the holder, the kernel
 * program and batch that checks. */
struct sidelane_lane_limits {
	uint64_t budget_ns;   /*  0: how long batch may run beside a request; by deadline, that request's age limit */
	uint64_t min_idle_ns; /*  8: how long the request lanes are idle before batch runs again */
	uint32_t policy;      /* 16: enum sidelane_policy */
	uint32_t contention_cost_ppm; /* 20: loss of a request, in millionths of co-running; see policy/borrow/dynamic.rs */
	uint32_t request_count; /* 24: request lanes of this batch lane's core; 0: not a batch lane */
	uint32_t requests[SIDELANE_GATE_PARTNERS]; /* 28: their CPUs */
	uint64_t queued_ns;   /* 56: by deadline, the age that each waiting request counts for */
};

#define SIDELANE_GATE_HIST_BUCKETS 1024

/* The accounting of a gate: written by the batch thread on the lane, read by the agent and, for the
 * delay that batch causes to a request, by the kernel program. */
struct sidelane_gate_word {
	uint32_t nap_tid;      /*  0: thread that naps here, 0 for none */
	uint32_t naps;         /*  4: naps begun, wraps */
	uint64_t nap_since_ns; /*  8: start of the current or last nap */
	uint64_t napped_ns;    /* 16: time napped, without the time since nap_mark_ns */
	uint64_t napped_lc_ns; /* 24: the part in which LC threads ran on the request lanes: no overlap */
	uint64_t slow_paths;   /* 32: checks that found the check word set */
	uint64_t lent_lc_ns;   /* 40: time that threads ran beside LC threads with the policy's leave */
	uint64_t promises;     /* 48: promises to check that threads made on this lane */
	uint64_t nap_mark_ns;  /* 56: start of the nap not yet in napped_ns; 0 while it is added, or without a nap */
	uint32_t on_hist[SIDELANE_GATE_HIST_BUCKETS]; /* 64: time from service idle to the end of a nap, ns */
	uint32_t off_hist[SIDELANE_GATE_HIST_BUCKETS]; /* 4160: service running to batch's nap, ns; buckets: bpf/lanes.h */
};

#endif
