// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures how long both lanes of an emulated core worked at the same time.
 *
 * Each context switch of the two CPUs starts and stops stopwatches. Only a lane's own context
 * switches write the stopwatches of that lane. Only the lane on which a thread runs writes the
 * stopwatches of that thread.
 *
 * A lane counts as asleep while a real-time thread runs: the thread is a lane holder that naps, or a
 * client that stands in for another machine. A holder is recognised by its name; its nap may slow
 * the other lane, too. The real-time thread of the steal emulator is different: it stands in for the
 * cycles that the pre-empted thread loses. The lane therefore works while a thread waits for the
 * steal emulator.
 */
#include "kernel/types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "kernel/preempted.h"
#include "sibling.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sibling_core);
} sibling_cores SEC(".maps");

static __always_inline struct sibling_core *the_core(void)
{
	uint32_t zero = 0;

	return bpf_map_lookup_elem(&sibling_cores, &zero);
}

/* One of this many context switches is timed. */
#define COST_SAMPLE_EVERY 16

/* State in the event cpu_idle when a CPU leaves an idle state; the kernel's PWR_EVENT_EXIT. */
#define NO_IDLE_STATE (~0u)

#define load_once(x) (*(volatile typeof(x) *)&(x))
#define store_once(x, v) (*(volatile typeof(x) *)&(x) = (v))

/* Scheduling policies, as in the kernel's uapi/linux/sched.h. */
#define SCHED_FIFO 1
#define SCHED_RR 2
#define SCHED_DEADLINE 6

static __always_inline int64_t shows(uint64_t *stopwatch, int64_t at)
{
	int64_t word = load_once(*stopwatch);

	return (word >> 1) + (word & 1 ? at : 0);
}

static __always_inline void start(uint64_t *stopwatch, int64_t at)
{
	int64_t word = load_once(*stopwatch);

	if (!(word & 1))
		store_once(*stopwatch, ((word >> 1) - at) << 1 | 1);
}

static __always_inline void stop(uint64_t *stopwatch, int64_t at)
{
	int64_t word = load_once(*stopwatch);

	if (word & 1)
		store_once(*stopwatch, ((word >> 1) + at) << 1);
}

static __always_inline bool is_real_time(struct task_struct *task)
{
	return task->policy == SCHED_FIFO || task->policy == SCHED_RR || task->policy == SCHED_DEADLINE;
}

static __always_inline bool is_holder(struct task_struct *task)
{
	const char name[] = "holder-";

	for (uint32_t i = 0; i < sizeof(name) - 1; i++)
		if (task->comm[i] != name[i])
			return false;
	return true;
}

/* Returns the place of a thread: its slot in the shared memory, counted from 1; 0 if it has no place. */
static __always_inline uint32_t place_of(struct sibling_core *core, uint32_t tid)
{
	for (uint32_t i = 0; i < SIBLING_THREADS; i++)
		if (load_once(core->tids[i]) == tid)
			return i + 1;
	return 0;
}

/* Returns the thread in the slot `place`, counted from 1; NULL for 0, which means no slot. */
static __always_inline struct sibling_thread *thread_at(struct sibling_core *core, uint32_t place)
{
	uint32_t index = place - 1;

	if (index >= SIBLING_THREADS)
		return 0;
	/* The verifier requires the bound check next to the computation of the address. */
	asm volatile("" : "+r"(index));
	return &core->threads[index & (SIBLING_THREADS - 1)];
}

/* Returns the stopwatches that count overlap: those of the running thread if it has a slot in the shared memory, else
 * those of the lane. */
static __always_inline uint64_t *overlap_of(struct sibling_core *core, struct sibling_lane *lane)
{
	struct sibling_thread *thread = thread_at(core, lane->place);

	return thread ? thread->overlap : lane->overlap;
}

/* The lane of the current CPU, and its sibling lane. */
struct lanes {
	struct sibling_lane *own;
	struct sibling_lane *other;
	uint32_t number;
};

/* Sets `lanes` to the lane of the CPU and its sibling. Returns false if the CPU is no lane of the core. */
static __always_inline bool find_lanes(struct sibling_core *core, uint32_t cpu, struct lanes *lanes)
{
	if (cpu != core->cpus[0] && cpu != core->cpus[1])
		return false;
	lanes->number = cpu == core->cpus[1];
	lanes->own = lanes->number ? &core->lanes[1] : &core->lanes[0];
	lanes->other = lanes->number ? &core->lanes[0] : &core->lanes[1];
	return true;
}

/* A time, and how long the other lane has worked and napped until then. */
struct moment {
	int64_t at_ns;
	int64_t works_ns;
	int64_t naps_ns;
};

static __always_inline struct moment moment_at(struct sibling_lane *other, int64_t at_ns)
{
	return (struct moment){
		.at_ns = at_ns,
		.works_ns = shows(&other->spent[SIBLING_WORKS], at_ns),
		.naps_ns = shows(&other->spent[SIBLING_NAPS], at_ns),
	};
}

static __always_inline void turn_ends(struct sibling_core *core, struct sibling_lane *lane, struct moment end)
{
	uint64_t *overlap = overlap_of(core, lane);

	stop(&overlap[SIBLING_WORKS], end.works_ns);
	stop(&overlap[SIBLING_NAPS], end.naps_ns);
	stop(&lane->both[SIBLING_WORKS], end.works_ns);
	stop(&lane->both[SIBLING_NAPS], end.naps_ns);
	stop(&lane->spent[SIBLING_WORKS], end.at_ns);
	stop(&lane->spent[SIBLING_NAPS], end.at_ns);
	stop(&lane->taken, end.at_ns);
}

static __always_inline void turn_begins(struct sibling_core *core, struct sibling_lane *lane, struct moment begin)
{
	uint64_t *overlap = overlap_of(core, lane);

	start(&lane->spent[SIBLING_WORKS], begin.at_ns);
	start(&overlap[SIBLING_WORKS], begin.works_ns);
	start(&overlap[SIBLING_NAPS], begin.naps_ns);
	start(&lane->both[SIBLING_WORKS], begin.works_ns);
	start(&lane->both[SIBLING_NAPS], begin.naps_ns);
}

static __always_inline struct sibling_thread *thread_of(struct sibling_core *core, struct task_struct *task)
{
	return task->pid ? thread_at(core, place_of(core, task->pid)) : 0;
}

/* Starts the stopwatches of a program that is switched in, and stores its slot number (0 for none) in the lane. */
static __always_inline void program_begins(struct sibling_core *core, const struct lanes *lanes,
					   struct task_struct *task, struct moment begin)
{
	lanes->own->place = place_of(core, task->pid);
	turn_begins(core, lanes->own, begin);
	struct sibling_thread *thread = thread_at(core, lanes->own->place);

	if (thread) {
		store_once(thread->lane, lanes->number);
		store_once(thread->turns, thread->turns + 1);
	}
}

/* Returns the time at which the thread that leaves the lane was switched in, by the scheduler's own clock. That clock
 * covers hidden threads, too, but is behind; switches that were visible have shown by how much. */
static __always_inline int64_t arrived_ns(struct sibling_lane *lane, struct task_struct *prev, int64_t now_ns)
{
	if (!prev->pid || !lane->scheduler_behind_ns || !bpf_core_field_exists(prev->sched_info))
		return now_ns;
	int64_t at_ns = (int64_t)prev->sched_info.last_arrival + lane->scheduler_behind_ns;

	return at_ns > lane->began_ns ? at_ns : lane->began_ns;
}

static __always_inline void note_scheduler_clock(struct sibling_lane *lane, struct task_struct *prev)
{
	if (prev->pid && bpf_core_field_exists(prev->sched_info))
		lane->scheduler_behind_ns = lane->began_ns - (int64_t)prev->sched_info.last_arrival;
}

/* Begins the turn of `prev` only now, when it is switched out, if its switch-in was not visible. Some kernels hide
 * some threads, and the switches away from them, from every tracer. The sibling lane is assumed to have had the same
 * load during the whole turn as now. */
static __always_inline void begin_untold(struct sibling_core *core, const struct lanes *lanes,
					 struct task_struct *prev, int64_t now_ns)
{
	struct sibling_lane *lane = lanes->own;

	if (!lane->switches)
		return;
	if (lane->running == (uint32_t)prev->pid) {
		note_scheduler_clock(lane, prev);
		return;
	}
	struct moment then = moment_at(lanes->other, arrived_ns(lane, prev, now_ns));

	turn_ends(core, lane, then);
	lane->place = 0;
	if (prev->pid && !is_real_time(prev))
		program_begins(core, lanes, prev, then);
}

/* Begins the turn of the thread that is switched in on the lane: the time until it is switched out. */
static __always_inline void task_comes(struct sibling_core *core, const struct lanes *lanes, struct task_struct *next,
				       struct moment now)
{
	struct sibling_lane *lane = lanes->own;

	if (!next->pid) {
		lane->waiting = 0;
	} else if (next->pid == (int)load_once(lane->steal_tid)) {
		if (lane->waiting) {
			start(&lane->taken, now.at_ns);
			turn_begins(core, lane, now);
		}
	} else if (!is_real_time(next)) {
		lane->waiting = 0;
		program_begins(core, lanes, next, now);
	} else if (is_holder(next)) {
		start(&lane->spent[SIBLING_NAPS], now.at_ns);
	}
}

/* Counts a switch-in on a CPU outside the emulated core, for a thread that emulates the slowdown itself. The changed
 * count tells the thread that it was switched out. */
static __always_inline void goes_on_elsewhere(struct sibling_core *core, struct task_struct *next)
{
	struct sibling_thread *thread = thread_of(core, next);

	if (thread)
		store_once(thread->turns, thread->turns + 1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sibling_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct sibling_core *core = the_core();
	struct lanes lanes;

	if (!core)
		return 0;
	if (!find_lanes(core, bpf_get_smp_processor_id(), &lanes)) {
		goes_on_elsewhere(core, next);
		return 0;
	}
	struct sibling_lane *lane = lanes.own;
	struct moment now = moment_at(lanes.other, bpf_ktime_get_ns());

	begin_untold(core, &lanes, prev, now.at_ns);
	turn_ends(core, lane, now);
	if (prev->pid && !is_real_time(prev))
		lane->waiting = was_preempted(preempt, prev) && !lane->place;
	lane->place = 0;
	lane->running = next->pid;
	lane->began_ns = now.at_ns;
	task_comes(core, &lanes, next, now);
	if (++lane->switches % COST_SAMPLE_EVERY == 0) {
		lane->cost_ns += bpf_ktime_get_ns() - now.at_ns;
		lane->cost_samples++;
	}
	return 0;
}

/* Ends the turn of the thread on a CPU that becomes idle. If the kernel hid that thread's switches, only this event
 * shows the end. */
SEC("tp_btf/cpu_idle")
int BPF_PROG(sibling_idle, unsigned int state, unsigned int cpu)
{
	struct sibling_core *core = the_core();
	struct lanes lanes;

	if (!core || state == NO_IDLE_STATE || !find_lanes(core, cpu, &lanes) || !lanes.own->running)
		return 0;
	struct moment now = moment_at(lanes.other, bpf_ktime_get_ns());

	turn_ends(core, lanes.own, now);
	lanes.own->place = lanes.own->waiting = lanes.own->running = 0;
	lanes.own->began_ns = now.at_ns;
	return 0;
}

/* Releases the slot of a thread that exits. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(sibling_exit, struct task_struct *task)
{
	struct sibling_core *core = the_core();
	uint32_t place = core ? place_of(core, task->pid) : 0;

	if (!core || place == 0 || place > SIBLING_THREADS)
		return 0;
	asm volatile("" : "+r"(place));
	store_once(core->tids[(place - 1) & (SIBLING_THREADS - 1)], 0);
	return 0;
}
