/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Memory that lanes.bpf.c and src/tracker share besides the public lane words: roles set by user space, statistics
 * kept by the kernel. crates/tracker/build.rs makes Rust types of the structs that both use.
 */
#ifndef SIDELANE_LANES_H
#define SIDELANE_LANES_H

#include "abi/gate.h"
#include "abi/lane.h"
#include "abi/request.h"

/* POWER has eight lanes a core: seven partners. */
#define SIDELANE_MAX_PARTNERS 7

enum sidelane_role {
	SIDELANE_ROLE_NONE = 0,
	SIDELANE_ROLE_REQUEST = 1,
	SIDELANE_ROLE_BATCH = 2,
};

/* The role of a lane. The partners of a request lane are batch lanes, and vice versa. */
struct sidelane_lane_role {
	uint32_t role;            /*  0: enum sidelane_role */
	uint32_t service;         /*  4: number of the service whose requests run here, or on the partners */
	uint32_t lends_to_waited; /*  8: 1: a lent lane stays lent when a request starts that had to wait */
	uint32_t partner_count;   /* 12 */
	uint32_t partners[SIDELANE_MAX_PARTNERS]; /* 16 */
	uint32_t reserved;        /* 44 */
};

/* A process's identity: one byte a process id, eight in a word. 0: the process is not tracked. */
#define SIDELANE_IDENTITIES_PER_WORD 8
#define SIDELANE_IDENTITY_BITS 8
#define SIDELANE_IDENTITY_MASK 0xff
#define SIDELANE_IDENTITY_BATCH 1    /* it belongs to a batch job; otherwise to a service */
#define SIDELANE_IDENTITY_BY_GROUP 2 /* it has the identity while it is in a cgroup */
#define SIDELANE_NUMBER_SHIFT 2      /* above: the number of the service or of the batch job, from 1 on */

/* Services are numbered 1 to 63, and batch jobs as well. */
#define SIDELANE_NUMBERS 64

/* The words of services lie a page apart, so that a program can be given the page of one. */
#define SIDELANE_SERVICE_STRIDE 64

/* A cgroup that gives its processes, at any depth, an identity. */
struct sidelane_group {
	uint64_t id;        /*  0: the inode number of its directory */
	uint32_t hierarchy; /*  8: as in /proc/PID/cgroup; 0 is cgroup v2 */
	uint32_t reserved;  /* 12 */
};

/* The most cgroups: one for each service, and for each container of batch that an agent looks after. */
#define SIDELANE_GROUPS_MAX 512
/* Ports of all services in all network namespaces. */
#define SIDELANE_LISTENERS_MAX 4096

/* Latency histograms: 32 buckets for each power of two, so a bucket is at most 3 % wide.
 * Bucket i < 32 holds the value i itself; above, i = 32 * (log2(v) - 4) + next five bits. */
#define SIDELANE_HIST_SUB_BITS 5
#define SIDELANE_HIST_BUCKETS 1024

/* One for each lane, written only by that lane's own switches. */
struct sidelane_lane_stats {
	uint64_t switches;        /*   0: context switches */
	uint64_t lc_switches;     /*   8: switches to an LC thread */
	uint64_t batch_ns;        /*  16: time batch ran here */
	uint64_t batch_since_ns;  /*  24: start of batch's present turn, 0 while it does not run */
	uint64_t overlap_ns;      /*  32: the part of batch_ns in which LC threads ran on a partner lane */
	uint64_t overlap_mark_ns; /*  40: partners' LC clocks when batch's turn began */
	uint64_t leaks;           /*  48: batch switched in although the lane was held */
	uint64_t batch_strays;    /*  56: batch switched in on a lane that is not a batch lane */
	uint64_t lc_strays;       /*  64: LC switched in on a lane that is not a request lane */
	uint64_t cost_ns;         /*  72: this program's own time, in the sampled switches */
	uint64_t cost_samples;    /*  80: switches sampled for cost_ns */
	uint64_t lent_overlap_ns; /*  88: the part in which LC threads ran while the lane was lent: not in overlap_ns */
	uint64_t turn_is_lent;    /*  96: batch's present turn began on a lane that was lent */
	uint64_t cut_naps_ns;     /* 104: naps of self-checking batch that a switch cut short: not in its accounting */
	uint64_t stolen_ns[4];    /* 112: taken by the hypervisor, by the class of thread that ran (lane/stolen.h) */
	uint64_t stolen_seen_ns;  /* 144: the lane's steal clock at the last look */
	uint64_t stolen_gap_max_ns; /* 152: the most that was taken between two looks */
	uint64_t stolen_mark_ns;  /* 160: the steal clock when the service last started or stopped beside batch */
	uint64_t stolen_beside_ns; /* 168: taken from batch's present turn while LC threads ran on a partner lane */
	uint64_t lc_stolen_mark_ns; /* 176: taken from LC threads on partner lanes when batch's turn began */
	uint64_t run_queue;       /* 184: where the lane's run queue is */
	uint64_t untold;          /* 192: switches that the kernel did not report */
	uint64_t holder_since_ns; /* 200: start of the holder's last turn */
	uint64_t cut_naps_lc_ns;  /* 208: the part of cut_naps_ns in which LC threads ran on a partner lane */
	uint64_t alarm_ns;        /* 216: time of the last alarm (lane/alarm.h); written from several CPUs */
	uint32_t off_hist[SIDELANE_HIST_BUCKETS]; /* LC-on to batch-off */
	uint32_t on_hist[SIDELANE_HIST_BUCKETS];  /* LC-off to batch-on */
};

/* The thread that has a batch lane. From SIDELANE_TURN_WORKER on: kinds of other threads, in the order of beside_ns. */
enum sidelane_turn_kind {
	SIDELANE_TURN_OWN = 0,       /* batch, or the service: counted elsewhere */
	SIDELANE_TURN_EMPTY = 1,     /* the holder, or nothing */
	SIDELANE_TURN_WORKER = 2,    /* a kworker */
	SIDELANE_TURN_INTERRUPT = 3, /* ksoftirqd, or an interrupt's thread */
	SIDELANE_TURN_KERNEL = 4,    /* another kernel thread */
	SIDELANE_TURN_PROGRAM = 5,   /* a program that is neither the service's nor batch's */
};

#define SIDELANE_OTHER_KINDS 4

/* Other work on a batch lane while the service runs beside it. Written only by that lane's own switches. */
struct sidelane_kernel_work {
	uint32_t turn;     /*  0: enum sidelane_turn_kind of the present turn */
	uint32_t reserved;
	uint64_t mark_ns;  /*  8: partners' LC clocks when it began */
	uint64_t stolen_mark_ns;     /* 16: the lane's steal clock then */
	uint64_t interrupts_mark_ns; /* 24: the lane's interrupt clock then */
	uint64_t beside_ns[SIDELANE_OTHER_KINDS]; /* 32: time of such threads beside the service, by kind */
	uint64_t interrupts_ns; /* 64: interrupt time beside it, in turns of these kinds and of EMPTY */
	uint64_t padding[7];
};

/* State of batch's own scheduler: a sched_ext program that runs only batch. One entry; only in the object that has
 * the scheduler. */
#define SIDELANE_EXT_REASON_BYTES 64
#define SIDELANE_EXT_MESSAGE_BYTES 128

struct sidelane_ext_word {
	uint32_t on;        /*  0: 1 while the kernel schedules batch by this program */
	uint32_t exit_kind; /*  4: why it no longer does, by the kernel's number; 0 while it does */
	uint32_t cpu_count; /*  8: CPUs that may be lanes; set by user space */
	int32_t runnable;   /* 12: threads of batch that run or wait */
	uint32_t outsiders; /* 16: times that batch ran in another class since user space looked */
	uint32_t reserved;
	char reason[SIDELANE_EXT_REASON_BYTES];
	char message[SIDELANE_EXT_MESSAGE_BYTES];
};

/* The argument of the program that changes a hold word. */
struct sidelane_hold_order {
	uint32_t lane;
	uint32_t state; /* enum sidelane_hold */
};

/* Turns of the service's and batch's threads on a lane, in order: turn number n, from 0 on, is in place n %
 * SIDELANE_TURNS. That is half a second at 2000 switches a second. */
#define SIDELANE_TURNS 1024

struct sidelane_turn {
	uint64_t began_ns; /*  0 */
	uint64_t ended_ns; /*  8 */
	uint32_t pid;      /* 16: thread id */
	uint32_t class_;   /* 20: enum sidelane_class */
};

struct sidelane_lane_turns {
	uint64_t count;       /*  0: turns that have ended; written after the turn itself */
	uint64_t reserved[7]; /*  8 */
	struct sidelane_turn turns[SIDELANE_TURNS]; /* 64 */
};

/* CPU time of each tracked service and job and of the idle task on one CPU. That CPU's own switches write it, up to
 * the last one. */
#define SIDELANE_SHARES (2 * SIDELANE_NUMBERS)

struct sidelane_cpu_shares {
	uint64_t since_ns; /*  0: start of the present turn; 0 before the first and while one is written */
	uint32_t class_;   /*  8: enum sidelane_class of the thread that has it */
	uint32_t identity; /* 12: its place in ran_ns */
	uint64_t idle_ns;  /* 16 */
	uint64_t reserved; /* 24 */
	uint64_t ran_ns[SIDELANE_SHARES]; /* 32: index: number times two, plus one for batch */
};

/* Set by user space before the program is loaded. */
struct sidelane_settings {
	/* Distances from a CPU's run queue; 0: not known. */
	int64_t stolen_offset;        /*  0: to the word that says what was stolen from the CPU */
	int64_t preempt_count_offset; /*  8: to the count that says whether it serves an interrupt */
	int64_t interrupts_offset;    /* 16: to its times in softirqs and in interrupts */
	uint32_t requests;      /* 24: 1: requests may be tracked at sockets */
	uint32_t turns;         /* 28: 1: turns are recorded, for requests that are emitted */
	uint32_t self_checking; /* 32: 1: batch may look for itself */
	uint32_t counters;      /* 36: 1: request lanes have counters */
	uint32_t groups;        /* 40: 1: cgroups may have an identity */
	uint32_t interference;  /* 44: 1: counters measure interference with a service */
	uint32_t shares;        /* 48: 1: shares of each CPU are recorded */
	uint32_t lanes;         /* 52: 1: the programs of lanes are loaded; 0: all programs skip what only lanes need */
	uint32_t trace_records; /* 56: places in the ring of each CPU, a power of two */
	uint32_t trace_long_ns; /* 60: interrupts and softirqs of at least this length are recorded */
	uint32_t threads;       /* 64: 1: the request of each service thread is recorded */
	uint32_t request_words; /* 68: 1: the request on each lane is recorded */
	uint32_t agent;         /* 72: process id of Sidelane, whose halts ring; 0: they do not ring */
	uint32_t reserved;      /* 76 */
};

/* A trace's state of one CPU; that CPU writes it, except for `waiting`. */
struct sidelane_trace_cpu {
	uint64_t written;  /*  0: records so far; the remainder is the place of the next one in the ring */
	uint32_t tid;      /*  8: the thread that runs, if it is on the way of requests; else 0 */
	uint32_t pid;      /* 12 */
	uint32_t service;  /* 16: number of its service; 0 if it was only woken on the way */
	uint32_t follow;   /* 20: number of wake-ups from here on that are followed */
	uint64_t looked_ns; /* 24: time of the last look at a switch */
	uint64_t softirq_since_ns; /* 32 */
	uint64_t irq_since_ns; /* 40 */
	uint64_t idle_since_ns; /* 48 */
	int64_t waiting;   /* 56: threads of the service that wait for this CPU, approximately; written from any CPU */
	uint64_t stolen_seen_ns; /* 64: stolen time of the CPU at the last look */
	uint64_t overlap_mark_ns; /* 72: batch's clock beside this CPU at the last OVERLAP record */
	uint64_t preempt_count; /* 80: address of the CPU's preempt count */
	uint32_t idle_state; /* 88 */
	uint32_t in_timer; /* 92: set while a timer's function runs */
	uint32_t reserved[8];
};

/* Threads seen, by the lowest bits of their ids; a newer thread replaces an older one. */
#define SIDELANE_TRACE_THREADS 4096

struct sidelane_trace_thread {
	uint32_t tid;      /*  0 */
	uint32_t follow;   /*  4: wake-ups from it on that are followed; 0: it is not on the way of requests */
	uint64_t woken_ns; /*  8: 0 once it has run */
	char comm[16];     /* 16 */
	uint32_t frozen;   /* 32 */
	uint32_t throttled; /* 36 */
	uint32_t watched;  /* 40: 1: the service has waited for it to read from a pipe or socket */
	uint32_t padding;
	uint64_t reserved[2];
};

#endif
