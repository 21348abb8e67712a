/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The memory of an emulated core of two CPUs, which sibling.bpf.c and the lab's programs share.
 * core.rs asserts the size of every struct.
 *
 * A *stopwatch* is one word, so that one load reads it. A stopped stopwatch holds (sum << 1), a
 * running one ((sum - start) << 1 | 1). The start is a time, or the reading of another stopwatch.
 * A reader that knows the time can therefore read a stopwatch without a lock or a system call.
 */
#ifndef SIBLING_H
#define SIBLING_H

/* Lane 0 is the request lane, lane 1 the batch lane. */
#define SIBLING_LANES 2

/* Load that a lane puts on its sibling lane. A lane that is asleep puts no load on it. */
enum sibling_load {
	SIBLING_WORKS = 0, /* a program runs there, or waits while the steal emulator runs */
	SIBLING_NAPS = 1,  /* a lane holder keeps it empty */
};
#define SIBLING_LOADS 2

/* Largest number of threads that emulate the slowdown by a sibling lane themselves; each has a slot, counted from 1. */
#define SIBLING_THREADS 16

struct sibling_lane {
	uint64_t spent[SIBLING_LOADS];   /*  0: stopwatches: time in which the lane worked, and napped */
	uint64_t both[SIBLING_LOADS];    /* 16: stopwatches: the other lane's work and naps while this lane worked */
	uint64_t overlap[SIBLING_LOADS]; /* 32: the part of `both` while threads without a place ran */
	uint64_t taken;                  /* 48: stopwatch: the steal emulator ran while a thread waited for it */
	uint32_t steal_tid;              /* 56: thread id; written by user space */
	uint32_t waiting;                /* 60: a thread without a place was pre-empted and has not run since */
	uint32_t place;                  /* 64: place of the running thread, counted from 1; 0: none */
	uint32_t switches;               /* 68 */
	uint32_t cost_ns;                /* 72: the kernel program's own time, in the sampled switches */
	uint32_t cost_samples;           /* 76 */
	uint64_t spun_ns;                /* 80: time that threads spun to emulate their loss; written by them */
	uint64_t looks;                  /* 88: how often those threads checked their overlap */
	uint32_t running;                /* 96: thread id of the last visible switch-in */
	uint32_t reserved_1;             /* 100 */
	int64_t began_ns;                /* 104: time at which the thread `running` was switched in */
	int64_t scheduler_behind_ns;     /* 112: how far the scheduler's clock is behind; 0: not known yet */
	uint64_t reserved_2;             /* 120 */
};

struct sibling_thread {
	uint64_t overlap[SIBLING_LOADS]; /*  0: stopwatches: the other lane's work and naps while this thread ran */
	uint32_t turns;                  /* 16: how often it was switched in, on any CPU */
	uint32_t lane;                   /* 20: the lane where it was switched in last */
	uint64_t reserved[5];            /* 24 */
};

struct sibling_core {
	uint32_t cpus[SIBLING_LANES]; /* ~0: no CPU; such a lane always works, by stopwatches that user space has started */
	uint32_t generation; /* odd while the two CPUs are one core; counters start at 0 in each generation */
	uint32_t stand_in;   /* whether a thread makes page faults while it emulates its loss */
	/* Share of time that each lane loses beside each load of the other lane, in millionths. */
	uint64_t loss_ppm[SIBLING_LANES][SIBLING_LOADS];
	uint64_t reserved_2[2];
	uint32_t tids[SIBLING_THREADS]; /* the owner of each place; 0: free */
	struct sibling_lane lanes[SIBLING_LANES];
	struct sibling_thread threads[SIBLING_THREADS];
};

#endif
