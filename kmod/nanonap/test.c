// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests /dev/nanonap: refusals; naps that end by time, by a write and by the scheduler; and a word
 * in a kernel program's memory. Needs root and the module; prints one line for each test.
 *
 *   nanonap-test [NAPPER WRITER]   CPUs, best the lanes of one core [0 1]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "nanonap.h"

#define ROUNDS 1000
#define LONGEST_NS 100000

static int device;
static int napper_cpu;
static int writer_cpu = 1;

#define CHECK(holds, ...) \
	do { \
		if (!(holds)) { \
			fprintf(stderr, "FAILED: %s: ", #holds); \
			fprintf(stderr, __VA_ARGS__); \
			fprintf(stderr, ": %s\n", strerror(errno)); \
			exit(1); \
		} \
	} while (0)

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

static void pin(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	CHECK(sched_setaffinity(0, sizeof(cpus), &cpus) == 0, "CPU %d", cpu);
}

static int nap(const void *word, uint32_t expected, uint32_t longest_ns)
{
	struct nanonap_nap nap = { (uintptr_t)word, expected, longest_ns };

	return ioctl(device, NANONAP_NAP, &nap);
}

static int refused_with(int error, const void *word, uint32_t longest_ns)
{
	errno = 0;
	return nap(word, 0, longest_ns) == -1 && errno == error;
}

static void refusals(void)
{
	static _Alignas(8) char words[8];

	CHECK(refused_with(EINVAL, words + 1, LONGEST_NS), "a word that is not aligned");
	CHECK(refused_with(EINVAL, words, 0), "no time");
	CHECK(refused_with(EINVAL, words, NANONAP_LONGEST_NS + 1), "too long a time");
	CHECK(refused_with(EFAULT, NULL, LONGEST_NS), "a word that is not mapped");
	CHECK(refused_with(EFAULT, (void *)UINT64_C(0xffff888000000000), LONGEST_NS), "the kernel's memory");
	CHECK(ioctl(device, _IO('N', 0x7f), 0) == -1 && errno == ENOTTY, "an unknown command");
	CHECK(ioctl(device, NANONAP_NAP, NULL) == -1 && errno == EFAULT, "no arguments");
	puts("refusals: ok");
}

/* Returns the mean length of naps that only the timer ends, in microseconds. */
static double mean_nap_us(const void *word, uint32_t expected)
{
	uint64_t began_ns = now_ns();
	int i;

	for (i = 0; i < ROUNDS; i++)
		CHECK(nap(word, expected, LONGEST_NS) == 0, "nap %d", i);
	return (now_ns() - began_ns) / 1e3 / ROUNDS;
}

static void ended_by_time(void)
{
	static _Atomic uint32_t word;
	double unchanged_us = mean_nap_us(&word, 0);
	double changed_us = mean_nap_us(&word, 1);

	printf("time: ok: naps of %.1f µs with %.1f µs to go, %.1f µs if the word has changed\n",
	       unchanged_us, LONGEST_NS / 1e3, changed_us);
}

static _Atomic uint32_t turn;

/* Writes to the word when the napping thread is about to nap. */
static void *write_back(void *unused)
{
	uint32_t i;

	(void)unused;
	pin(writer_cpu);
	for (i = 0; i < ROUNDS; i++) {
		while (atomic_load(&turn) != 2 * i + 1)
			;
		atomic_store(&turn, 2 * i + 2);
	}
	return NULL;
}

static void ended_by_a_write(void)
{
	pthread_t writer;
	uint64_t began_ns;
	long naps = 0;
	uint32_t i;

	CHECK(pthread_create(&writer, NULL, write_back, NULL) == 0, "a second thread");
	began_ns = now_ns();
	for (i = 0; i < ROUNDS; i++) {
		atomic_store(&turn, 2 * i + 1);
		while (atomic_load(&turn) == 2 * i + 1) {
			CHECK(nap(&turn, 2 * i + 1, LONGEST_NS) == 0, "round %u", i);
			naps++;
		}
	}
	printf("write: ok: %d turns and back of %.1f µs, %ld naps\n", ROUNDS,
	       (now_ns() - began_ns) / 1e3 / ROUNDS, naps);
	pthread_join(writer, NULL);
}

static atomic_int napping = 1;

static void *nap_on(void *word)
{
	pin(napper_cpu);
	while (atomic_load(&napping))
		CHECK(nap(word, 0, LONGEST_NS) == 0, "beside another thread");
	return NULL;
}

/* Tests that a thread that naps all the time leaves other threads their share of the lane
 * (section 3.1 of the Elfen paper). */
static void no_starvation(void)
{
	static _Atomic uint32_t word;
	const uint64_t wanted_ns = 200000000;
	struct timespec used = { 0 };
	uint64_t began_ns = now_ns();
	pthread_t napper;

	CHECK(pthread_create(&napper, NULL, nap_on, &word) == 0, "a second thread");
	while (used.tv_sec == 0 && (uint64_t)used.tv_nsec < wanted_ns)
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	printf("starvation: ok: %.0f ms of computing took %.0f ms beside a napper\n", wanted_ns / 1e6,
	       (now_ns() - began_ns) / 1e6);
	atomic_store(&napping, 0);
	pthread_join(napper, NULL);
}

/* Maps an array of a kernel program, read-only, as kernel programs share it. */
static const void *map_kernel_array(void)
{
	union bpf_attr array;
	void *words;
	int fd;

	memset(&array, 0, sizeof(array));
	array.map_type = BPF_MAP_TYPE_ARRAY;
	array.key_size = 4;
	array.value_size = 64;
	array.max_entries = 64;
	array.map_flags = BPF_F_MMAPABLE;
	fd = syscall(SYS_bpf, BPF_MAP_CREATE, &array, sizeof(array));
	CHECK(fd >= 0, "BPF_MAP_CREATE");
	words = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(words != MAP_FAILED, "mmap");
	close(fd);
	return words;
}

static void on_a_kernel_array(void)
{
	const char *words = map_kernel_array();

	printf("kernel array: ok: naps of %.1f µs\n", mean_nap_us(words + 64 + 24, 0));
	CHECK(munmap((void *)words, 4096) == 0, "munmap");
}

int main(int argc, char **argv)
{
	if (argc == 3) {
		napper_cpu = atoi(argv[1]);
		writer_cpu = atoi(argv[2]);
	}
	device = open("/dev/nanonap", O_RDWR | O_CLOEXEC);
	CHECK(device >= 0, "/dev/nanonap");
	pin(napper_cpu);
	refusals();
	ended_by_time();
	ended_by_a_write();
	no_starvation();
	on_a_kernel_array();
	return 0;
}
