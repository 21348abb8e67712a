/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Records of a trace: what happened to a service's requests. They are Tailor's TALECHAIN
 * events (thesis "SHIM and Its Applications", Table 4.1), in the form of an event slot (abi/slot.h):
 * the same 64 bytes lie in a lane's slot, in a ring, and in a log. crates/timeline/src/record.rs
 * mirrors this file.
 *
 *   timestamp_ns  CLOCK_MONOTONIC; of one CPU they go back a little where an interrupt came in between
 *   type          one of enum sidelane_trace_type
 *   seq           number of the record among those of its CPU, from 1 on; a gap is a loss; 0 for those of user space
 *   tid, pid      the thread that did it, 0 if no thread did (softirq, idle)
 *   payload[0]    low half: CPU on which it happened; high half: detail, as the type says
 *   payload[1]    low half: another thread; high half: its process; 0 for none
 *   payload[2]    socket: its cookie, 0 for none
 *   payload[3]    number of the request that the thread works on, 0 if it is none or unknown
 *   payload[4]    value, as the type says
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_TRACE_H
#define SIDELANE_ABI_TRACE_H

#include "slot.h"

/* Kinds of trace records. Numbers are part of logs: new kinds come at the end, and no number is
 * used again. */
enum sidelane_trace_type {
	/* ---- Network ---- */
	SIDELANE_TRACE_SEGMENT = 1,       /* a segment with data for a port of the service left the network device's queue; value: bytes; detail: end of its TCP sequence; its socket is not known yet */
	SIDELANE_TRACE_DATA_READY = 2,    /* data reached the socket; value: bytes; detail: end of the data in the TCP sequence */
	SIDELANE_TRACE_RECEIVED = 3,      /* the thread received data from the socket; value: bytes; detail: TCP sequence up to which it has received; on a socket that is not at the service's own port, detail is 0, and payload[1] is the time when data last came there, 0 if unknown */
	SIDELANE_TRACE_SENT = 4,          /* the thread has written data to the socket, the call returns, and TCP has sent what it could at once; value: bytes; detail: end of the data in the TCP sequence; payload[1]: enum sidelane_trace_hold, and in the high half the bytes in the send buffer that TCP has not sent; on a socket that is not at the service's own port see CONNECTS */
	SIDELANE_TRACE_TRANSMITTED = 5,   /* a segment of the socket left for the device; value: bytes; detail: end of its TCP sequence */
	SIDELANE_TRACE_RETRANSMITTED = 6, /* TCP sent a segment again, on a connection of a client, or on a connection on which the service sent a request; value: bytes */
	SIDELANE_TRACE_ACKNOWLEDGED = 7,  /* a segment of the peer came while data waited in the socket, or while the service waited for a late answer; detail: TCP sequence acknowledged; payload[1]: what held the data back until then, as in SENT */
	SIDELANE_TRACE_SOCKET_STATE = 8,  /* a side of a connection ends, or the connection itself (new state TCP_CLOSE = 7); detail: old state << 16 | new state; value: enum sidelane_trace_end, the first side that ended, and flags */

	/* ---- Requests, as request tracking sees them ---- */
	/* A REQUEST_STARTED or REQUEST_FINISHED record replaces an earlier one with the same
	 * number: more of the request came, or more of its response was sent. If one thread
	 * received a request and another answered, its REQUEST_STARTED comes late, with its
	 * first REQUEST_FINISHED. It may be older than records read before. */
	SIDELANE_TRACE_REQUEST_STARTED = 9,   /* the thread starts to work on a request; value: arrival time of the request; detail: TCP port of the client, 0 if unknown */
	SIDELANE_TRACE_REQUEST_FINISHED = 10, /* the response of a request, so far, was written to the socket; value: when the request started; detail: number of sends so far */

	/* ---- Threads ---- */
	SIDELANE_TRACE_SWITCHED = 11,     /* context switch: the thread left the CPU, the other thread got it; detail: enum sidelane_trace_leave; value: when the other thread was woken; 0 if it was preempted, or if that is unknown */
	SIDELANE_TRACE_WOKEN = 12,        /* the thread (0: an interrupt, or a kernel thread that serves no request) woke the other thread; value: SIDELANE_TRACE_BY_TIMER, or one plus the number of the waking thread's system call, 0 if unknown, and SIDELANE_TRACE_WAKES_SEVERAL or SIDELANE_TRACE_WAKES_JOINER; detail: CPU on which the other thread last ran, and will again unless it is MIGRATED */
	SIDELANE_TRACE_MIGRATED = 13,     /* the thread moved to another CPU; detail: its old CPU; value: its new CPU */
	/* Numbers 14 and 15 were the begin and end of system calls; they are no longer recorded. */
	SIDELANE_TRACE_PAGE_FAULT = 16,   /* a page fault; detail: 1 at its begin, 3 if it begins in a system call, 2 at its end if that can be seen; value, at its begin: address */
	SIDELANE_TRACE_LOCK_WAIT_BEGAN = 17, /* the thread waits for a lock of the kernel; value: address of the lock; detail: kind of lock, as in the kernel's contention_begin; other: the thread that holds it, if known */
	SIDELANE_TRACE_LOCK_WAIT_ENDED = 18, /* the wait for a lock of the kernel ended; value: address of the lock */
	SIDELANE_TRACE_RECLAIM_BEGAN = 19, /* the thread starts to free memory, since it needs some (direct reclaim) */
	SIDELANE_TRACE_RECLAIM_ENDED = 20,
	SIDELANE_TRACE_SIGNAL_DELIVERED = 21, /* a POSIX signal was delivered to the thread; detail: number of the signal */
	SIDELANE_TRACE_FROZEN = 22,       /* the cgroup of the thread is frozen; detail: 1, or 0 when it is thawed */

	/* ---- CPUs ---- */
	SIDELANE_TRACE_INTERRUPT = 23,    /* a long interrupt ended; detail: number of the interrupt; value: run time of its handler, ns */
	SIDELANE_TRACE_SOFTIRQ = 24,      /* a long softirq ended; detail: vector of the softirq; value: its run time, ns */
	SIDELANE_TRACE_IDLE_LEFT = 25,    /* the CPU left an idle state while a thread waited for it; detail: idle state; value: time in that state, ns */
	SIDELANE_TRACE_STOLEN = 26,       /* the hypervisor took the CPU until now; value: length of the gap, ns */
	SIDELANE_TRACE_THROTTLED = 27,    /* the cgroup of the thread has used up its CPU quota; detail: 1, or 0 when the thread may run again */
	SIDELANE_TRACE_OVERLAP = 28,      /* batch ran on a lane of the same core beside the thread, until now; value: for how long, ns; detail: that lane */

	/* ---- Disks ---- */
	SIDELANE_TRACE_DISK_ISSUED = 29,  /* the thread sent a request to a disk; value: sector; detail: device, major << 20 | minor */
	SIDELANE_TRACE_DISK_COMPLETED = 30, /* the disk completed a request of the thread; value: sector; detail: device, major << 20 | minor */

	/* ---- Runtimes and programs, from user space ---- */
	SIDELANE_TRACE_PAUSE_BEGAN = 31,  /* a language runtime stopped all threads of its process; detail: enum sidelane_trace_pause */
	SIDELANE_TRACE_PAUSE_ENDED = 32,
	SIDELANE_TRACE_PROGRAM = 33,      /* an event that the program itself reports; detail: number of the event */

	/* ---- Threads: kinds that were added later ---- */
	SIDELANE_TRACE_SLEEPS_IN = 34,    /* the thread is about to sleep, as the next record says; detail: number of its system call, or SIDELANE_TRACE_NO_CALL; value: first argument of the call; socket: the socket that the argument names; high half of payload[1]: enum sidelane_trace_file | timeout << SIDELANE_TRACE_TIMEOUT_SHIFT, in milliseconds rounded up, 0: none; low half: inode number of the file, or family | protocol << 16 of a socket, or operation on a futex; a futex has its expected value in place of the socket, with SIDELANE_TRACE_OWN_STACK */
	/* In CONNECTS, and in SENT on a socket that is not at the service's own port, detail is
	 * the peer's port | protocol << SIDELANE_TRACE_PROTOCOL_SHIFT | family <<
	 * SIDELANE_TRACE_FAMILY_SHIFT. payload[1] has the peer's address: an IPv4 address in its
	 * low half, or the first eight bytes of an IPv6 address, whose other bytes are in the
	 * value. For a Unix socket its high half has the peer's process id. */
	SIDELANE_TRACE_CONNECTS = 35,     /* the thread begins to connect to another service */

	/* ---- Runtimes, from user space: kinds that were added later ---- */
	SIDELANE_TRACE_TASKS = 36,        /* the process runs tasks of its own, that the kernel does not see; detail: enum sidelane_trace_tasks */
};

/* Flag in the value of a WOKEN record: a timer woke the thread. */
#define SIDELANE_TRACE_BY_TIMER (1ull << 32)
/* Flag in the value of a WOKEN record: the call on a futex may wake several threads. */
#define SIDELANE_TRACE_WAKES_SEVERAL (1ull << 33)
/* Flag in the value of a WOKEN record: the futex is in the waking thread's own control block, so the other thread waits
 * for that thread to end. */
#define SIDELANE_TRACE_WAKES_JOINER (1ull << 34)

/* Flag beside the expected value of a futex: the futex is on the stack of the waiting thread,
 * close to the stack pointer. */
#define SIDELANE_TRACE_OWN_STACK (1ull << 32)

/* Kinds of files in a SLEEPS_IN record. Values up to 12 are the file type in the file's mode;
 * larger ones are the kernel's own files, such as an eventfd. 0: the system call names no file. */
enum sidelane_trace_file {
	SIDELANE_TRACE_FILE_PIPE = 1,
	SIDELANE_TRACE_FILE_DEVICE = 2,
	SIDELANE_TRACE_FILE_FOLDER = 4,
	SIDELANE_TRACE_FILE_DISK = 6,
	SIDELANE_TRACE_FILE_REGULAR = 8,
	SIDELANE_TRACE_FILE_SOCKET = 12,
	SIDELANE_TRACE_FILE_EVENT = 13,     /* eventfd */
	SIDELANE_TRACE_FILE_TIMER = 14,     /* timerfd */
	SIDELANE_TRACE_FILE_ANONYMOUS = 15,
};

/* Ways in which a process distributes its own tasks, such as goroutines, among its threads. */
enum sidelane_trace_tasks {
	SIDELANE_TRACE_TASKS_MOVE = 1, /* a task runs on any of the threads, one after the other */
	SIDELANE_TRACE_TASKS_STAY = 2, /* a task stays on the thread of an event loop */
};

#define SIDELANE_TRACE_TIMEOUT_SHIFT 4
/* Timeout of unknown length, or too long for the record. */
#define SIDELANE_TRACE_TIMEOUT_UNKNOWN 0xfffffffu
#define SIDELANE_TRACE_PROTOCOL_SHIFT 16
#define SIDELANE_TRACE_FAMILY_SHIFT 24

/* Replaces a system call's number if the thread is in none: in a page fault, for example. */
#define SIDELANE_TRACE_NO_CALL 0xffffffffu

/* Side of a connection that ended it first. */
enum sidelane_trace_end {
	SIDELANE_TRACE_ENDED_BY_CLIENT = 1,  /* the client ended first: its FIN or RST came */
	SIDELANE_TRACE_ENDED_BY_SERVICE = 2, /* the service ended first: it closed the socket, or its sending side */
	SIDELANE_TRACE_ENDED_OTHERWISE = 3,  /* neither side ended first: a timeout, for example */
};

/* Flag in the value of a SIDELANE_TRACE_SOCKET_STATE record. The last request was answered after
 * its client had ended, and the client never acknowledged the response. */
#define SIDELANE_TRACE_IN_VAIN 0x100

/* Reasons why data in a socket's send buffer was not sent by TCP. */
enum sidelane_trace_hold {
	SIDELANE_TRACE_HOLD_WINDOW = 1,     /* the peer's receive window has no room for the next segment */
	SIDELANE_TRACE_HOLD_CONGESTION = 2, /* the congestion window is full */
	SIDELANE_TRACE_HOLD_SMALL = 4,      /* less than one segment is unsent */
	SIDELANE_TRACE_HOLD_NODELAY = 8,    /* TCP_NODELAY is set */
	SIDELANE_TRACE_HOLD_CORK = 16,      /* TCP_CORK is set */
	SIDELANE_TRACE_HOLD_IN_FLIGHT = 32, /* sent data has not been acknowledged */
	SIDELANE_TRACE_HOLD_PACED = 64,     /* TCP's pacing sends the next segment later */
	SIDELANE_TRACE_HOLD_LOSS = 128,     /* segments are lost */
	SIDELANE_TRACE_HOLD_ROOM = 256,     /* TCP sent all data, and the sender waits for room in the send buffer */
	SIDELANE_TRACE_HOLD_TWICE = 1024,   /* the peer received retransmitted data twice, so it was not lost (in ACKNOWLEDGED only) */
	SIDELANE_TRACE_HOLD_KNOWN = 512,    /* the socket's state was read: if nothing is unsent, TCP has sent all */
};

/* Reasons why a thread left the CPU. */
enum sidelane_trace_leave {
	SIDELANE_TRACE_LEFT_PREEMPTED = 0, /* the thread was preempted: it could have run on */
	SIDELANE_TRACE_LEFT_SLEEPS = 1,    /* the thread sleeps, interruptibly */
	SIDELANE_TRACE_LEFT_BLOCKED = 2,   /* the thread waits for the kernel: disk, lock, memory */
	SIDELANE_TRACE_LEFT_STOPPED = 3,   /* the thread was stopped by a POSIX signal or a debugger */
	SIDELANE_TRACE_LEFT_ENDED = 4,
};

enum sidelane_trace_pause {
	SIDELANE_TRACE_PAUSE_OTHER = 0,
	SIDELANE_TRACE_PAUSE_YOUNG_COLLECTION = 1,
	SIDELANE_TRACE_PAUSE_FULL_COLLECTION = 2,
	SIDELANE_TRACE_PAUSE_SAFEPOINT = 3,
	SIDELANE_TRACE_PAUSE_CLASS_LOADING = 4,
};

#endif
