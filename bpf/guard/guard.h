/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Times at which the counters are read: switches at which the service comes or goes, and ticks while it stays.
 *
 * A tick is a timer on the service's own CPU, which costs it some microseconds in a virtual machine. A turn that is
 * over before its tick needs none, since the switch at its end comes first. But at its begin the length of a turn is
 * not known. So useless ticks are limited. Each tick that finds a turn as old as itself, and each turn that became as
 * old, allows PAID_TICKS ticks that find nothing new.
 *
 * A service with short turns has no ticks. A service with a long turn now and then has few useless ticks. If no tick is
 * allowed, the kernel's own next timer finds a long turn, a few milliseconds later; that turn has its ticks then.
 *
 * A CPU has no ticks if nothing can disturb the service there. While its turns are shorter than a window, one turn in a
 * millisecond is counted: reading the counters is nearly half the cost of a switch to the service or back. If batch
 * comes beside a turn that is not counted, the next counted turn shows its effect.
 */
#ifndef SIDELANE_GUARD_H
#define SIDELANE_GUARD_H

#include "guard/counters.h"

#define CLOCK_MONOTONIC 1
/* Flag of bpf_timer_start, since Linux 6.7: the timer fires on this CPU. */
#define TIMER_ON_THIS_CPU (1 << 1)
#define EINVAL 22

/* Number of useless ticks that one useful tick pays for. A useful tick finds the service still running. The second
 * constant limits the useless ticks that can be saved up. */
#define PAID_TICKS 4
#define PAID_TICKS_MAX 16
/* On a CPU without ticks, a short turn of the service is not counted if it begins within this time after a read of the
 * counters. */
#define SPARED_NS 1000000

struct guard_timer {
	struct bpf_timer timer;
};

/* Timer of each CPU for its ticks: reads of the counters while the service runs on. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct guard_timer);
} guard_timers SEC(".maps");

/* Sets the timer for the next tick on a CPU, if the CPU has ticks and none is set. */
static __always_inline void start_ticking(struct sidelane_guard_word *word, uint32_t cpu)
{
	struct guard_timer *tick = word->tick_ns && !word->ticking ? bpf_map_lookup_elem(&guard_timers, &cpu) : 0;

	if (!tick)
		return;
	long error = bpf_timer_start(&tick->timer, word->tick_ns, TIMER_ON_THIS_CPU);
	if (error == -EINVAL)
		error = bpf_timer_start(&tick->timer, word->tick_ns, 0);
	word->ticking = !error;
}

static __always_inline void pay_for_ticks(struct sidelane_guard_word *word)
{
	uint32_t paid = word->paid_ticks + PAID_TICKS;

	word->paid_ticks = paid < PAID_TICKS_MAX ? paid : PAID_TICKS_MAX;
}

/* Discards the counts since the last read, because it is unknown which threads ran since then. */
static __always_inline void guard_forget(uint32_t cpu)
{
	struct sidelane_guard_word *word = settings.interference ? guard_word(cpu) : 0;

	if (word)
		word->read_ns = 0;
}

/* Handles a useful tick, which finds a turn of the service that has lasted at least `tick_ns`: reads the counters, and
 * sets the next tick. */
static __always_inline void turn_lasts(struct sidelane_guard_word *word, uint32_t cpu, uint64_t now_ns)
{
	guard_read(word, cpu, word->spared ? GUARD_BOTH : GUARD_SERVICE, now_ns);
	word->spared = 0;
	pay_for_ticks(word);
	/* Set `ticking` to 0 only after this read: an interrupt that finds it 0 reads the counters, too, and would
	 * collide with it. */
	barrier();
	word->ticking = 0;
	start_ticking(word, cpu);
}

/* Counts for a context switch on `cpu` from a thread of the class `was` to one of the class `is`, if the service starts
 * or stops running there. */
static __always_inline void guard_switch(uint32_t cpu, uint32_t was, uint32_t is, uint64_t now_ns)
{
	struct sidelane_guard_word *word = 0;

	if (settings.interference && (was == SIDELANE_LC) != (is == SIDELANE_LC))
		word = guard_word(cpu);
	if (!word)
		return;
	bool begins = is == SIDELANE_LC, was_spared = word->spared;
	if (begins) {
		word->turn_since_ns = now_ns;
		word->spared = word->was_brief && !word->tick_ns && now_ns - word->read_ns < SPARED_NS;
		if (word->paid_ticks)
			start_ticking(word, cpu);
	} else {
		uint64_t turn_ns = now_ns - word->turn_since_ns;
		word->was_brief = turn_ns < word->window_ns;
		if (turn_ns >= word->tick_ns && word->paid_ticks < PAID_TICKS)
			word->paid_ticks = PAID_TICKS;
	}
	if (!word->spared)
		guard_read(word, cpu, !begins ? GUARD_SERVICE : was_spared ? GUARD_BOTH : GUARD_OTHERS, now_ns);
}

static __always_inline bool the_service_is_on(uint32_t cpu)
{
	struct sidelane_lane_word *lane = lane_word(cpu);

	return lane && lane->class_ == SIDELANE_LC;
}

/* Handles a useless tick: the turn of the service for which the tick was set is over. */
static __always_inline void ticked_in_vain(struct sidelane_guard_word *word, uint32_t cpu, bool is_on)
{
	store_once(word->vain_ticks, word->vain_ticks + 1);
	if (word->paid_ticks)
		word->paid_ticks--;
	if (is_on && word->paid_ticks)
		start_ticking(word, cpu);
}

/* Handles the timer of a tick. If the kernel lacks TIMER_ON_THIS_CPU, the timer may fire on another CPU, where the
 * counters cannot be read. */
static int guard_tick(void *map, uint32_t *of_cpu, struct guard_timer *tick)
{
	uint32_t cpu = *of_cpu;
	struct sidelane_guard_word *word = guard_word(cpu);

	if (!word)
		return 0;
	bool is_on = cpu == bpf_get_smp_processor_id() && the_service_is_on(cpu);
	uint64_t now_ns = bpf_ktime_get_ns();

	if (!is_on || now_ns - word->turn_since_ns < word->tick_ns) {
		word->ticking = 0;
		ticked_in_vain(word, cpu, is_on);
		return 0;
	}
	store_once(word->ticks, word->ticks + 1);
	turn_lasts(word, cpu, now_ns);
	return 0;
}

/* Handles the end of any of the kernel's high-resolution timers on this CPU. */
SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(guard_timer, struct hrtimer *timer)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_guard_word *word = guard_word(cpu);
	struct guard_timer *tick = bpf_map_lookup_elem(&guard_timers, &cpu);

	if (!word || !tick || !word->tick_ns || word->ticking || !the_service_is_on(cpu))
		return 0;
	uint64_t now_ns = bpf_ktime_get_ns();
	if (now_ns - word->turn_since_ns < word->tick_ns)
		return 0;
	/* On the first run for a CPU, both calls take effect. In later runs bpf_timer_init fails, and the second call
	 * changes nothing. */
	bpf_timer_init(&tick->timer, &guard_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&tick->timer, guard_tick);
	turn_lasts(word, cpu, now_ns);
	return 0;
}

#endif
