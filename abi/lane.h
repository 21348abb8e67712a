/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Lane words: what runs on each lane, shared by the kernel program that writes them
 * and everyone who reads them as plain memory. One cache line each, so that a reader
 * of one lane never disturbs the writer of another. crates/signal/src/lane.rs mirrors
 * this file and asserts every offset; times are CLOCK_MONOTONIC nanoseconds.
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_LANE_H
#define SIDELANE_ABI_LANE_H

/* Who runs on a lane. */
enum sidelane_class {
	SIDELANE_IDLE = 0,  /* the idle task */
	SIDELANE_LC = 1,    /* a thread of the latency-critical service */
	SIDELANE_BATCH = 2, /* a thread of the batch command */
	SIDELANE_OTHER = 3, /* anything else, the lane's holder included */
};

/* Written by the lane's own CPU at each context switch, read by anyone. A reader that
 * needs several fields of one moment reads since_ns before and after them: 0 means that
 * the word is being written, a change that it was. Three fields do not belong to a switch:
 * busy and busy_since_ns are also set by whichever CPU wakes a thread of the service for
 * this lane, lc_visitors by whichever puts one here. */
struct sidelane_lane_word {
	uint64_t since_ns;    /*  0: time of the last switch; set to 0 first and written last */
	uint32_t class_;      /*  8: enum sidelane_class of the running thread */
	uint32_t pid;         /* 12: thread id of the running thread */
	uint32_t tgid;        /* 16: process id of the running thread */
	uint32_t switches;    /* 20: context switches seen, wraps */
	uint32_t busy;        /* 24: 1 while the service needs the lane: it was woken, runs, or was preempted */
	uint32_t lc_visitors; /* 28: LC threads that were put on this lane while it is a batch lane, wraps */
	uint64_t busy_since_ns; /* 32: start of the present or last busy period */
	uint64_t idle_since_ns; /* 40: end of the last busy period, 0 before the first */
	uint64_t lc_done_ns;  /* 48: time LC threads ran here, up to the last LC switch-out */
	uint64_t lc_since_ns; /* 56: start of the running LC thread's turn, 0 while none runs */
};

/* How a batch lane is held. The holder and the kernel program move it in turn:
 *
 *   RELEASED --kernel: service starts beside running batch--> SUMMONED
 *   SUMMONED --holder: runs, preempting batch---------------> HELD
 *   HELD     --holder: service idle long enough-------------> RELEASED
 *   HELD     --holder: batch sent away, lane left to kernel-> EVICTED
 *   EVICTED  --holder: looks again, by its own timer--------> HELD
 *   HELD     --holder: batch may run beside some requests---> LENT
 *   LENT     --kernel: a request starts that had to wait----> SUMMONED
 *
 * Where batch has a scheduler of its own (gate sched-ext), that keeps it off a RELEASED or SUMMONED
 * lane as long as the service is busy, and off one that is HELD. So the lane's keeper need not
 * come to it, and is summoned less often:
 *
 *   HELD     --kernel: service stops------------------------> SUMMONED
 *   LENT     --kernel: a request starts that had to wait----> HELD
 *
 * Both sides store their own word, then read the other's, with a full barrier between:
 * one of them always sees the other, so no start of the service is missed. A summons is
 * a compare-and-swap, so it is sent once. */
enum sidelane_hold {
	SIDELANE_RELEASED = 0,
	SIDELANE_SUMMONED = 1,
	SIDELANE_HELD = 2,
	SIDELANE_EVICTED = 3,
	SIDELANE_LENT = 4,
};

/* One a batch lane, on a cache line of its own: both sides write it. */
struct sidelane_hold_word {
	uint32_t state;      /*  0: enum sidelane_hold */
	uint32_t holder_pid; /*  4: thread id of the holder, 0 while there is none */
	uint64_t summons;    /*  8: wake-ups sent to the holder */
	uint64_t lc_summons; /* 16: those of them sent, and paid for, by the request lane */
	uint32_t batch_waits; /* 24: 1 while batch, preempted, waits for the lane */
	uint32_t waiting_pid; /* 28: thread id of that batch */
	uint64_t lent_until_ns; /* 32: when it was last lent, where nobody takes the lane to change that */
	uint32_t reserved[6]; /* 40 */
};

#endif
