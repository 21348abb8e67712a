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
 * and takes the promise back. If the agent sets request_count of a lane to 0, threads on it promise
 * nothing and do not nap: holders have taken over.
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_GATE_H
#define SIDELANE_ABI_GATE_H

#define SIDELANE_GATE_VERSION 2
#define SIDELANE_GATE_ENV "SIDELANE_GATE"

/* Policies that decide when batch may run beside requests; see crates/policy/src/borrow/kind.rs. */
enum sidelane_policy {
	SIDELANE_BORROW_IDLE = 0,
	SIDELANE_FIXED_BUDGET = 1,
	SIDELANE_REFRESH_BUDGET = 2,
	SIDELANE_DYNAMIC_REFRESH = 3,
	SIDELANE_DEADLINE = 4,
	SIDELANE_ELFEN_FIXED = 5, /* this policy and the next two are named as the paper prints them */
	SIDELANE_ELFEN_REFRESH = 6,
	SIDELANE_ELFEN_DYNAMIC = 7,
};

/* Largest number of other lanes on one core: POWER has eight lanes a core. */
#define SIDELANE_GATE_PARTNERS 7

/* Lending limits of a batch lane. The agent writes them; the holder, the kernel program and
 * self-checking batch read them. */
struct sidelane_lane_limits {
	uint64_t budget_ns;   /*  0: longest run of batch beside a request; by deadline, the request's age limit */
	uint64_t min_idle_ns; /*  8: how long the request lanes are idle before batch runs again */
	uint32_t policy;      /* 16: lending policy of the batch lane, enum sidelane_policy */
	uint32_t contention_cost_ppm; /* 20: loss of a request, in millionths of co-running; see policy/borrow/dynamic.rs */
	uint32_t request_count; /* 24: number of request lanes of this batch lane's core; 0: batch must not check it */
	uint32_t requests[SIDELANE_GATE_PARTNERS]; /* 28: CPUs of those request lanes */
	uint64_t queued_ns;   /* 56: age that each waiting request adds, for the deadline policy */
};

#define SIDELANE_GATE_HIST_BUCKETS 1024

/* Accounting of batch that checks its lane itself (instrumented gate): its naps, and the time
 * that it ran beside the service with permission. The batch thread on the lane writes it. The
 * agent reads it, and so does the kernel program, to compute the delay of a request by batch. */
struct sidelane_gate_word {
	uint32_t nap_tid;      /*  0: thread id of the batch thread that naps on this lane; 0 for none */
	uint32_t naps;         /*  4: number of naps begun, wraps */
	uint64_t nap_since_ns; /*  8: start of the current or last nap */
	uint64_t napped_ns;    /* 16: total time napped, without the time since nap_mark_ns */
	uint64_t napped_lc_ns; /* 24: part of napped_ns in which LC threads ran on the request lanes: no overlap */
	uint64_t slow_paths;   /* 32: number of checks that found the check word set */
	uint64_t lent_lc_ns;   /* 40: time that batch ran beside LC threads with the policy's permission */
	uint64_t promises;     /* 48: number of threads that promised to check often on this lane */
	uint64_t nap_mark_ns;  /* 56: start of nap time not yet in napped_ns; 0 while it is added, or without a nap */
	uint32_t on_hist[SIDELANE_GATE_HIST_BUCKETS]; /* 64: histogram: ns from service stop to the end of a nap */
	uint32_t off_hist[SIDELANE_GATE_HIST_BUCKETS]; /* 4160: ns from service start to nap; buckets: bpf/lanes.h */
};

#endif
