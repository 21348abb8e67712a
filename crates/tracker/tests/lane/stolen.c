/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Does one step for each argument, NAME LANE NUMBER in one word list, and prints at the end what is booked of each lane:
 * the longest gap, then what was taken from each class of thread. The answers of `lost` come before that.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "maps.h"

#include "lane/stolen.h"

static struct run_queue run_queues[LANES];
static struct sidelane_lane_role roles[LANES] = {
	{ .role = SIDELANE_ROLE_REQUEST, .partner_count = 1, .partners = { 1 } },
	{ .role = SIDELANE_ROLE_BATCH, .partner_count = 1, .partners = { 0 } },
};

/* Returns the time stolen from the service on the partner of the batch lane. */
static uint64_t from_lc_ns(uint32_t lane)
{
	uint32_t partner = roles[lane].partners[0];

	return stolen_from_lc_ns(partner, &words[partner]);
}

static void step(const char *name, uint32_t lane, uint64_t number)
{
	if (!strcmp(name, "take")) {
		run_queues[lane].stolen_ns += number;
	} else if (!strcmp(name, "look")) {
		note_stolen(&roles[lane], &lane_stats[lane], number);
	} else if (!strcmp(name, "service")) {
		/* The service starts on this lane at the time `number`, or stops if that is 0. As lane/request.h does
		 * in both cases, mark the steal clock of the batch lane. */
		words[lane].lc_since_ns = number;
		mark_stolen(roles[lane].partners[0]);
	} else if (!strcmp(name, "begin")) {
		begin_stolen(&lane_stats[lane], from_lc_ns(lane));
	} else if (!strcmp(name, "lost")) {
		printf("%llu ", (unsigned long long)surely_stolen_ns(&lane_stats[lane], from_lc_ns(lane), number));
	} else {
		exit(2);
	}
}

int main(int argc, char **argv)
{
	for (uint32_t lane = 0; lane < LANES; lane++) {
		struct task_struct task = { .run_queue = (uint64_t)&run_queues[lane] };
		/* Time that was stolen before the program read the steal clock for the first time. */
		run_queues[lane].stolen_ns = 1000000;
		find_run_queue(&lane_stats[lane], &task);
		note_stolen(&roles[lane], &lane_stats[lane], SIDELANE_IDLE);
		lane_stats[lane].switches = 1;
	}
	for (int at = 1; at + 2 < argc; at += 3)
		step(argv[at], atoi(argv[at + 1]), strtoull(argv[at + 2], 0, 10));
	for (uint32_t lane = 0; lane < LANES; lane++) {
		printf("%llu ", (unsigned long long)lane_stats[lane].stolen_gap_max_ns);
		for (uint32_t class_ = 0; class_ < 4; class_++)
			printf("%llu ", (unsigned long long)lane_stats[lane].stolen_ns[class_]);
	}
	return 0;
}
