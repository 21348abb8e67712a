/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The ledger of a batch lane: all of its time, by what had the lane, and by whether the service needed a partner lane.
 *
 * Each turn on the lane has one kind. At its end its time is split into a part beside the busy service and a part
 * beside the idle one, less what interrupts and the hypervisor took. So all parts together are the time that has
 * passed, whatever the clocks of other lanes say. The split is exact with one request lane beside the batch lane. With
 * several of them, the busy part is the sum of theirs, at most the whole turn.
 *
 * Only switches of batch lanes do this; switches of the service cost no more.
 */
#ifndef SIDELANE_LEDGER_H
#define SIDELANE_LEDGER_H

#include "lane/accounting.h"
#include "lane/stolen.h"

/* Flags of a kernel thread or worker in task_struct, the same since Linux 3.10. */
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD 0x00200000

static __always_inline bool serves_interrupts(struct task_struct *task)
{
	bool is_softirqd = task->comm[0] == 'k' && task->comm[1] == 's' && task->comm[2] == 'o' &&
			   task->comm[3] == 'f';

	return is_softirqd ||
	       (task->comm[0] == 'i' && task->comm[1] == 'r' && task->comm[2] == 'q' && task->comm[3] == '/');
}

/* Returns the kind of a turn that begins, by its thread. */
static __always_inline uint32_t turn_kind(struct task_struct *task, uint32_t class_, bool is_the_holder)
{
	if (class_ == SIDELANE_IDLE)
		return SIDELANE_TURN_EMPTY;
	if (is_the_holder)
		return SIDELANE_TURN_HOLDER;
	if (class_ == SIDELANE_BATCH)
		return SIDELANE_TURN_BATCH;
	if (class_ == SIDELANE_LC)
		return SIDELANE_TURN_SERVICE;
	if (!(task->flags & PF_KTHREAD))
		return SIDELANE_TURN_PROGRAM;
	if (task->flags & PF_WQ_WORKER)
		return SIDELANE_TURN_WORKER;
	return serves_interrupts(task) ? SIDELANE_TURN_INTERRUPT : SIDELANE_TURN_KERNEL;
}

/* Returns the time that the lane has spent in softirqs and interrupts: two adjacent fields of the kernel's
 * statistics of each CPU. */
static __always_inline uint64_t interrupts_clock_ns(struct sidelane_lane_stats *stats)
{
	int64_t offset = settings.interrupts_offset;

	if (!offset || !stats->run_queue)
		return 0;
	uint64_t address = stats->run_queue + offset;
	return kernel_word(address) + kernel_word(address + sizeof(uint64_t));
}

/* Returns the time that the service has needed the partners of a batch lane, up to `now_ns`. */
static __always_inline uint64_t partners_busy_clock_ns(struct sidelane_lane_role *role, uint64_t now_ns)
{
	uint64_t sum_ns = 0;

	for_each_partner(lane, role) {
		struct sidelane_lane_word *word = lane_word(lane);
		struct sidelane_lane_stats *stats = bpf_map_lookup_elem(&lane_stats, &lane);
		if (!word || !stats)
			continue;
		sum_ns += load_once(stats->busy_ns);
		if (load_once(word->busy))
			sum_ns += above(now_ns, load_once(word->busy_since_ns));
	}
	return sum_ns;
}

static __always_inline void add_to(uint64_t *account, uint64_t ns)
{
	store_once(*account, *account + ns);
}

/* Returns the part of `taken_ns` that fell on `part_ns` of a turn of `turn_ns`, as if it were spread evenly: at most
 * the part itself. Turns of up to three days do not overflow. */
static __always_inline uint64_t share_of(uint64_t taken_ns, uint64_t part_ns, uint64_t turn_ns)
{
	uint32_t shift = turn_ns >> 40 ? 32 : turn_ns >> 32 ? 16 : 0;

	turn_ns >>= shift;
	uint64_t share_ns = turn_ns ? taken_ns * (part_ns >> shift) / turn_ns : 0;
	return share_ns < part_ns ? share_ns : part_ns;
}

/* Adds the time of a program's turn under the program's name, which is the present thread's. A program that finds no
 * free slot is counted under its kind only. Not a loop, as in lc_clock_ns(). */
static __always_inline void name_program(uint64_t idle_ns)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_lane_programs *programs = bpf_map_lookup_elem(&lane_programs, &cpu);
	uint64_t name[2] = {};

	if (!programs || bpf_get_current_comm(name, sizeof(name)))
		return;
	uint32_t first = (name[0] * 31 + name[1]) * 0x9e3779b97f4a7c15ULL >> 32;
#pragma unroll
	for (uint32_t probe = 0; probe < 4; probe++) {
		struct sidelane_lane_program *slot = &programs->slots[(first + probe) & (SIDELANE_LANE_PROGRAMS - 1)];
		if (!slot->name[0] && !slot->name[1]) {
			store_once(slot->name[1], name[1]);
			store_once(slot->name[0], name[0]);
		}
		if (slot->name[0] == name[0] && slot->name[1] == name[1]) {
			add_to(&slot->idle_ns, idle_ns);
			return;
		}
	}
}

/* Adds the time that interrupts and the hypervisor took from a turn to their accounts, and subtracts it from the parts
 * of the turn. */
static __always_inline void take_from_turn(struct sidelane_lane_ledger *ledger, uint64_t taken_ns, uint64_t stolen_ns,
					   uint64_t *idle_ns, uint64_t *busy_ns)
{
	uint64_t turn_ns = *idle_ns + *busy_ns;

	if (stolen_ns > turn_ns)
		stolen_ns = turn_ns;
	if (taken_ns > turn_ns - stolen_ns)
		taken_ns = turn_ns - stolen_ns;
	uint64_t stolen_busy_ns = share_of(stolen_ns, *busy_ns, turn_ns);
	uint64_t taken_busy_ns = share_of(taken_ns, *busy_ns, turn_ns);
	if (taken_busy_ns > *busy_ns - stolen_busy_ns)
		taken_busy_ns = *busy_ns - stolen_busy_ns;
	uint64_t stolen_idle_ns = stolen_ns - stolen_busy_ns, taken_idle_ns = taken_ns - taken_busy_ns;
	if (stolen_idle_ns > *idle_ns)
		stolen_idle_ns = *idle_ns;
	if (taken_idle_ns > *idle_ns - stolen_idle_ns)
		taken_idle_ns = *idle_ns - stolen_idle_ns;
	add_to(&ledger->stolen_ns[0], stolen_idle_ns);
	add_to(&ledger->stolen_ns[1], stolen_busy_ns);
	add_to(&ledger->interrupts_ns[0], taken_idle_ns);
	add_to(&ledger->interrupts_ns[1], taken_busy_ns);
	*idle_ns -= stolen_idle_ns + taken_idle_ns;
	*busy_ns -= stolen_busy_ns + taken_busy_ns;
}

/* Adds a turn that ends now to the accounts of its kind. */
static __always_inline void turn_ends(struct sidelane_lane_ledger *ledger, uint64_t busy_clock_ns,
				      uint64_t stolen_clock_ns, uint64_t interrupts_ns, uint64_t turn_ns)
{
	uint32_t kind = ledger->turn & (SIDELANE_TURN_KINDS - 1);
	uint64_t busy_ns = above(busy_clock_ns, ledger->busy_mark_ns);
	uint64_t stolen_ns = above(stolen_clock_ns, ledger->stolen_mark_ns);
	uint64_t taken_ns = above(interrupts_ns, ledger->interrupts_mark_ns);

	if (busy_ns > turn_ns)
		busy_ns = turn_ns;
	uint64_t idle_ns = turn_ns - busy_ns;
	/* Most turns are short: no interrupt and no steal time fell into them, and nothing has to be divided. */
	if (stolen_ns | taken_ns)
		take_from_turn(ledger, taken_ns, stolen_ns, &idle_ns, &busy_ns);
	add_to(&ledger->idle_ns[kind], idle_ns);
	add_to(&ledger->busy_ns[kind], busy_ns);
	if (kind == SIDELANE_TURN_PROGRAM)
		name_program(idle_ns);
}

/* Returns the kind under which a turn that begins is entered. */
static __always_inline uint32_t ledger_kind(struct sidelane_lane_ledger *ledger, struct sidelane_hold_word *hold,
					    uint32_t kind)
{
	uint32_t state = load_once(hold->state);

	/* Batch is away from its eviction until its first turn after that, or for one turn if it does not come back. */
	if (kind == SIDELANE_TURN_BATCH)
		ledger->away = 0;
	else if (state == SIDELANE_EVICTED)
		ledger->away = 1;
	if (kind == SIDELANE_TURN_BATCH && state == SIDELANE_LENT)
		return SIDELANE_TURN_LENT;
	if (kind != SIDELANE_TURN_EMPTY)
		return kind;
	if (load_once(hold->kept_off))
		return SIDELANE_TURN_APART;
	if (!ledger->away)
		return kind;
	/* Batch that may come back and does not has ended, or has nothing to do. */
	ledger->away = state == SIDELANE_EVICTED;
	return SIDELANE_TURN_AWAY;
}

/* Handles the end of a turn on this CPU, a batch lane, and the begin of a turn of the kind `next`. */
CHECKED_ALONE int ledger_turn(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats,
			      struct sidelane_hold_word *hold, uint32_t next, uint64_t now_ns)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_lane_ledger *ledger = bpf_map_lookup_elem(&lane_ledgers, &cpu);

	if (!ledger || !role || !stats || !hold)
		return 0;
	uint64_t busy_clock_ns = partners_busy_clock_ns(role, now_ns), interrupts_ns = interrupts_clock_ns(stats);
	uint64_t began_ns = ledger->since_ns, stolen_ns = stats->stolen_seen_ns;

	store_once(ledger->since_ns, 0);
	if (began_ns && now_ns > began_ns)
		turn_ends(ledger, busy_clock_ns, stolen_ns, interrupts_ns, now_ns - began_ns);
	store_once(ledger->busy_mark_ns, busy_clock_ns);
	ledger->stolen_mark_ns = stolen_ns;
	ledger->interrupts_mark_ns = interrupts_ns;
	store_once(ledger->turn, ledger_kind(ledger, hold, next));
	store_once(ledger->since_ns, now_ns);
	return 0;
}

#endif
