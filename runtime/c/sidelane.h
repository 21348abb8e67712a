/* SPDX-License-Identifier: Apache-2.0
 *
 * For services that want their requests known exactly: three calls a request, some tens of
 * nanoseconds each, no lock and no system call but at a thread's first. Header only, for Linux,
 * C99 or C++ with GCC or Clang; nothing to link.
 *
 *   sidelane_request_receive(id);  it is all there              (any thread)
 *   sidelane_request_start(id);    this thread takes it up
 *   sidelane_request_finish(id);   its response was handed on   (any thread)
 *
 * `id` is any number that no other request has at the same time. A request that is started
 * without having been received counts as received then. Sidelane finds what is written in the
 * process's open files (abi/emit.h says how) and prefers it to what it sees at the sockets.
 * Without Sidelane on the machine the calls cost the same, and some memory for each thread that
 * makes them; where no memory can be had they do nothing.
 *
 * abi/ must be on the include path, or beside runtime/ as in Sidelane's own tree.
 */
#ifndef SIDELANE_H
#define SIDELANE_H

#ifndef _GNU_SOURCE
#define SIDELANE_DEFINED_GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef SIDELANE_DEFINED_GNU_SOURCE
#undef SIDELANE_DEFINED_GNU_SOURCE
#endif

#include "../../abi/emit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From linux/fcntl.h, linux/memfd.h and linux/mman.h, which C libraries show or hide by their
 * own rules. */
#define SIDELANE_MFD_CLOEXEC 1u
#define SIDELANE_MFD_ALLOW_SEALING 2u
#define SIDELANE_F_ADD_SEALS 1033
#define SIDELANE_F_SEALS 7 /* no more seals, no shrinking, no growing */
#define SIDELANE_MADV_WIPEONFORK 18

/* What is the same in all of a program's objects that include this file. */
#define SIDELANE_ONE_DEFINITION __attribute__((weak))

struct sidelane_emit_ring {
	struct sidelane_emit_thread thread;
	struct sidelane_emit_event events[SIDELANE_EMIT_EVENTS];
};

struct sidelane_emit_file {
	struct sidelane_emit_head head;
	struct sidelane_emit_ring rings[SIDELANE_EMIT_THREADS];
};

/* In memory that a fork leaves empty, so that a child makes a file of its own. */
struct sidelane_emit_process {
	struct sidelane_emit_file *file;
	int busy;   /* 1 while a thread makes the file */
	int failed; /* 1: it cannot be had */
};

struct sidelane_emit_self {
	struct sidelane_emit_file *file; /* where ring is; 0 before the first event */
	struct sidelane_emit_ring *ring; /* 0: none was free */
	uint32_t tid;
};

SIDELANE_ONE_DEFINITION struct sidelane_emit_process *sidelane_emit_process_;
SIDELANE_ONE_DEFINITION __thread struct sidelane_emit_self sidelane_emit_self_;

static inline uint64_t sidelane_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline struct sidelane_emit_process *sidelane_emit_process(void)
{
	struct sidelane_emit_process *process = __atomic_load_n(&sidelane_emit_process_, __ATOMIC_ACQUIRE);
	struct sidelane_emit_process *none = 0;
	void *page;

	if (process)
		return process;
	page = mmap(0, sizeof(*process), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 0;
	madvise(page, sizeof(*process), SIDELANE_MADV_WIPEONFORK);
	process = (struct sidelane_emit_process *)page;
	if (__atomic_compare_exchange_n(&sidelane_emit_process_, &none, process, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return process;
	munmap(page, sizeof(*process));
	return none;
}

static inline struct sidelane_emit_file *sidelane_emit_make_file(void)
{
	int fd = (int)syscall(SYS_memfd_create, SIDELANE_EMIT_NAME,
			      SIDELANE_MFD_CLOEXEC | SIDELANE_MFD_ALLOW_SEALING);
	struct sidelane_emit_file *file;
	void *memory;

	if (fd < 0)
		return 0;
	/* The descriptor stays open: it is how the file is found. */
	if (ftruncate(fd, sizeof(*file)) || syscall(SYS_fcntl, fd, SIDELANE_F_ADD_SEALS, SIDELANE_F_SEALS)) {
		close(fd);
		return 0;
	}
	memory = mmap(0, sizeof(*file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		close(fd);
		return 0;
	}
	file = (struct sidelane_emit_file *)memory;
	file->head.version = SIDELANE_EMIT_VERSION;
	file->head.pid = (uint32_t)getpid();
	file->head.threads = SIDELANE_EMIT_THREADS;
	file->head.events = SIDELANE_EMIT_EVENTS;
	__atomic_store_n(&file->head.magic, SIDELANE_EMIT_MAGIC, __ATOMIC_RELEASE);
	return file;
}

/* The process's file; 0 if it cannot be had, or while another thread makes it: its first events
 * may then be missing. */
static inline struct sidelane_emit_file *sidelane_emit_file(void)
{
	struct sidelane_emit_process *process = sidelane_emit_process();
	struct sidelane_emit_file *file;

	if (!process)
		return 0;
	file = __atomic_load_n(&process->file, __ATOMIC_ACQUIRE);
	if (file || __atomic_load_n(&process->failed, __ATOMIC_RELAXED))
		return file;
	if (__atomic_exchange_n(&process->busy, 1, __ATOMIC_ACQ_REL))
		return 0;
	file = sidelane_emit_make_file();
	if (!file)
		__atomic_store_n(&process->failed, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&process->file, file, __ATOMIC_RELEASE);
	return file;
}

static inline int sidelane_emit_claim(struct sidelane_emit_ring *ring, uint32_t owner, uint32_t tid)
{
	return __atomic_compare_exchange_n(&ring->thread.owner, &owner, tid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static inline int sidelane_emit_has_ended(uint32_t tid)
{
	return syscall(SYS_tgkill, getpid(), tid, 0) != 0;
}

/* A free ring, or else that of a thread that has ended. */
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

/* This thread's ring; 0 for none. */
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

/* Only the owner writes these, so its own loads need no order. */
static inline void sidelane_emit_count(uint64_t *counter)
{
	__atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

/* The request is all there. */
static inline void sidelane_request_receive(uint64_t id)
{
	struct sidelane_emit_ring *ring = sidelane_emit_ring();

	if (!ring)
		return;
	sidelane_emit_count(&ring->thread.received);
	sidelane_emit_write(ring, SIDELANE_EMIT_RECEIVED, id, sidelane_now_ns());
}

/* This thread takes the request up. */
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

/* The request's response was handed on. */
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
