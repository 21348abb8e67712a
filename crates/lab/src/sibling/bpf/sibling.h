/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The core that two CPUs are made to be: memory that sibling.bpf.c and the lab's programs share.
 * core.rs asserts every size.
 *
 * A *stopwatch* is one word, so that it is read whole: (so far << 1) while it stands, and
 * ((so far - start) << 1 | 1) while it runs, where the start is a time, or what another stopwatch
 * showed. So whoever knows the time can read it, without a lock and without a system call.
 */
#ifndef SIBLING_H
#define SIBLING_H

/* Lane 0 is the request lane, lane 1 the batch lane. */
#define SIBLING_LANES 2

/* What a lane does to the other one. Asleep is neither. */
enum sibling_load {
	SIBLING_WORKS = 0, /* a program runs there, or waits for the thief that plays its lost cycles */
	SIBLING_NAPS = 1,  /* a lane holder keeps it empty */
};
#define SIBLING_LOADS 2

/* Threads that make up for their own overlap. */
#define SIBLING_THREADS 16

struct sibling_lane {
	uint64_t spent[SIBLING_LOADS];   /*  0: stopwatches: time in which it did this */
	uint64_t both[SIBLING_LOADS];    /* 16: stopwatches: what the other lane did while this one worked */
	uint64_t overlap[SIBLING_LOADS]; /* 32: of it, while threads without a place of their own ran */
	uint64_t taken;                  /* 48: stopwatch: time in which the thief ran and somebody waited for it */
	uint32_t thief;                  /* 56: thread id; written by user space */
	uint32_t waiting;                /* 60: a thread without a place was pre-empted and has not run since */
	uint32_t place;                  /* 64: of the thread that runs here, counted from 1; 0: it has none */
	uint32_t switches;               /* 68 */
	uint32_t cost_ns;                /* 72: this program's own time, in the sampled switches */
	uint32_t cost_samples;           /* 76 */
	uint64_t spun_ns;                /* 80: time in which threads made up for their overlap; written by them */
	uint64_t looks;                  /* 88: theirs */
	uint64_t reserved[4];            /* 96 */
};

struct sibling_thread {
	uint64_t overlap[SIBLING_LOADS]; /*  0: stopwatches: what the other lane did while this thread ran */
	uint32_t turns;                  /* 16: times that it was switched in */
	uint32_t lane;                   /* 20: where it was switched in last */
	uint64_t reserved[5];            /* 24 */
};

struct sibling_core {
	uint32_t cpus[SIBLING_LANES];
	uint32_t generation; /* odd while the two CPUs are one core; everything starts at 0 in each generation */
	uint32_t reserved;
	/* What each lane loses beside what the other one does, in millionths of that time. */
	uint64_t loss_ppm[SIBLING_LANES][SIBLING_LOADS];
	uint64_t reserved_2[2];
	uint32_t tids[SIBLING_THREADS]; /* whose places these are; 0: nobody's */
	struct sibling_lane lanes[SIBLING_LANES];
	struct sibling_thread threads[SIBLING_THREADS];
};

#endif
