/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Times at which the counters are read: switches at which the service comes or goes, and ticks while it stays.
 *
 * A tick is a timer on the service's own CPU, which pays for it: some microseconds in a virtual machine. A turn that
 * is over before its tick needs none, since the switch at its end comes first. But at its begin the length of a turn
 * is not known. So each tick that finds a turn as old as itself, and each turn that became as old, pays for
 * PAID_TICKS ticks that find nothing new.
 *
 * A service with short turns has no ticks. One with a long turn now and then has few ticks in vain. If no tick is
 * paid for, the kernel's own next timer finds a long turn, a few milliseconds later; that turn has its ticks then.
 *
 * A CPU has no ticks if nothing can disturb the service there. While its turns are shorter than a window, one turn
 * in a millisecond is counted: reading the counters is nearly half the cost of a switch to the service or back. If
 * batch comes beside a turn that is not counted, the next counted turn shows its effect.
 */
#ifndef SIDELANE_GUARD_H
#define SIDELANE_GUARD_H

#include "guard/counters.h"

#define CLOCK_MONOTONIC 1
/* Since Linux 6.7. */
#define TIMER_ON_THIS_CPU (1 << 1)
#define EINVAL 22

/* Ticks in vain that one useful tick pays for, and the most that can be paid for in advance. */
#define PAID_TICKS 4
#define PAID_TICKS_MAX 16
/* Time after a read in which brief turns are not counted, on CPUs without ticks. */
#define SPARED_NS 1000000

struct guard_timer {
	struct bpf_timer timer;
};

/* One entry a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct guard_timer);
} guard_timers SEC(".maps");

/* Starts the tick of a CPU that has none yet. */
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

/* Gives up the counts since the last read: the threads that ran since then are not known. */
static __always_inline void guard_forget(uint32_t cpu)
{
	struct sidelane_guard_word *word = settings.interference ? guard_word(cpu) : 0;

	if (word)
		word->read_ns = 0;
}

/* The turn is as old as a tick. */
static __always_inline void turn_lasts(struct sidelane_guard_word *word, uint32_t cpu, uint64_t now_ns)
{
	guard_read(word, cpu, word->spared ? GUARD_BOTH : GUARD_SERVICE, now_ns);
	word->spared = 0;
	pay_for_ticks(word);
	/* Only now: an interrupt that finds `ticking` 0 reads the counters, too. */
	barrier();
	word->ticking = 0;
	start_ticking(word, cpu);
}

/* A switch from `was` to `is`. */
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

/* Handles the tick of a turn that is over, or of one that has begun since. */
static __always_inline void ticked_in_vain(struct sidelane_guard_word *word, uint32_t cpu, bool is_on)
{
	store_once(word->vain_ticks, word->vain_ticks + 1);
	if (word->paid_ticks)
		word->paid_ticks--;
	if (is_on && word->paid_ticks)
		start_ticking(word, cpu);
}

/* Handles a tick. Without TIMER_ON_THIS_CPU it may come on another CPU, where the counters cannot be read. */
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

/* One of the kernel's timers has gone off on this CPU. */
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
	/* The first time on a CPU both have an effect. Later the first one fails and the second one changes nothing. */
	bpf_timer_init(&tick->timer, &guard_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&tick->timer, guard_tick);
	turn_lasts(word, cpu, now_ns);
	return 0;
}

#endif
