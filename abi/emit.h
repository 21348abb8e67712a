/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Emitted requests: a service says itself what it was asked, what it works on and what it has
 * answered. runtime/c/sidelane.h writes this format, crates/sidelane/src/request/emitted.rs
 * reads it, crates/signal/src/emit.rs mirrors it and asserts every offset. Any language can
 * write it. Times are CLOCK_MONOTONIC nanoseconds.
 *
 * The file. A process that emits has one memfd, named SIDELANE_EMIT_NAME, in its table of open
 * files; whoever may read /proc/PID/fd finds it there, and it goes when the process goes. It is
 * sealed against shrinking (F_SEAL_SHRINK), or nobody maps it. It holds
 *
 *   struct sidelane_emit_head
 *   SIDELANE_EMIT_THREADS times:
 *     struct sidelane_emit_thread
 *     struct sidelane_emit_event [SIDELANE_EMIT_EVENTS]
 *
 * A thread of the service owns one of the rings: it is the only one to write there. It claims the
 * first that nobody has had yet by exchanging owner 0 for its own thread id, so that readers need not
 * look beyond it; when there is none, that of a thread that has ended in the same way. Event
 * number n (from 1 on) goes into place (n - 1) % SIDELANE_EMIT_EVENTS: store seq 0, then the
 * fields, then seq n (release, with the fields after the 0), then `written` n (release). Nobody
 * is waited for: what a reader does not fetch in time is overwritten, and it learns so from
 * `written`. A new owner goes on counting where the last one stopped.
 *
 * Requests in the queue are those received less those started, or finished if these are more: one
 * that is given up without having been started has to be finished all the same.
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_EMIT_H
#define SIDELANE_ABI_EMIT_H

#define SIDELANE_EMIT_NAME "sidelane-requests"
#define SIDELANE_EMIT_MAGIC 0x71657265646973ull /* "sidereq", little-endian */
#define SIDELANE_EMIT_VERSION 1
#define SIDELANE_EMIT_THREADS 256
#define SIDELANE_EMIT_EVENTS 2048

/* What happened to a request. */
enum sidelane_emit_kind {
	SIDELANE_EMIT_RECEIVED = 1, /* it is all there */
	SIDELANE_EMIT_STARTED = 2,  /* the emitting thread has taken it up */
	SIDELANE_EMIT_FINISHED = 3, /* its response was handed on */
};

struct sidelane_emit_head {
	uint64_t magic;   /*  0: written last, with release */
	uint32_t version; /*  8 */
	uint32_t pid;     /* 12: the process: another one's file may have been inherited */
	uint32_t threads; /* 16: rings */
	uint32_t events;  /* 20: events in a ring */
	uint64_t lost;    /* 24: events of threads that found no ring */
	uint64_t reserved[4];
};

/* One a thread: its counters, and the request it took up last and has not finished. */
struct sidelane_emit_thread {
	uint64_t written;  /*  0: events written, the number of the last one */
	uint64_t received; /*  8 */
	uint64_t started;  /* 16 */
	uint64_t finished; /* 24 */
	uint64_t running;  /* 32: the request's id, if running_since_ns is not 0 */
	uint64_t running_since_ns; /* 40: 0 for none */
	uint32_t owner;    /* 48: thread id, 0 for none */
	uint32_t reserved[3];
};

struct sidelane_emit_event {
	uint64_t seq;   /*  0: its number; 0 while it is being written */
	uint64_t id;    /*  8: the service's own number of the request */
	uint64_t at_ns; /* 16 */
	uint32_t kind;  /* 24: enum sidelane_emit_kind */
	uint32_t tid;   /* 28: the emitting thread */
};

#endif
