/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Memory that lanes.bpf.c and src/tracker share besides the public lane words: roles set by user space, and statistics
 * kept by the kernel program. crates/tracker/build.rs makes Rust types of the structs that both use.
 */
#ifndef SIDELANE_LANES_H
#define SIDELANE_LANES_H

#include "abi/gate.h"
#include "abi/lane.h"
#include "abi/request.h"

/* Largest number of partners of a lane: POWER has eight lanes a core. */
#define SIDELANE_MAX_PARTNERS 7

enum sidelane_role {
	SIDELANE_ROLE_NONE = 0,
	SIDELANE_ROLE_REQUEST = 1,
	SIDELANE_ROLE_BATCH = 2,
};

/* Role of a lane, set by user space. The partners of a request lane are batch lanes, and vice versa. */
struct sidelane_lane_role {
	uint32_t role;            /*  0: role of the lane, enum sidelane_role */
	uint32_t service;         /*  4: number of the service whose requests run on this lane or its partners */
	uint32_t lends_to_waited; /*  8: 1: a lent lane stays lent when a request starts that had to wait */
	uint32_t partner_count;   /* 12: number of entries in `partners` */
	uint32_t partners[SIDELANE_MAX_PARTNERS]; /* 16: CPUs of the partner lanes */
	uint32_t reserved;        /* 44 */
};

/* Identities of processes: one byte for each process id, eight in a word. 0: the process is not tracked. */
#define SIDELANE_IDENTITIES_PER_WORD 8
#define SIDELANE_IDENTITY_BITS 8
#define SIDELANE_IDENTITY_MASK 0xff
#define SIDELANE_IDENTITY_BATCH 1    /* the process belongs to a batch job; otherwise to a service */
#define SIDELANE_IDENTITY_BY_GROUP 2 /* the process has the identity while it is in a cgroup */
#define SIDELANE_NUMBER_SHIFT 2      /* bits above: number of the service or of the batch job, from 1 on */

/* Number of identities of each class: services are numbered 1 to 63, and batch jobs as well. */
#define SIDELANE_NUMBERS 64

/* Distance between the words of two services: one page, so that a program can be given the page of one service. */
#define SIDELANE_SERVICE_STRIDE 64

/* A cgroup that gives its processes, at any depth, an identity. */
struct sidelane_group {
	uint64_t id;        /*  0: inode number of the cgroup's directory */
	uint32_t hierarchy; /*  8: cgroup hierarchy, as in /proc/PID/cgroup; 0 is cgroup v2 */
	uint32_t reserved;  /* 12 */
};

/* The most cgroups with an identity: one for each service, and for each container of batch that an agent manages. */
#define SIDELANE_GROUPS_MAX 512
/* The most listening ports of all services in all network namespaces. */
#define SIDELANE_LISTENERS_MAX 4096

/* Latency histograms with 32 buckets for each power of two, so a bucket is at most 3 % wide. Bucket i < 32 holds the
 * value i itself. For larger values v, i = 32 * (log2(v) - 4) + the next five bits. */
#define SIDELANE_HIST_SUB_BITS 5
#define SIDELANE_HIST_BUCKETS 1024

/* Statistics of one lane, written only by that lane's own switches. */
struct sidelane_lane_stats {
	uint64_t switches;        /*   0: number of context switches */
	uint64_t lc_switches;     /*   8: number of switches to an LC thread */
	uint64_t batch_ns;        /*  16: total time that batch ran here */
	uint64_t batch_since_ns;  /*  24: start of batch's present turn, 0 while it does not run */
	uint64_t overlap_ns;      /*  32: part of batch_ns in which LC threads ran on a partner lane */
	uint64_t overlap_mark_ns; /*  40: LC clocks of the partners when batch's turn began */
	uint64_t leaks;           /*  48: number of times that batch came although the lane was held */
	uint64_t batch_strays;    /*  56: number of times that batch came to a lane that is not a batch lane */
	uint64_t lc_strays;       /*  64: number of times that an LC thread came to a lane that is not a request lane */
	uint64_t cost_ns;         /*  72: run time of this program in the sampled switches */
	uint64_t cost_samples;    /*  80: number of switches sampled for cost_ns */
	uint64_t lent_overlap_ns; /*  88: batch_ns beside LC threads while the lane was lent: not in overlap_ns */
	uint64_t turn_is_lent;    /*  96: 1: batch's present turn began on a lane that was lent */
	uint64_t cut_naps_ns;     /* 104: time of batch's naps that a switch cut short: not in batch's own accounting */
	uint64_t stolen_ns[4];    /* 112: time taken by the hypervisor, by class of running thread (lane/stolen.h) */
	uint64_t stolen_seen_ns;  /* 144: the lane's steal clock at the last read */
	uint64_t stolen_gap_max_ns; /* 152: longest time that was stolen between two reads */
	uint64_t stolen_mark_ns;  /* 160: the steal clock when the service last started or stopped beside batch */
	uint64_t stolen_beside_ns; /* 168: time stolen from batch's present turn while partners ran LC threads */
	uint64_t lc_stolen_mark_ns; /* 176: time stolen from LC threads on partner lanes when batch's turn began */
	uint64_t run_queue;       /* 184: address of the lane's run queue */
	uint64_t untold;          /* 192: number of switches that the kernel did not report */
	uint64_t holder_since_ns; /* 200: start of the holder's last turn */
	uint64_t cut_naps_lc_ns;  /* 208: part of cut_naps_ns in which LC threads ran on a partner lane */
	uint64_t alarm_ns;        /* 216: time of the last alarm (lane/alarm.h); written from several CPUs */
	uint64_t busy_ns;         /* 224: total length of the busy periods of this request lane that have ended */
	uint32_t off_hist[SIDELANE_HIST_BUCKETS]; /* histogram: ns from LC on to batch off */
	uint32_t on_hist[SIDELANE_HIST_BUCKETS];  /* histogram: ns from LC off to batch on */
};

/* Kinds of turns on a batch lane: what has the lane. */
enum sidelane_turn_kind {
	SIDELANE_TURN_BATCH = 0,     /* batch, on a lane that is not lent */
	SIDELANE_TURN_LENT = 1,      /* batch, on a lent lane */
	SIDELANE_TURN_HOLDER = 2,    /* the holder */
	SIDELANE_TURN_EMPTY = 3,     /* no thread */
	SIDELANE_TURN_AWAY = 4,      /* no thread, from an eviction of batch until its next turn */
	SIDELANE_TURN_SERVICE = 5,   /* the service */
	SIDELANE_TURN_WORKER = 6,    /* a kworker thread */
	SIDELANE_TURN_INTERRUPT = 7, /* ksoftirqd, or the thread of an interrupt */
	SIDELANE_TURN_KERNEL = 8,    /* another kernel thread */
	SIDELANE_TURN_PROGRAM = 9,   /* a program that is neither the service's nor batch's */
	SIDELANE_TURN_APART = 10,    /* no thread, while batch is kept off whatever the service does */
};

#define SIDELANE_TURN_KINDS 16

/* Ledger of a batch lane (lane/ledger.h). All accounts together are the time since its first switch as a batch lane.
 * Written only by that lane's own switches. A reader reads since_ns before and after the other fields. */
struct sidelane_lane_ledger {
	uint64_t since_ns; /*   0: begin of the present turn; 0: none yet, or the ledger is being written */
	uint32_t turn;     /*   8: enum sidelane_turn_kind of the present turn */
	uint32_t away;     /*  12: 1: batch was evicted and has not run here since */
	uint64_t busy_mark_ns;       /*  16: busy clocks of the partners when the turn began */
	uint64_t stolen_mark_ns;     /*  24: the lane's steal clock when the turn began */
	uint64_t interrupts_mark_ns; /*  32: the lane's interrupt clock when the turn began */
	uint64_t interrupts_ns[2];   /*  40: time of interrupts and softirqs, beside the idle and the busy service */
	uint64_t stolen_ns[2];       /*  56: steal time, beside the idle and the busy service */
	uint64_t reserved[7];
	uint64_t idle_ns[SIDELANE_TURN_KINDS]; /* 128: time beside the idle service, by kind of turn */
	uint64_t busy_ns[SIDELANE_TURN_KINDS]; /* 256: time beside the busy service, by kind of turn */
};

/* Other programs that had a batch lane beside the idle service, by name. A power of two. */
#define SIDELANE_LANE_PROGRAMS 64

struct sidelane_lane_program {
	uint64_t name[2]; /*  0: name of the thread, as the kernel has it; 0: the slot is free */
	uint64_t idle_ns; /* 16: its time on the lane beside the idle service */
	uint64_t reserved;
};

struct sidelane_lane_programs {
	struct sidelane_lane_program slots[SIDELANE_LANE_PROGRAMS];
};

/* Length of the text with the reason why batch's own scheduler ended. The scheduler is a sched_ext program that runs
 * only batch; its state has one entry, only in the object that has the scheduler. */
#define SIDELANE_EXT_REASON_BYTES 64
#define SIDELANE_EXT_MESSAGE_BYTES 128

struct sidelane_ext_word {
	uint32_t on;        /*  0: 1 while the kernel schedules batch by the sched_ext program */
	uint32_t exit_kind; /*  4: the kernel's number for why the scheduler ended; 0 while it runs */
	uint32_t cpu_count; /*  8: number of CPUs that may be lanes; set by user space */
	int32_t runnable;   /* 12: number of threads of batch that run or wait */
	uint32_t outsiders; /* 16: number of times that batch ran in another class since user space last read this */
	uint32_t reserved;
	char reason[SIDELANE_EXT_REASON_BYTES];
	char message[SIDELANE_EXT_MESSAGE_BYTES];
};

/* Argument of the BPF program that changes a hold word. */
struct sidelane_hold_order {
	uint32_t lane;
	uint32_t state; /* new state, enum sidelane_hold */
};

/* Number of stored turns of the service's and batch's threads on a lane: turn n, from 0 on, is in place n %
 * SIDELANE_TURNS. They cover half a second at 2000 switches a second. */
#define SIDELANE_TURNS 1024

struct sidelane_turn {
	uint64_t began_ns; /*  0: begin of the turn */
	uint64_t ended_ns; /*  8: end of the turn */
	uint32_t pid;      /* 16: thread id of the thread that ran */
	uint32_t class_;   /* 20: class of the thread that ran, enum sidelane_class */
};

struct sidelane_lane_turns {
	uint64_t count;       /*  0: number of turns that have ended; written after the turn itself */
	uint64_t reserved[7]; /*  8 */
	struct sidelane_turn turns[SIDELANE_TURNS]; /* 64: the last turns, in order */
};

/* CPU time of each tracked service and job and of the idle task on one CPU. Only that CPU's switches write it, up to
 * the last switch. */
#define SIDELANE_SHARES (2 * SIDELANE_NUMBERS)

struct sidelane_cpu_shares {
	uint64_t since_ns; /*  0: start of the present turn; 0 before the first turn and while the entry is written */
	uint32_t class_;   /*  8: class of the running thread, enum sidelane_class */
	uint32_t identity; /* 12: index in ran_ns of the running thread's service or job */
	uint64_t idle_ns;  /* 16: total time of the idle task */
	uint64_t reserved; /* 24 */
	uint64_t ran_ns[SIDELANE_SHARES]; /* 32: run time; index: number times two, plus one for batch */
};

/* Settings of the kernel program, set by user space before it is loaded. */
struct sidelane_settings {
	/* Distances in bytes from a CPU's run queue; 0: unknown. */
	int64_t stolen_offset;        /*  0: distance to the CPU's stolen time */
	int64_t preempt_count_offset; /*  8: distance to the CPU's preempt count, which shows interrupts */
	int64_t interrupts_offset;    /* 16: distance to the CPU's times in softirqs and in interrupts */
	uint32_t requests;      /* 24: 1: requests may be tracked at sockets */
	uint32_t turns;         /* 28: 1: turns are recorded, for requests that services emit */
	uint32_t self_checking; /* 32: 1: batch may check its own lane */
	uint32_t counters;      /* 36: 1: request lanes have instruction and cycle counters */
	uint32_t groups;        /* 40: 1: cgroups may have an identity */
	uint32_t interference;  /* 44: 1: counters measure interference with a service */
	uint32_t shares;        /* 48: 1: shares of each CPU are recorded */
	uint32_t lanes;         /* 52: 1: programs for lanes are loaded; 0: all programs skip work for lanes */
	uint32_t trace_records; /* 56: number of records in the trace ring of each CPU, a power of two */
	uint32_t trace_long_ns; /* 60: shortest interrupt or softirq that is recorded, in ns */
	uint32_t threads;       /* 64: 1: the request of each service thread is recorded */
	uint32_t request_words; /* 68: 1: the request on each lane is recorded */
	uint32_t agent;         /* 72: process id of Sidelane, of which a halt wakes the guardian; 0: it does not */
	uint32_t reserved;      /* 76 */
};

/* State of a trace on one CPU. That CPU writes it, except for `waiting`. */
struct sidelane_trace_cpu {
	uint64_t written;  /*  0: number of records so far; the remainder is the next place in the ring */
	uint32_t tid;      /*  8: thread id of the running thread, if it serves requests; else 0 */
	uint32_t pid;      /* 12: process id of that thread */
	uint32_t service;  /* 16: number of the running thread's service; 0 if it was only woken on the way */
	uint32_t follow;   /* 20: number of further wakeups in a row by this thread that are followed */
	uint64_t looked_ns; /* 24: when stolen time was last read at a switch */
	uint64_t softirq_since_ns; /* 32: begin of the present softirq; 0 for none */
	uint64_t irq_since_ns; /* 40: begin of the present interrupt; 0 for none */
	uint64_t idle_since_ns; /* 48: begin of the present idle state; 0 for none */
	int64_t waiting;   /* 56: service threads that wait for this CPU, approximately; written from any CPU */
	uint64_t stolen_seen_ns; /* 64: stolen time of the CPU at the last read */
	uint64_t overlap_mark_ns; /* 72: batch's clock beside this CPU at the last OVERLAP record */
	uint64_t preempt_count; /* 80: address of the CPU's preempt count */
	uint32_t idle_state; /* 88: the CPU's present idle state */
	uint32_t in_timer; /* 92: 1 while a timer's function runs */
	uint32_t reserved[8];
};

/* Size of the table of threads in a trace, by the lowest bits of their ids; a newer thread replaces an older one. */
#define SIDELANE_TRACE_THREADS 4096

struct sidelane_trace_thread {
	uint32_t tid;      /*  0: thread id */
	uint32_t follow;   /*  4: further wakeups that are followed; 0: the thread does not serve requests */
	uint64_t woken_ns; /*  8: when the thread was woken; 0 once it has run */
	char comm[16];     /* 16: name of the thread */
	uint32_t frozen;   /* 32: 1: the thread's cgroup is frozen */
	uint32_t throttled; /* 36: 1: the thread's cgroup has used up its CPU quota */
	uint32_t watched;  /* 40: 1: the service has waited until this thread read from a pipe or socket */
	uint32_t padding;
	uint64_t reserved[2];
};

#endif
