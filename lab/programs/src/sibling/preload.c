// SPDX-License-Identifier: Apache-2.0
/*
 * A library to preload into a program outside the lab. The program's threads then emulate their
 * loss to a sibling lane, as exactly as pace.rs does it in the lab's programs.
 *
 * A thread emulates its loss before it sends, so that its answers are late, and before it waits
 * for work. The environment variable SIDELANE_LAB_SIBLING has the address of the emulated core's
 * memory, as PID:FD.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bpf/sibling.h"

#define NONE (-1)
/* Length of a sleep after which the kernel program has seen a context switch of the thread. A shorter sleep may end
 * before the thread has left its CPU. */
#define JOIN_NS 50000
/* Shortest time between two checks whether the emulator runs; a check takes a system call. */
#define ALIVE_EVERY_NS 50000000

static struct sibling_core *core;
static int emulator = NONE;
/* Whether the emulating process has ended. The memory stays mapped, since other threads may still read it. */
static bool is_alone;

static _Thread_local struct {
	bool joined;
	int place;
	uint32_t generation;
	uint64_t spun_ns;
	uint64_t seen_alive_ns;
	char *page;
} me;

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static size_t bytes(void)
{
	size_t page = sysconf(_SC_PAGESIZE);

	return (sizeof(struct sibling_core) + page - 1) / page * page;
}

__attribute__((constructor)) static void find(void)
{
	const char *at = getenv("SIDELANE_LAB_SIBLING");
	int pid, fd, memory;
	void *found;

	if (!at || sscanf(at, "%d:%d", &pid, &fd) != 2)
		return;
	emulator = syscall(SYS_pidfd_open, pid, 0);
	memory = syscall(SYS_pidfd_getfd, emulator, fd, 0);
	found = mmap(NULL, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (emulator < 0 || memory < 0 || found == MAP_FAILED) {
		/* Exits: a program that continued without the slowdown would give wrong measurements. */
		fprintf(stderr, "there is no emulated sibling at %s\n", at);
		_exit(1);
	}
	core = found;
}

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint32_t load32(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Returns a stopwatch's reading when the measured quantity is at `at`. */
static uint64_t shows(uint64_t word, uint64_t at)
{
	int64_t reading = ((int64_t)word >> 1) + (word & 1 ? (int64_t)at : 0);

	return reading > 0 ? reading : 0;
}

static uint64_t loss_ns(int lane, const uint64_t *overlap)
{
	uint64_t sum = 0;

	for (int kind = 0; kind < SIBLING_LOADS; kind++) {
		uint64_t ppm = load(&core->loss_ppm[lane][kind]);
		uint64_t other = load(&core->lanes[1 - lane].spent[kind]);
		uint64_t spent = shows(other, other & 1 ? now_ns() : 0);

		if (ppm)
			sum += (unsigned __int128)shows(load(&overlap[kind]), spent) * ppm / 1000000;
	}
	return sum;
}

/* Returns the time that the thread should have lost to its sibling lane so far. Reads again if the thread was switched
 * in, since overlap and lane must belong together. */
static uint64_t lost_ns(const struct sibling_thread *thread)
{
	for (;;) {
		uint32_t turns = load32(&thread->turns);
		uint64_t lost = loss_ns(load32(&thread->lane) & 1, thread->overlap);

		if (load32(&thread->turns) == turns)
			return lost;
	}
}

static void join(void)
{
	struct timespec moment = { 0, JOIN_NS };

	me.joined = true;
	me.seen_alive_ns = now_ns();
	me.place = NONE;
	for (int place = 0; place < SIBLING_THREADS && me.place == NONE; place++) {
		uint32_t no_thread = 0;

		if (__atomic_compare_exchange_n(&core->tids[place], &no_thread, gettid(), false,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			me.place = place;
	}
	if (me.place == NONE) {
		fprintf(stderr, "cannot emulate the loss of another thread: the emulated sibling supports 16 at a time; "
				"use fewer threads, or leave --sibling out\n");
		_exit(1);
	}
	__builtin_memset(&core->threads[me.place], 0, sizeof(core->threads[me.place]));
	/* Sleeps, since the kernel program notices a thread only when it is switched in. */
	nanosleep(&moment, NULL);
	me.generation = load32(&core->generation);
}

/* Returns whether the emulating process still runs: after its end nothing stops the stopwatches. */
static bool emulator_is_there(uint64_t now)
{
	struct pollfd ended = { .fd = emulator, .events = POLLIN };

	if (now - me.seen_alive_ns < ALIVE_EVERY_NS)
		return true;
	me.seen_alive_ns = now;
	/* A poll that fails, as after a POSIX signal, counts as a running emulator. */
	if (poll(&ended, 1, 0) <= 0 || !(ended.revents & POLLIN))
		return true;
	__atomic_store_n(&is_alone, true, __ATOMIC_RELEASE);
	return false;
}

/* Makes a page fault, which stands in for a stall on machines that cannot count stalls. */
static void stand_in(void)
{
	size_t page = sysconf(_SC_PAGESIZE);

	if (!load32(&core->stand_in))
		return;
	if (!me.page)
		me.page = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (me.page == MAP_FAILED)
		return;
	madvise(me.page, page, MADV_DONTNEED);
	*(volatile char *)me.page = 1;
}

static void make_up(struct sibling_thread *thread)
{
	struct sibling_lane *lane = &core->lanes[load32(&thread->lane) & 1];
	uint64_t before_ns = me.spun_ns, last_ns = now_ns();
	uint32_t turns = load32(&thread->turns);

	while (emulator_is_there(last_ns) && lost_ns(thread) > me.spun_ns &&
	       load32(&core->generation) == me.generation) {
		stand_in();
		uint64_t now = now_ns();
		uint32_t turns_now = load32(&thread->turns);

		/* Does not count time in which the thread was switched out. */
		if (turns_now == turns)
			me.spun_ns += now - last_ns;
		turns = turns_now;
		last_ns = now;
	}
	__atomic_fetch_add(&lane->spun_ns, me.spun_ns - before_ns, __ATOMIC_RELAXED);
	__atomic_fetch_add(&lane->looks, 1, __ATOMIC_RELAXED);
}

static void look(void)
{
	uint32_t generation;

	if (!core || __atomic_load_n(&is_alone, __ATOMIC_ACQUIRE) || !((generation = load32(&core->generation)) & 1))
		return;
	if (!me.joined)
		join();
	if (generation != me.generation) {
		me.generation = generation;
		me.spun_ns = 0;
	}
	if (lost_ns(&core->threads[me.place]) > me.spun_ns)
		make_up(&core->threads[me.place]);
}

/* Replaces a function of libc by one that first spins for the time lost to the sibling lane, and then calls the
 * function of libc. */
#define LOOKS_FIRST(result, name, parameters, arguments)                                          \
	result name parameters                                                                    \
	{                                                                                         \
		static result(*real) parameters;                                                  \
                                                                                                  \
		if (!real)                                                                        \
			real = (result(*) parameters)dlsym(RTLD_NEXT, #name);                     \
		look();                                                                           \
		return real arguments;                                                            \
	}

LOOKS_FIRST(ssize_t, write, (int fd, const void *from, size_t length), (fd, from, length))
LOOKS_FIRST(ssize_t, send, (int fd, const void *from, size_t length, int flags), (fd, from, length, flags))
LOOKS_FIRST(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
LOOKS_FIRST(int, epoll_wait, (int fd, struct epoll_event *events, int most, int timeout), (fd, events, most, timeout))
