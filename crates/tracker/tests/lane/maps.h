/* SPDX-License-Identifier: GPL-2.0-only
 *
 * In place of bpf/maps.h, so that headers in bpf/lane compile as an ordinary program: request lane 0, batch lane 1.
 */
#ifndef SIDELANE_MAPS_H
#define SIDELANE_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lanes.h"

#define LANES 2
#define __always_inline inline
#define CHECKED_ALONE static
#define barrier_var(var) asm volatile("" : "+r"(var))
#define load_once(x) (*(volatile typeof(x) *)&(x))
#define store_once(x, v) (*(volatile typeof(x) *)&(x) = (v))
#define BPF_CORE_READ(task, ...) ((task)->run_queue)

struct task_struct {
	uint64_t run_queue;
	unsigned int flags;
	char comm[16];
};

/* A run queue, at whose end the steal clock is. */
struct run_queue {
	uint64_t others[3];
	uint64_t stolen_ns;
};

static struct sidelane_settings settings = { .stolen_offset = offsetof(struct run_queue, stolen_ns) };
static struct sidelane_lane_stats lane_stats[LANES];
static struct sidelane_lane_word words[LANES];
static struct sidelane_lane_ledger lane_ledgers[LANES];
static struct sidelane_lane_programs lane_programs[LANES];
static struct sidelane_lane_turns lane_turns[LANES];

#define bpf_map_lookup_elem(map, key) (*(key) < LANES ? &(*(map))[*(key)] : 0)

static inline uint32_t bpf_get_smp_processor_id(void)
{
	return 0;
}

/* No program has a name. */
static inline long bpf_get_current_comm(void *name, uint32_t size)
{
	return -1;
}

static inline struct sidelane_lane_word *lane_word(uint32_t cpu)
{
	return cpu < LANES ? &words[cpu] : 0;
}

#define for_each_partner(lane, role)                                                        \
	for (uint32_t lane##_at = 0, lane; lane##_at < (role)->partner_count &&             \
					   ((lane = (role)->partners[lane##_at]), true);    \
	     lane##_at++)

#endif
