/* SPDX-License-Identifier: GPL-2.0-only
 *
 * When the counters are read: at the switches at which the service comes or goes, and at ticks while it stays.
 *
 * A tick is a timer on the service's own CPU, which pays for it: some microseconds in a virtual machine. A turn that is
 * over before its tick needs none, since the switch at its end comes first; but when a turn begins, nobody knows how
 * long it will be. So a tick that finds a turn as old as itself, and a turn that became as old, pay for some ticks that
 * find nothing new. A service whose turns are short has none, and one whose turns are long now and then has few that are
 * in vain. A turn that lasts where none is paid for is found by the next timer of the kernel's own, a few milliseconds
 * later, and has its ticks then.
 *
 * A CPU without ticks is one where nobody can disturb the service. There one turn in a millisecond is counted while turns
 * are shorter than a window: to read the counters is nearly half of what a switch to it or back costs.
 * If batch comes beside a turn that is not counted, what it does is seen in the next one.
 */
#ifndef SIDELANE_GUARD_H
#define SIDELANE_GUARD_H

#include "guard/counters.h"

#define CLOCK_MONOTONIC 1
/* Since Linux 6.7. */
#define TIMER_ON_THIS_CPU (1 << 1)
#define EINVAL 22

/* Ticks in vain that are paid for by one that is not, and at most. */
#define PAID_TICKS 4
#define PAID_TICKS_MAX 16
/* Where there are no ticks, brief turns are spared for so long after a read. */
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

/* The tick of a CPU that has none yet. */
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

/* What was counted since the last read belongs to nobody known. */
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
	/* Only now: an interrupt that finds no tick to come reads the counters, too. */
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

/* The tick of a turn that is over, or of one that has begun since. */
static __always_inline void ticked_in_vain(struct sidelane_guard_word *word, uint32_t cpu, bool is_on)
{
	store_once(word->vain_ticks, word->vain_ticks + 1);
	if (word->paid_ticks)
		word->paid_ticks--;
	if (is_on && word->paid_ticks)
		start_ticking(word, cpu);
}

/* A tick. Without TIMER_ON_THIS_CPU it may come elsewhere, where the counters cannot be read. */
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
	/* Of these two, all but the first time on a CPU, the first one fails and the second one changes nothing. */
	bpf_timer_init(&tick->timer, &guard_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&tick->timer, guard_tick);
	turn_lasts(word, cpu, now_ns);
	return 0;
}

#endif
