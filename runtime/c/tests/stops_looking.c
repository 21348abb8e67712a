/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch that checks its own lane until SIGUSR1, and then computes without checks.
 */
#include "../sidelane_gate.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t looks = 1;
static volatile unsigned long spun;

static void stop_looking(int signal)
{
	(void)signal;
	looks = 0;
}

int main(void)
{
	signal(SIGUSR1, stop_looking);
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (looks)
		sidelane_check();
	for (;;)
		spun++;
}
