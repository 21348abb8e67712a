/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Stolen time: CPU time that the hypervisor took from a lane. A lane whose virtual CPU does not run executes nothing,
 * though its last thread seems to run on.
 *
 * The hypervisor counts stolen time per CPU, in a word that it updates before it lets the CPU run again. So a read on
 * that CPU finds all that was taken so far. The word is read in each switch and each timer. Time stolen between two
 * reads was taken from the class of thread that ran between them. It is nearly always one gap: timers come every few
 * milliseconds, and at once after a long gap.
 *
 * If no time can be stolen on this machine, all of this is dead code, and the loaded program does not contain it.
 */
#ifndef SIDELANE_STOLEN_H
#define SIDELANE_STOLEN_H

#include "kernel/word.h"
#include "maps.h"

/* Returns the time stolen from a lane since the machine started. If this runs on that lane, the result is up to date;
 * for another lane, a gap that still lasts is missing. */
static __always_inline uint64_t stolen_clock_ns(struct sidelane_lane_stats *stats)
{
	int64_t offset = settings.stolen_offset;

	return offset ? kernel_word(stats->run_queue + offset) : 0;
}

/* Finds the address of the lane's run queue from a thread that runs there: fields of each CPU's memory are at fixed
 * distances. */
static __always_inline void find_run_queue(struct sidelane_lane_stats *stats, struct task_struct *task)
{
	if (!stats->run_queue && (settings.stolen_offset || settings.interrupts_offset))
		stats->run_queue = (uint64_t)BPF_CORE_READ(task, se.cfs_rq, rq);
}

static __always_inline bool the_service_runs_beside(struct sidelane_lane_role *role)
{
	for_each_partner(lane, role) {
		struct sidelane_lane_word *partner = lane_word(lane);
		if (partner && load_once(partner->lc_since_ns))
			return true;
	}
	return false;
}

static __always_inline uint64_t above(uint64_t value, uint64_t floor)
{
	uint64_t difference = value - floor;

	/* Compilers make a saturating subtraction of this, which takes twice as many instructions. */
	barrier_var(difference);
	return value > floor ? difference : 0;
}

/* Shortest turn after which stolen time is read. Little time can be stolen from a shorter turn, and it is counted with
 * the next turn. */
#define STOLEN_TURN_MIN_NS 20000

/* Counts the time between two reads of the steal clock as stolen from `class_`. */
CHECKED_ALONE int count_stolen(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats, uint64_t clock_ns,
			       uint32_t class_)
{
	if (!role || !stats)
		return 0;
	uint64_t seen_ns = stats->stolen_seen_ns;

	store_once(stats->stolen_seen_ns, clock_ns);
	/* The first read finds time that was stolen before the program was loaded. */
	if (!stats->switches)
		return 0;
	uint64_t taken_ns = above(clock_ns, seen_ns);
	store_once(stats->stolen_ns[class_ & 3], stats->stolen_ns[class_ & 3] + taken_ns);
	if (taken_ns > stats->stolen_gap_max_ns)
		store_once(stats->stolen_gap_max_ns, taken_ns);
	/* Of the time stolen from batch beside the service, only the part since the service started to run counts. */
	uint64_t mark_ns = load_once(stats->stolen_mark_ns);
	if (class_ == SIDELANE_BATCH && role->role == SIDELANE_ROLE_BATCH && the_service_runs_beside(role))
		stats->stolen_beside_ns += above(clock_ns, mark_ns > seen_ns ? mark_ns : seen_ns);
	return 0;
}

/* Reads the steal clock on the lane itself, and counts the time since the last read as stolen from `class_`. */
static __always_inline void note_stolen(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats,
					uint32_t class_)
{
	if (!settings.stolen_offset)
		return;
	uint64_t clock_ns = stolen_clock_ns(stats);

	if (clock_ns != stats->stolen_seen_ns)
		count_stolen(role, stats, clock_ns, class_);
}

/* Stores the steal clock of the batch lane `lane` when the service starts or stops beside it. Time stolen earlier then
 * does not count as stolen beside the service. */
static __always_inline void mark_stolen(uint32_t lane)
{
	struct sidelane_lane_stats *stats = 0;

	if (settings.stolen_offset)
		stats = bpf_map_lookup_elem(&lane_stats, &lane);
	if (stats)
		store_once(stats->stolen_mark_ns, stolen_clock_ns(stats));
}

/* Returns the time that was stolen from threads of the service on a partner lane, up to now. */
static __always_inline uint64_t stolen_from_lc_ns(uint32_t lane, struct sidelane_lane_word *word)
{
	struct sidelane_lane_stats *stats = settings.stolen_offset ? bpf_map_lookup_elem(&lane_stats, &lane) : 0;

	if (!stats)
		return 0;
	uint64_t stolen_ns = load_once(stats->stolen_ns[SIDELANE_LC]);
	if (load_once(word->lc_since_ns))
		stolen_ns += above(stolen_clock_ns(stats), load_once(stats->stolen_seen_ns));
	return stolen_ns;
}

/* Marks the begin of a turn of batch, from which stolen time is counted for the turn. `from_lc_ns`: the time stolen
 * from the service on all partner lanes so far. */
static __always_inline void begin_stolen(struct sidelane_lane_stats *stats, uint64_t from_lc_ns)
{
	stats->lc_stolen_mark_ns = from_lc_ns;
	stats->stolen_beside_ns = 0;
	store_once(stats->stolen_mark_ns, stats->stolen_seen_ns);
}

/* Returns for how long in batch's turn, which ends now, batch seemed to run beside the service but did not.
 *
 * On a lane that is kept empty beside the service, only the service's last start in the turn matters. Time stolen since
 * that start is why batch was still there, even if the service has stopped again. On other lanes, only time that was
 * stolen while the service ran is certain. Time may have been stolen from both lanes at once, so the longer of the two
 * times counts. */
static __always_inline uint64_t surely_stolen_ns(struct sidelane_lane_stats *stats, uint64_t all_from_lc_ns, bool kept)
{
	uint64_t from_lc_ns = above(all_from_lc_ns, stats->lc_stolen_mark_ns);
	uint64_t from_batch_ns = kept ? above(stats->stolen_seen_ns, load_once(stats->stolen_mark_ns)) :
					stats->stolen_beside_ns;

	return from_lc_ns > from_batch_ns ? from_lc_ns : from_batch_ns;
}

#endif
