/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads and children of a program with checks: all of them run on the batch lane in turns and do
 * the same work. `family SECONDS` exits with 0 if each of them did some work.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 3
#define CHILDREN 2
#define CALLS 4096

static double end_s;

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

__attribute__((noinline)) static unsigned long step(unsigned long x)
{
	return x * 6364136223846793005UL + 1442695040888963407UL;
}

static void *work(void *worked)
{
	unsigned long x = 1;

	while (now_s() < end_s)
		for (int i = 0; i < CALLS; i++)
			x = step(x);
	*(unsigned long *)worked = x;
	return 0;
}

/* Runs the work on several threads. Returns 0 if all of them worked. */
static int work_with_threads(void)
{
	pthread_t threads[THREADS];
	unsigned long worked[THREADS] = { 0 };
	int idle = 0;

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], 0, work, &worked[i]))
			return 1;
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], 0);
		idle += !worked[i];
	}
	return idle;
}

int main(int argc, char **argv)
{
	int status, failed = 0;

	end_s = now_s() + (argc > 1 ? atof(argv[1]) : 1);
	for (int i = 0; i < CHILDREN; i++)
		if (!fork())
			_exit(work_with_threads());
	failed = work_with_threads();
	while (wait(&status) > 0)
		failed += status != 0;
	return failed != 0;
}
