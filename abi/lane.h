/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Lane words: what runs on each lane. The kernel program writes them, and any process may map and
 * read them. Each has a cache line of its own, so that a reader of one lane does not slow the
 * writer of another. crates/formats/src/lane.rs mirrors this file and asserts every offset; times
 * are CLOCK_MONOTONIC nanoseconds.
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_LANE_H
#define SIDELANE_ABI_LANE_H

/* Class of the thread that runs on a lane. */
enum sidelane_class {
	SIDELANE_IDLE = 0,  /* the idle task */
	SIDELANE_LC = 1,    /* a thread of the latency-critical service */
	SIDELANE_BATCH = 2, /* a thread of the batch command */
	SIDELANE_OTHER = 3, /* any other thread, the lane's holder included */
};

/* State of one lane. The lane's own CPU writes it at each context switch; any process may read
 * it. A reader of several fields reads since_ns before and after them. If it was 0 or has
 * changed, the fields were being written, and the reader tries again. Three fields are also
 * written between context switches. The CPU that wakes a thread of the service for this lane
 * writes busy and busy_since_ns. The CPU that puts such a thread here writes lc_visitors. */
struct sidelane_lane_word {
	uint64_t since_ns;    /*  0: time of the last switch; set to 0 first, written last */
	uint32_t class_;      /*  8: enum sidelane_class of the running thread */
	uint32_t pid;         /* 12: thread id of the running thread */
	uint32_t tgid;        /* 16: process id of the running thread */
	uint32_t switches;    /* 20: number of context switches, wraps */
	uint32_t busy;        /* 24: 1 while the service needs the lane: it was woken, runs, or was preempted */
	uint32_t lc_visitors; /* 28: number of LC threads that were put on this lane while it is a batch lane, wraps */
	uint64_t busy_since_ns; /* 32: start of the current or last busy period */
	uint64_t idle_since_ns; /* 40: end of the last busy period, 0 before the first */
	uint64_t lc_done_ns;  /* 48: total time that LC threads ran here, up to the last LC switch-out */
	uint64_t lc_since_ns; /* 56: start of the present turn of an LC thread, 0 while none runs */
};

/* How a batch lane is held. The holder and the kernel program change the state:
 *
 *   RELEASED --kernel: service starts beside running batch--> SUMMONED
 *   SUMMONED --holder: runs, preempting batch---------------> HELD
 *   HELD     --holder: service idle long enough-------------> RELEASED
 *   HELD     --holder: batch sent away, lane left to kernel-> EVICTED
 *   EVICTED  --holder: looks again, by its own timer--------> HELD
 *   EVICTED  --kernel: batch is there beside the service----> SUMMONED
 *   HELD     --holder: batch may run beside some requests---> LENT
 *   LENT     --kernel: a request starts that had to wait----> SUMMONED
 *
 * Under the gate sched-ext, batch has a scheduler of its own. That scheduler keeps batch off a
 * RELEASED or SUMMONED lane as long as the service is busy, and off a HELD lane. So the lane's
 * keeper, the thread that replaces the holder, need not run on the lane, and is summoned less
 * often:
 *
 *   HELD     --kernel: service stops------------------------> SUMMONED
 *   LENT     --kernel: a request starts that had to wait----> HELD
 *
 * Each side stores its own word, then reads the other's, with a full barrier between: at least one
 * of them sees the other's store, so no start of the service is missed. A summons is a
 * compare-and-swap, so it is sent once. */
enum sidelane_hold {
	SIDELANE_RELEASED = 0,
	SIDELANE_SUMMONED = 1,
	SIDELANE_HELD = 2,
	SIDELANE_EVICTED = 3,
	SIDELANE_LENT = 4,
};

/* Hold word of a batch lane, in a cache line of its own: holder and kernel program both write
 * it. */
struct sidelane_hold_word {
	uint32_t state;      /*  0: state of the batch lane, enum sidelane_hold */
	uint32_t holder_pid; /*  4: thread id of the holder, 0 while there is none */
	uint64_t summons;    /*  8: number of wakeups sent to the holder */
	uint64_t lc_summons; /* 16: part of the summons that the request lane sent, at the service's cost */
	uint32_t batch_waits; /* 24: 1 while batch, preempted, waits for the lane */
	uint32_t waiting_pid; /* 28: thread id of the batch thread that waits */
	uint64_t lent_until_ns; /* 32: end of the last lending, if no holder takes the lane back */
	uint32_t kept_off;   /* 40: 1 while batch is kept off the lane, whatever the service does */
	uint32_t call_when_idle; /* 44: 1 while a keeper that evicted batch waits for the service to stop */
	uint64_t threshold_ns; /* 48: time for which the holder waited until the service had been idle for long enough */
	uint64_t comparing_ns; /* 56: time of the holder beside the idle service while batch was kept off */
};

#endif
