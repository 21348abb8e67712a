/* SPDX-License-Identifier: Apache-2.0
 *
 * For each line on standard input, emits that number of requests and prints a line when it is done:
 * one thread receives them, another starts and finishes them. "fork" makes a child emit one, and
 * "dead" uses more threads than there are rings.
 */
#include "../sidelane.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static unsigned long last;

static void *work(void *argument)
{
	unsigned long id, first = last + 1, end = last + *(unsigned long *)argument;

	for (id = first; id <= end; id++) {
		sidelane_request_start(id);
		sidelane_request_finish(id);
	}
	last = end;
	return 0;
}

static void emit(unsigned long count)
{
	unsigned long id;
	pthread_t worker;

	for (id = last + 1; id <= last + count; id++)
		sidelane_request_receive(id);
	if (pthread_create(&worker, 0, work, &count) || pthread_join(worker, 0))
		exit(1);
}

static int emit_in_child(void)
{
	pid_t child = fork();
	int status = 1;

	if (!child) {
		emit(1);
		/* Checks that the child has a file of its own, with its own pid. */
		_exit(sidelane_emit_self_.file->head.pid != (uint32_t)getpid());
	}
	waitpid(child, &status, 0);
	return status;
}

int main(void)
{
	char line[32];
	int i;

	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "fork\n")) {
			if (emit_in_child())
				return 1;
		} else if (!strcmp(line, "dead\n")) {
			for (i = 0; i < 2 * SIDELANE_EMIT_THREADS; i++)
				emit(1);
		} else {
			emit(strtoul(line, 0, 10));
		}
		printf("emitted\n");
		fflush(stdout);
	}
	return 0;
}
