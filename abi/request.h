/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Request words: the request that each of the service's request lanes works on. The kernel program
 * learns it from the service's sockets, or the agent from the requests that the service emits.
 * crates/formats/src/request.rs mirrors this file and asserts every offset; times are
 * CLOCK_MONOTONIC nanoseconds.
 *
 * A request *arrives* when its data reaches the service's socket, *starts* when a thread takes it
 * up, and *finishes* when its response was written to the socket. Between arrival and start it is
 * *queued*. The two words are Elfen's signals queue_len and running_request (ATC'16 Fig. 9(b),
 * (c)).
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_REQUEST_H
#define SIDELANE_ABI_REQUEST_H

/* Request that a request lane works on, in one cache line for each CPU. Only that CPU writes the
 * word. If the service itself reports its requests, only the agent writes it. A reader of several
 * fields reads stamp_ns before and after them. If it was 0 or has changed, the fields were being
 * written, and the reader tries again. */
struct sidelane_request_word {
	uint64_t stamp_ns;   /*  0: time of the last change; set to 0 first, written last */
	uint64_t running;    /*  8: number of the request that runs here, 0 for none; never reused */
	uint64_t arrived_ns; /* 16: arrival time of the running request */
	uint64_t started_ns; /* 24: start time of the running request */
	uint64_t finished_ns; /* 32: when the last request finished here, 0 for never */
	uint32_t waited;     /* 40: 1: the running request arrived before the last one finished here */
	uint32_t finished;   /* 44: number of requests that finished here, wraps */
	uint64_t reserved[2];
};

/* Request counters of the whole service: one cache line, which every CPU updates atomically. */
struct sidelane_service_word {
	uint32_t queue_len;  /*  0: number of requests that arrived and have not started */
	uint32_t busy_lanes; /*  4: number of request lanes whose lane word is busy */
	uint32_t tracked;    /*  8: 1 while requests are tracked; only then are queue_len and the request words valid */
	uint32_t reserved[13];
};

#endif
