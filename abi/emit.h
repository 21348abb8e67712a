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

/* Events in the life of a request, as the service reports them. */
enum sidelane_emit_kind {
	SIDELANE_EMIT_RECEIVED = 1, /* all of the request has arrived */
	SIDELANE_EMIT_STARTED = 2,  /* the emitting thread starts to work on the request */
	SIDELANE_EMIT_FINISHED = 3, /* the response of the request was sent */
};

struct sidelane_emit_head {
	uint64_t magic;   /*  0: constant that identifies the format; written last, with release */
	uint32_t version; /*  8: version of this format */
	uint32_t pid;     /* 12: process id of the emitter; the file may be inherited from another process */
	uint32_t threads; /* 16: number of rings, each for one thread */
	uint32_t events;  /* 20: number of events in a ring */
	uint64_t lost;    /* 24: number of lost events: no ring was free for their thread */
	uint64_t reserved[4];
};

/* State of one thread: its counters, and the request that it started last and has not finished. */
struct sidelane_emit_thread {
	uint64_t written;  /*  0: number of events written so far */
	uint64_t received; /*  8: number of requests received */
	uint64_t started;  /* 16: number of requests started */
	uint64_t finished; /* 24: number of requests finished */
	uint64_t running;  /* 32: id of the request that the thread works on, if running_since_ns is not 0 */
	uint64_t running_since_ns; /* 40: when the thread started that request; 0: it works on none */
	uint32_t owner;    /* 48: thread id of the ring's owner; 0: the ring is free */
	uint32_t reserved[3];
};

struct sidelane_emit_event {
	uint64_t seq;   /*  0: number of the event, from 1 on; 0 while it is being written */
	uint64_t id;    /*  8: the service's own number for the request */
	uint64_t at_ns; /* 16: time of the event, CLOCK_MONOTONIC nanoseconds */
	uint32_t kind;  /* 24: kind of the event, enum sidelane_emit_kind */
	uint32_t tid;   /* 28: thread id of the emitting thread */
};

#endif
