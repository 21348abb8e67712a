/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls by which services report their requests exactly: three for each request, some tens of
 * nanoseconds each. Only a thread's first call takes a lock or makes a system call. Header only,
 * for Linux, C99 or C++ with GCC or Clang; no library to link.
 *
 *   sidelane_request_receive(id);  all of it has arrived   (any thread)
 *   sidelane_request_start(id);    this thread starts it
 *   sidelane_request_finish(id);   its response was sent   (any thread)
 *
 * `id` is any number that no other request has at the same time. A request that is started without
 * having been received counts as received at its start. A request that is given up has to be
 * finished too; otherwise it seems to wait for ever. Sidelane finds the records in the process's
 * open files (format: abi/emit.h), from the first call on, and uses them instead of what it sees at
 * the sockets. Without Sidelane on the machine the calls cost the same, and some memory for each
 * thread that makes them. If no memory can be had they do nothing.
 *
 * abi/ must be on the include path, or be beside runtime/ as in Sidelane's own tree.
 */
#ifndef SIDELANE_H
#define SIDELANE_H

#include "sidelane_file.h"

#include <time.h>

#include "../../abi/emit.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sidelane_emit_ring {
	struct sidelane_emit_thread thread;
	struct sidelane_emit_event events[SIDELANE_EMIT_EVENTS];
};

struct sidelane_emit_file {
	struct sidelane_emit_head head;
	struct sidelane_emit_ring rings[SIDELANE_EMIT_THREADS];
};

struct sidelane_emit_self {
	struct sidelane_emit_file *file; /* file that contains `ring`; 0 before the first event */
	struct sidelane_emit_ring *ring; /* this thread's ring of events; 0: no ring was free */
	uint32_t tid;
};

SIDELANE_ONE_DEFINITION struct sidelane_process *sidelane_emit_process_;
SIDELANE_ONE_DEFINITION __thread struct sidelane_emit_self sidelane_emit_self_;

static inline uint64_t sidelane_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void *sidelane_emit_make_file(void)
{
	struct sidelane_emit_file *file =
		(struct sidelane_emit_file *)sidelane_make_file(SIDELANE_EMIT_NAME, sizeof(*file));

	if (!file)
		return 0;
	file->head.version = SIDELANE_EMIT_VERSION;
	file->head.pid = (uint32_t)getpid();
	file->head.threads = SIDELANE_EMIT_THREADS;
	file->head.events = SIDELANE_EMIT_EVENTS;
	__atomic_store_n(&file->head.magic, SIDELANE_EMIT_MAGIC, __ATOMIC_RELEASE);
	return file;
}

/* Returns the process's file of events; 0 while another thread makes it, so the first events of
 * a thread may be missing. */
static inline struct sidelane_emit_file *sidelane_emit_file(void)
{
	return (struct sidelane_emit_file *)sidelane_file_at(&sidelane_emit_process_, sidelane_emit_make_file);
}

static inline int sidelane_emit_claim(struct sidelane_emit_ring *ring, uint32_t owner, uint32_t tid)
{
	return __atomic_compare_exchange_n(&ring->thread.owner, &owner, tid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static inline int sidelane_emit_has_ended(uint32_t tid)
{
	return syscall(SYS_tgkill, getpid(), tid, 0) != 0;
}

/* Returns a free ring of events, or else the ring of a thread that has ended; 0 if there is
 * none. */
static inline struct sidelane_emit_ring *sidelane_emit_find_ring(struct sidelane_emit_file *file, uint32_t tid)
{
	int i;

	for (i = 0; i < SIDELANE_EMIT_THREADS; i++)
		if (sidelane_emit_claim(&file->rings[i], 0, tid))
			return &file->rings[i];
	for (i = 0; i < SIDELANE_EMIT_THREADS; i++) {
		uint32_t owner = __atomic_load_n(&file->rings[i].thread.owner, __ATOMIC_RELAXED);
		if ((owner == tid || sidelane_emit_has_ended(owner)) && sidelane_emit_claim(&file->rings[i], owner, tid))
			return &file->rings[i];
	}
	return 0;
}

/* Returns this thread's ring of events; 0 for none. */
static inline struct sidelane_emit_ring *sidelane_emit_ring(void)
{
	struct sidelane_emit_self *self = &sidelane_emit_self_;
	struct sidelane_emit_file *file = sidelane_emit_file();

	if (!file)
		return 0;
	if (self->file != file) {
		self->file = file;
		self->tid = (uint32_t)syscall(SYS_gettid);
		self->ring = sidelane_emit_find_ring(file, self->tid);
	}
	if (!self->ring)
		__atomic_fetch_add(&file->head.lost, 1, __ATOMIC_RELAXED);
	return self->ring;
}

static inline void sidelane_emit_write(struct sidelane_emit_ring *ring, uint32_t kind, uint64_t id, uint64_t at_ns)
{
	uint64_t seq = ring->thread.written + 1;
	struct sidelane_emit_event *event = &ring->events[(seq - 1) % SIDELANE_EMIT_EVENTS];

	__atomic_store_n(&event->seq, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&event->id, id, __ATOMIC_RELAXED);
	__atomic_store_n(&event->at_ns, at_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&event->kind, kind, __ATOMIC_RELAXED);
	__atomic_store_n(&event->tid, sidelane_emit_self_.tid, __ATOMIC_RELAXED);
	__atomic_store_n(&event->seq, seq, __ATOMIC_RELEASE);
	__atomic_store_n(&ring->thread.written, seq, __ATOMIC_RELEASE);
}

/* Adds one to a counter. Only the owner writes these counters, so its own loads need no memory
 * ordering. */
static inline void sidelane_emit_count(uint64_t *counter)
{
	__atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

/* Reports that all of the request has arrived. Any thread may call it. */
static inline void sidelane_request_receive(uint64_t id)
{
	struct sidelane_emit_ring *ring = sidelane_emit_ring();

	if (!ring)
		return;
	sidelane_emit_count(&ring->thread.received);
	sidelane_emit_write(ring, SIDELANE_EMIT_RECEIVED, id, sidelane_now_ns());
}

/* Reports that this thread starts to work on the request. */
static inline void sidelane_request_start(uint64_t id)
{
	struct sidelane_emit_ring *ring = sidelane_emit_ring();
	uint64_t now_ns = sidelane_now_ns();

	if (!ring)
		return;
	__atomic_store_n(&ring->thread.running, id, __ATOMIC_RELAXED);
	__atomic_store_n(&ring->thread.running_since_ns, now_ns, __ATOMIC_RELEASE);
	sidelane_emit_count(&ring->thread.started);
	sidelane_emit_write(ring, SIDELANE_EMIT_STARTED, id, now_ns);
}

/* Reports that the request's response was sent. Any thread may call it. */
static inline void sidelane_request_finish(uint64_t id)
{
	struct sidelane_emit_ring *ring = sidelane_emit_ring();

	if (!ring)
		return;
	sidelane_emit_count(&ring->thread.finished);
	if (ring->thread.running == id)
		__atomic_store_n(&ring->thread.running_since_ns, 0, __ATOMIC_RELEASE);
	sidelane_emit_write(ring, SIDELANE_EMIT_FINISHED, id, sidelane_now_ns());
}

#ifdef __cplusplus
}
#endif

#endif
