/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Records of a trace: what happened on the way of a service's requests. They are Tailor's TALECHAIN
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

/* Numbers are part of logs: new types come at the end, none is used again. */
enum sidelane_trace_type {
	/* ---- Network ---- */
	SIDELANE_TRACE_SEGMENT = 1,       /* a segment with data left the network device's queue, for a port of the service; value: bytes; detail: end of its sequence; its socket is not known yet */
	SIDELANE_TRACE_DATA_READY = 2,    /* data reached the socket; value: bytes; detail: end of its sequence */
	SIDELANE_TRACE_RECEIVED = 3,      /* the thread took data from the socket; value: bytes; detail: up to here in its sequence; on a socket that is not at the service's own port: 0, and payload[1]: when data last came there, 0 if that is not known */
	SIDELANE_TRACE_SENT = 4,          /* the thread has given data to the socket: the call returns, and what was transmitted at once has been; value: bytes; detail: end of its sequence; payload[1]: enum sidelane_trace_hold, and in the high half the bytes in the send buffer that TCP has not sent; on a socket that is not at the service's own port see CONNECTS */
	SIDELANE_TRACE_TRANSMITTED = 5,   /* a segment of the socket left for the device; value: bytes; detail: end of its sequence */
	SIDELANE_TRACE_RETRANSMITTED = 6, /* a segment was sent again, on a connection of a client or on one on which the service has asked; value: bytes */
	SIDELANE_TRACE_ACKNOWLEDGED = 7,  /* a segment of the peer came while data waited in the socket or for an answer that is late; detail: acknowledged up to here; payload[1]: what held the data back until then, as in SENT */
	SIDELANE_TRACE_SOCKET_STATE = 8,  /* a side of a connection ends, or the connection (new state TCP_CLOSE = 7); detail: old state << 16 | new state; value: enum sidelane_trace_end, the first side that ended, and flags */

	/* ---- Requests, as request tracking sees them ---- */
	/* Either replaces an earlier one with the same number: more of the request came, or more of its response went. A
	 * request that one thread received and another answered starts in hindsight: its REQUEST_STARTED comes with its
	 * first REQUEST_FINISHED and may be older than records read before. */
	SIDELANE_TRACE_REQUEST_STARTED = 9,   /* the thread took the request up; value: when it arrived; detail: the port from which it came, 0 if unknown */
	SIDELANE_TRACE_REQUEST_FINISHED = 10, /* its response, so far, was given to the socket; value: when it started; detail: sends */

	/* ---- Threads ---- */
	SIDELANE_TRACE_SWITCHED = 11,     /* the thread left the CPU, the other came; detail: enum sidelane_trace_leave; value: the other's wake-up; 0 if it was preempted, or if the wake-up is not known */
	SIDELANE_TRACE_WOKEN = 12,        /* value: SIDELANE_TRACE_BY_TIMER, or the system call in which it did so plus one, 0 if that is not known, and SIDELANE_TRACE_WAKES_SEVERAL; the thread (0: an interrupt, or a kernel thread that is not on the way of a request) woke the other; detail: CPU it ran on last, and will again unless it is MIGRATED */
	SIDELANE_TRACE_MIGRATED = 13,     /* the thread moved; detail: CPU it came from; value: CPU it goes to */
	/* 14 and 15 were system calls at their begin and end. */
	SIDELANE_TRACE_PAGE_FAULT = 16,   /* detail: 1 at its begin, 3 if it begins in a system call, 2 at its end where that can be seen; value, at its begin: address */
	SIDELANE_TRACE_LOCK_WAIT_BEGAN = 17, /* a lock of the kernel; value: its address; detail: its kind, as the kernel's contention_begin says; other: who holds it, where that is known */
	SIDELANE_TRACE_LOCK_WAIT_ENDED = 18, /* value: its address */
	SIDELANE_TRACE_RECLAIM_BEGAN = 19, /* the thread frees memory before it gets any */
	SIDELANE_TRACE_RECLAIM_ENDED = 20,
	SIDELANE_TRACE_SIGNAL_DELIVERED = 21, /* detail: number of the POSIX signal */
	SIDELANE_TRACE_FROZEN = 22,       /* the group of the thread is frozen; detail: 1, or 0 when it goes on */

	/* ---- CPUs ---- */
	SIDELANE_TRACE_INTERRUPT = 23,    /* an interrupt's handler ended that took long; detail: its number; value: how long it ran, ns */
	SIDELANE_TRACE_SOFTIRQ = 24,      /* a softirq ended that took long; detail: its vector; value: how long it ran, ns */
	SIDELANE_TRACE_IDLE_LEFT = 25,    /* the CPU left an idle state, and a thread waits for it; detail: the state; value: how long it was in it, ns */
	SIDELANE_TRACE_STOLEN = 26,       /* the hypervisor took the CPU; value: how long, ns, until now */
	SIDELANE_TRACE_THROTTLED = 27,    /* the thread's group has used up its quota; detail: 1, or 0 when it goes on */
	SIDELANE_TRACE_OVERLAP = 28,      /* batch ran on a lane of the same core beside the thread; value: how long, ns, until now; detail: the lane */

	/* ---- Disks ---- */
	SIDELANE_TRACE_DISK_ISSUED = 29,  /* value: sector; detail: device, major << 20 | minor */
	SIDELANE_TRACE_DISK_COMPLETED = 30, /* the same, of the same thread */

	/* ---- Runtimes and programs, from user space ---- */
	SIDELANE_TRACE_PAUSE_BEGAN = 31,  /* all threads of the process are stopped by its runtime; detail: enum sidelane_trace_pause */
	SIDELANE_TRACE_PAUSE_ENDED = 32,
	SIDELANE_TRACE_PROGRAM = 33,      /* an event of the program itself; detail: its number */

	/* ---- Threads again ---- */
	SIDELANE_TRACE_SLEEPS_IN = 34,    /* the thread leaves the CPU of its own accord, which the next record says; detail: number of the system call that it is in, SIDELANE_TRACE_NO_CALL: in none; value: the call's first argument; socket: the one that this names; high half of payload[1]: enum sidelane_trace_file | timeout << SIDELANE_TRACE_TIMEOUT_SHIFT, in milliseconds rounded up, 0: none; low half: number of the file's inode, of a socket family | protocol << 16, of a futex the operation; the value that it was expected to have is in place of its socket, and SIDELANE_TRACE_OWN_STACK */
	/* Of this, and of SENT on a socket that is not at the service's own port: detail: the peer's port | protocol <<
	 * SIDELANE_TRACE_PROTOCOL_SHIFT | family << SIDELANE_TRACE_FAMILY_SHIFT; payload[1]: the peer's address, IPv4 in its
	 * low half, of IPv6 the first eight bytes, the others are the value; of a Unix socket the peer's process in its high half */
	SIDELANE_TRACE_CONNECTS = 35,     /* the thread begins to connect to another service */

	/* ---- Runtimes again, from user space ---- */
	SIDELANE_TRACE_TASKS = 36,        /* the process runs tasks of its own, that the kernel does not see; detail: enum sidelane_trace_tasks */
};

/* The value of WOKEN if a timer did it. */
#define SIDELANE_TRACE_BY_TIMER (1ull << 32)
/* In the value of WOKEN: the thread may wake more than one in this call on a futex. */
#define SIDELANE_TRACE_WAKES_SEVERAL (1ull << 33)

/* Beside the expected value of a futex: it lies on the stack of the thread that waits, close to its end. */
#define SIDELANE_TRACE_OWN_STACK (1ull << 32)

/* What a file is, in SLEEPS_IN: as in its mode, or one of the kernel's own. 0: the call names none. */
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

/* Where a process runs tasks of its own. */
enum sidelane_trace_tasks {
	SIDELANE_TRACE_TASKS_MOVE = 1, /* on any of its threads, one after the other */
	SIDELANE_TRACE_TASKS_STAY = 2, /* on the thread of an event loop */
};

#define SIDELANE_TRACE_TIMEOUT_SHIFT 4
/* There is a timeout, and it is not known how long it is, or it is longer. */
#define SIDELANE_TRACE_TIMEOUT_UNKNOWN 0xfffffffu
#define SIDELANE_TRACE_PROTOCOL_SHIFT 16
#define SIDELANE_TRACE_FAMILY_SHIFT 24

/* In place of a system call's number: a page fault, say. */
#define SIDELANE_TRACE_NO_CALL 0xffffffffu

/* The side that ended a connection first. */
enum sidelane_trace_end {
	SIDELANE_TRACE_ENDED_BY_CLIENT = 1,  /* its FIN or RST came */
	SIDELANE_TRACE_ENDED_BY_SERVICE = 2, /* it closed the socket, or its sending side */
	SIDELANE_TRACE_ENDED_OTHERWISE = 3,  /* a timeout, say */
};

/* In the value of SIDELANE_TRACE_SOCKET_STATE: the last request was answered after its client had ended, and the client
 * never acknowledged the response. */
#define SIDELANE_TRACE_IN_VAIN 0x100

/* The state of a socket whose send buffer has data that TCP has not sent. */
enum sidelane_trace_hold {
	SIDELANE_TRACE_HOLD_WINDOW = 1,     /* the peer's receive window has no room for the next segment */
	SIDELANE_TRACE_HOLD_CONGESTION = 2, /* as much is in flight as the congestion window allows */
	SIDELANE_TRACE_HOLD_SMALL = 4,      /* less than a segment is unsent */
	SIDELANE_TRACE_HOLD_NODELAY = 8,    /* TCP_NODELAY is set */
	SIDELANE_TRACE_HOLD_CORK = 16,      /* TCP_CORK is set */
	SIDELANE_TRACE_HOLD_IN_FLIGHT = 32, /* something is in flight */
	SIDELANE_TRACE_HOLD_PACED = 64,     /* TCP's pacing sends the next segment later */
	SIDELANE_TRACE_HOLD_LOSS = 128,     /* segments are lost */
	SIDELANE_TRACE_HOLD_ROOM = 256,     /* all was sent, and the sender waits for room in the send buffer */
	SIDELANE_TRACE_HOLD_TWICE = 1024,   /* the peer has got twice what was sent again: it was not lost (of ACKNOWLEDGED) */
	SIDELANE_TRACE_HOLD_KNOWN = 512,    /* this was looked at: nothing unsent means that TCP has sent all */
};

/* Why a thread left the CPU. */
enum sidelane_trace_leave {
	SIDELANE_TRACE_LEFT_PREEMPTED = 0, /* it would have run on */
	SIDELANE_TRACE_LEFT_SLEEPS = 1,    /* waits, interruptibly */
	SIDELANE_TRACE_LEFT_BLOCKED = 2,   /* waits for the kernel: disk, lock, memory */
	SIDELANE_TRACE_LEFT_STOPPED = 3,   /* stopped by a POSIX signal or a debugger */
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
