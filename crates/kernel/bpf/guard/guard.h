/* SPDX-License-Identifier: GPL-2.0-only
 *
 * When the counters are read: at the switches at which the service comes or goes, and at ticks while it stays.
 *
 * A tick is a timer on the service's own CPU, which pays for it. So there is none where it would find nothing new: as
 * long as the service's turns are shorter than a tick, the switch at their end comes first. A turn that lasts after
 * many short ones is found by the next timer of the kernel's own, a few milliseconds later, and has its ticks then.
 */
#ifndef SIDELANE_GUARD_H
#define SIDELANE_GUARD_H

#include "guard/counters.h"

#define CLOCK_MONOTONIC 1
/* Since Linux 6.7. */
#define TIMER_ON_THIS_CPU (1 << 1)
#define EINVAL 22

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

/* What was counted since the last read belongs to nobody known. */
static __always_inline void guard_forget(uint32_t cpu)
{
	struct sidelane_guard_word *word = settings.interference ? guard_word(cpu) : 0;

	if (word)
		word->read_ns = 0;
}

/* A switch from `was` to `is`. */
static __always_inline void guard_switch(uint32_t cpu, uint32_t was, uint32_t is, uint64_t now_ns)
{
	struct sidelane_guard_word *word = 0;

	if (settings.interference && (was == SIDELANE_LC) != (is == SIDELANE_LC))
		word = guard_word(cpu);
	if (!word)
		return;
	guard_read(word, cpu, was == SIDELANE_LC, now_ns);
	if (is == SIDELANE_LC) {
		word->turn_since_ns = now_ns;
		if (word->long_turns)
			start_ticking(word, cpu);
	} else {
		word->long_turns = word->long_turns << 1 | (now_ns - word->turn_since_ns >= word->tick_ns);
	}
}

static __always_inline bool the_service_is_on(uint32_t cpu)
{
	struct sidelane_lane_word *lane = lane_word(cpu);

	return lane && lane->class_ == SIDELANE_LC;
}

/* A tick. The last one of a turn comes after it, finds somebody else, and is not followed by another. Without
 * TIMER_ON_THIS_CPU it may come elsewhere, where the counters cannot be read. */
static int guard_tick(void *map, uint32_t *of_cpu, struct guard_timer *tick)
{
	uint32_t cpu = *of_cpu;
	struct sidelane_guard_word *word = guard_word(cpu);

	if (!word)
		return 0;
	if (cpu == bpf_get_smp_processor_id() && the_service_is_on(cpu)) {
		store_once(word->ticks, word->ticks + 1);
		guard_read(word, cpu, true, bpf_ktime_get_ns());
		word->ticking = 0;
		start_ticking(word, cpu);
	} else {
		word->ticking = 0;
	}
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
	guard_read(word, cpu, true, now_ns);
	word->long_turns |= 1;
	start_ticking(word, cpu);
	return 0;
}

#endif
