/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Windows of interference. The counts of the service become a value (Holmes, HPDC'22, Equation 1). A value that crosses
 * the threshold wakes user space.
 *
 * A window is a stretch of the service's own run time, so a service that runs for short moments has windows, too. User
 * space decides what a crossing means, and what to do.
 */
#ifndef SIDELANE_GUARD_WINDOW_H
#define SIDELANE_GUARD_WINDOW_H

#include "guard/word.h"
#include "maps.h"

/* Ring buffer that wakes the guard in user space when a value crosses its threshold. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} guard_crossings SEC(".maps");

/* Largest count that fits into the integer part of a fixed-point value. */
#define GUARD_COUNT_MAX ((1ULL << (64 - SIDELANE_GUARD_SHIFT)) - 1)
/* Value of a window without activity. No formula gives such a high value. */
#define GUARD_NO_VALUE (~0ULL)
/* Limit of each factor, so that a product fits in 64 bits: thresholds up to 256, windows up to four seconds. */
#define GUARD_PART_MAX (1ULL << 32)

static __always_inline uint64_t window_sum(struct sidelane_guard_word *word, uint32_t events)
{
	uint64_t sum = 0;

	for (int i = 0; i < SIDELANE_GUARD_EVENTS; i++)
		if (events >> i & 1)
			sum += word->service[i] - word->window[i];
	return sum;
}

static __always_inline void open_window(struct sidelane_guard_word *word, uint64_t now_ns)
{
	word->opened_ns = now_ns;
	word->window_service_ns = word->service_ns;
	for (int i = 0; i < SIDELANE_GUARD_EVENTS; i++)
		word->window[i] = word->service[i];
}

/* Records that the value crossed the threshold, and wakes user space. The state is written before the wakeup is
 * sent. User space takes the wakeup before it reads the state. Each side has a full barrier between the two, so no
 * crossing is missed. */
static __always_inline void crossed(struct sidelane_guard_word *word, uint32_t cpu, uint32_t above, uint64_t now_ns)
{
	store_once(word->above, above);
	store_once(word->crossed_ns, now_ns);
	store_once(word->crossings, word->crossings + 1);
	if (__sync_lock_test_and_set(&word->rung, 1))
		return;
	/* The wakeup could not be sent; the next crossing tries again. */
	if (bpf_ringbuf_output(&guard_crossings, &cpu, sizeof(cpu), BPF_RB_FORCE_WAKEUP))
		store_once(word->rung, 0);
}

static __always_inline void note_value(struct sidelane_guard_word *word, uint32_t cpu, uint64_t value, uint64_t now_ns)
{
	uint32_t above = value >= load_once(word->threshold);

	store_once(word->value, value);
	store_once(word->value_ns, now_ns);
	store_once(word->windows, word->windows + 1);
	if (value + 1 > load_once(word->peak))
		store_once(word->peak, value + 1);
	if (above != word->above)
		crossed(word, cpu, above, now_ns);
}

/* Returns the formula's value in a window; GUARD_NO_VALUE if numerator and denominator both count too little.
 *
 * A high numerator is activity even if the denominator is low: a service that always waits for memory retires few
 * loads, and is disturbed the most. The denominator is then raised to the least count of activity. So the value is at
 * most the formula's, and a few loads by chance are no interference. */
static __always_inline uint64_t window_value(struct sidelane_guard_word *word)
{
	uint64_t above_line = window_sum(word, word->numerator);
	uint64_t below_line = window_sum(word, word->denominator);
	uint64_t least = word->activity_min ? word->activity_min : 1;

	if (below_line < least && above_line < least)
		return GUARD_NO_VALUE;
	if (below_line < least)
		below_line = least;
	if (above_line > GUARD_COUNT_MAX)
		above_line = GUARD_COUNT_MAX;
	return (above_line << SIDELANE_GUARD_SHIFT) / below_line;
}

/* Returns whether the value reaches the threshold even if the numerator counts nothing more in this window, in which
 * the service has run for `ran_ns` so far. The result is false while the denominator counts too little for activity. */
static __always_inline bool is_above_already(struct sidelane_guard_word *word, uint64_t value, uint64_t ran_ns)
{
	uint64_t threshold = load_once(word->threshold);

	if (value == GUARD_NO_VALUE || threshold > GUARD_PART_MAX || word->window_ns > GUARD_PART_MAX)
		return false;
	if (window_sum(word, word->denominator) < word->activity_min)
		return false;
	if (value > GUARD_PART_MAX)
		value = GUARD_PART_MAX;
	return value * ran_ns >= threshold * word->window_ns;
}

/* Ends the window if it is long enough, or if the rest of the window cannot change the result. A window without
 * activity gets no value. */
static __always_inline void look_at_window(struct sidelane_guard_word *word, uint32_t cpu, uint64_t now_ns)
{
	uint64_t ran_ns = word->service_ns - word->window_service_ns, value = window_value(word);
	bool is_over = ran_ns >= word->window_ns || now_ns - word->opened_ns >= word->window_max_ns;

	if (!is_over && !is_above_already(word, value, ran_ns))
		return;
	open_window(word, now_ns);
	if (value == GUARD_NO_VALUE)
		store_once(word->empty_windows, word->empty_windows + 1);
	else
		note_value(word, cpu, value, now_ns);
}

#endif
