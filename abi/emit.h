/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Emitted requests: a service itself reports which requests it has received, started and finished.
 * runtime/c/sidelane.h writes this format, crates/requests/src/emitted.rs reads it,
 * crates/formats/src/emit.rs mirrors it and asserts every offset. Any language can write it. Times
 * are CLOCK_MONOTONIC nanoseconds.
 *
 * The file. A process that emits has one memfd, named SIDELANE_EMIT_NAME, in its table of open
 * files. Every process that may read /proc/PID/fd finds it there, and it disappears with the
 * process. Readers map it only if it is sealed against shrinking (F_SEAL_SHRINK). It holds
 *
 *   struct sidelane_emit_head
 *   SIDELANE_EMIT_THREADS times:
 *     struct sidelane_emit_thread
 *     struct sidelane_emit_event [SIDELANE_EMIT_EVENTS]
 *
 * Each ring belongs to one thread of the service, the only one that writes there. A thread claims
 * the first ring that had no owner yet, by exchanging owner 0 for its own thread id, so readers
 * need not look beyond the first unowned ring. If all had owners, it claims the ring of a thread
 * that has ended in the same way. Event number n (from 1 on) goes into place (n - 1) %
 * SIDELANE_EMIT_EVENTS: store seq 0, then the fields, then seq n (release, with the fields after
 * the 0), then `written` n (release). Writers wait for no reader: an event that is not read in time
 * is overwritten, and the reader learns that from `written`. A new owner continues the numbering of
 * the last one.
 *
 * Requests in the queue are those received less those started, or less those finished if these are
 * more: a request that is given up before its start has to be finished all the same.
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
	SIDELANE_EMIT_RECEIVED = 1, /* all of it has arrived */
	SIDELANE_EMIT_STARTED = 2,  /* the emitting thread works on it */
	SIDELANE_EMIT_FINISHED = 3, /* its response was sent */
};

struct sidelane_emit_head {
	uint64_t magic;   /*  0: written last, with release */
	uint32_t version; /*  8 */
	uint32_t pid;     /* 12: the process: the file may be inherited from another one */
	uint32_t threads; /* 16: rings */
	uint32_t events;  /* 20: events in a ring */
	uint64_t lost;    /* 24: events of threads that found no ring */
	uint64_t reserved[4];
};

/* One for each thread: its counters, and the request that it started last and has not finished. */
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
	uint64_t id;    /*  8: the service's own number for the request */
	uint64_t at_ns; /* 16 */
	uint32_t kind;  /* 24: enum sidelane_emit_kind */
	uint32_t tid;   /* 28: the emitting thread */
};

#endif
