/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The instrumented gate: what an agent and the batch programs that check for themselves share.
 * crates/signal/src/gate.rs mirrors this file and asserts every offset.
 *
 * The agent starts batch with file descriptors of six arrays, each with one entry a CPU unless
 * noted, and names them in the environment:
 *
 *   SIDELANE_GATE=2:LANES:REQUESTS:SERVICES:TERMS:GATES:THREADS:NUMBER
 *
 *   2         the version of this format
 *   LANES     struct sidelane_lane_word, to be mapped read-only
 *   REQUESTS  struct sidelane_request_word, to be mapped read-only
 *   SERVICES  struct sidelane_service_word, a page a service, to be mapped read-only
 *   TERMS     struct sidelane_lane_terms, to be mapped read-only
 *   GATES     struct sidelane_gate_word
 *   THREADS   uint64_t, one bit a thread id, 64 to an entry: threads that check
 *   NUMBER    which page of SERVICES is the service's
 *
 * The check word is busy_lanes of the service word. The kernel program counts it while batch is
 * gated, and only then.
 *
 * A thread that sets its bit promises to look at the check word often. The kernel program does not
 * summon the lane's holder while such a thread runs there; it hands the bit on to threads and
 * processes that the thread makes, and clears it when the thread ends or becomes another program.
 * A promise that is not kept is noticed by the holder, which looks in once in a while and takes
 * it back.
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_GATE_H
#define SIDELANE_ABI_GATE_H

#define SIDELANE_GATE_VERSION 2
#define SIDELANE_GATE_ENV "SIDELANE_GATE"

/* Which policy decides; see crates/policy/src/borrow/kind.rs. */
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

/* POWER has eight lanes a core. */
#define SIDELANE_GATE_PARTNERS 7

/* The terms on which a batch lane is lent: written by the agent, read by whoever decides. */
struct sidelane_lane_terms {
	uint64_t budget_ns;   /*  0: how long batch may run beside a request; by deadline, until it is how old */
	uint64_t min_idle_ns; /*  8: how long the request lanes are idle before batch runs again */
	uint32_t policy;      /* 16: enum sidelane_policy */
	uint32_t harm_ppm;    /* 20: delay of a request by co-running, a million for all of it; see policy/borrow/dynamic.rs */
	uint32_t request_count; /* 24: request lanes of this batch lane's core; 0: not a batch lane */
	uint32_t requests[SIDELANE_GATE_PARTNERS]; /* 28: their CPUs */
	uint64_t queued_ns;   /* 56: by deadline, for how much age a request counts that waits */
};

#define SIDELANE_GATE_HIST_BUCKETS 1024

/* The books of a gate: written by the batch thread on the lane, read by the agent and, for how much batch
 * cost a request, by the kernel program. */
struct sidelane_gate_word {
	uint32_t nap_tid;      /*  0: thread that naps here, 0 for none */
	uint32_t naps;         /*  4: naps begun, wraps */
	uint64_t nap_since_ns; /*  8: start of the present or last nap */
	uint64_t napped_ns;    /* 16: time napped, but for what nap_mark_ns says */
	uint64_t napped_lc_ns; /* 24: of it, LC threads ran on the request lanes: no overlap */
	uint64_t slow_paths;   /* 32: checks that found the check word set */
	uint64_t lent_lc_ns;   /* 40: time threads ran beside LC threads, as the policy allowed */
	uint64_t promises;     /* 48: threads that promised to look for themselves, while on this lane */
	uint64_t nap_mark_ns;  /* 56: since when nap_tid naps and has not added it to napped_ns; 0 while it does that, or nobody naps */
	uint32_t on_hist[SIDELANE_GATE_HIST_BUCKETS]; /* 64: service idle to the end of a nap, ns */
	uint32_t off_hist[SIDELANE_GATE_HIST_BUCKETS]; /* 4160: service running to nap of batch that ran, ns; buckets as in bpf/lanes.h */
};

#endif
