/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Request words: what the service's request lanes work on, as the kernel program learns it
 * from the service's sockets, or the agent from what the service emits.
 * crates/signal/src/request.rs mirrors this file and asserts every offset; times are
 * CLOCK_MONOTONIC nanoseconds.
 *
 * A request *arrives* when its data reaches the service's socket, *starts* when a thread takes
 * it up, and *finishes* when its response was handed to the socket. In between arrival and
 * start it is *queued*. These are Elfen's signals queue_len and running_request
 * (ATC'16 Fig. 9(b), (c)).
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_REQUEST_H
#define SIDELANE_ABI_REQUEST_H

/* What a request lane works on: one cache line a CPU, written by that CPU alone, or by the agent
 * alone where requests are emitted. A reader that needs several fields of one moment reads stamp_ns
 * before and after them: 0 means that the word is being written, a change that it was. */
struct sidelane_request_word {
	uint64_t stamp_ns;   /*  0: time of the last change; set to 0 first and written last */
	uint64_t running;    /*  8: number of the request that runs here, 0 for none; never reused */
	uint64_t arrived_ns; /* 16: its arrival */
	uint64_t started_ns; /* 24: its start */
	uint64_t finished_ns; /* 32: when the last request before it finished here, 0 for never */
	uint32_t waited;     /* 40: 1: it arrived before another one on this lane had finished */
	uint32_t finished;   /* 44: requests that finished here, wraps */
	uint64_t reserved[2];
};

/* The service as a whole: one cache line, written from every CPU, atomically. */
struct sidelane_service_word {
	uint32_t queue_len;  /*  0: requests that have arrived and not started */
	uint32_t busy_lanes; /*  4: request lanes whose lane word is busy */
	uint32_t tracked;    /*  8: 1 while requests are being tracked: queue_len and the words mean something */
	uint32_t reserved[13];
};

#endif
