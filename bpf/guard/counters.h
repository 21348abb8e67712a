/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Events that the processor or the kernel counts on a CPU while a service runs there.
 *
 * The counters count every thread that runs. They are read when the service comes or goes, and at ticks while it runs
 * on, so the counts between two reads belong to one side: the service, or other threads. User space opens the counters
 * and writes the formula (src/interference).
 *
 * Unless settings.interference is set, all of this is dead code, and the loaded program does not contain it.
 */
#ifndef SIDELANE_GUARD_COUNTERS_H
#define SIDELANE_GUARD_COUNTERS_H

#include "guard/window.h"

/* Counters of the formula's events: all events of one CPU, then all of the next CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, SIDELANE_GUARD_EVENTS);
	__type(key, uint32_t);
	__type(value, uint32_t);
} guard_events SEC(".maps");

/* Guard word of each CPU, which user space maps: settings, results, and the counters' values at the last read. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_guard_word);
} guard_words SEC(".maps");

/* Values of a CPU's counters at one read, one for each event of the formula. */
struct guard_counts {
	uint64_t counts[SIDELANE_GUARD_EVENTS];
	uint64_t away_ns; /* time in which the counters were enabled but did not count */
};

/* Returns the guard word of a CPU; null if no events are counted there. */
static __always_inline struct sidelane_guard_word *guard_word(uint32_t cpu)
{
	struct sidelane_guard_word *word = bpf_map_lookup_elem(&guard_words, &cpu);

	return word && load_once(word->event_count) ? word : 0;
}

/* Reads the counters of a CPU. The processor's events of one formula are a group: all of them count, or none counts.
 * The kernel's own events always count. */
static __always_inline bool read_counters(struct sidelane_guard_word *word, uint32_t cpu, struct guard_counts *now)
{
	struct bpf_perf_event_value value;

	for (uint32_t i = 0; i < SIDELANE_GUARD_EVENTS && i < word->event_count; i++) {
		if (bpf_perf_event_read_value(&guard_events, cpu * SIDELANE_GUARD_EVENTS + i, &value, sizeof(value)))
			return false;
		now->counts[i] = value.counter;
		if (value.enabled - value.running > now->away_ns)
			now->away_ns = value.enabled - value.running;
	}
	return true;
}

/* Side to which the counts since the last read of a CPU's counters belong: other threads, the service, or neither. */
enum guard_whose {
	GUARD_OTHERS,
	GUARD_SERVICE,
	GUARD_BOTH, /* the counts belong to neither side */
};

/* Adds the counts since the last read to the sum of the service or of other threads, as `whose` says. */
static __always_inline void attribute(struct sidelane_guard_word *word, const struct guard_counts *now,
				      enum guard_whose whose)
{
	store_once(word->away_ns, word->away_ns + (now->away_ns - word->away_seen_ns));
	if (whose == GUARD_BOTH)
		return;
	for (int i = 0; i < SIDELANE_GUARD_EVENTS; i++) {
		uint64_t counted = now->counts[i] - word->seen[i];
		uint64_t *sum = whose == GUARD_SERVICE ? &word->service[i] : &word->others[i];
		store_once(*sum, *sum + counted);
	}
}

static __always_inline void guard_read(struct sidelane_guard_word *word, uint32_t cpu, enum guard_whose whose,
				       uint64_t now_ns)
{
	struct guard_counts now = {};

	if (!read_counters(word, cpu, &now)) {
		store_once(word->failed_reads, word->failed_reads + 1);
		word->read_ns = 0;
		return;
	}
	store_once(word->reads, word->reads + 1);
	if (word->read_ns) {
		attribute(word, &now, whose);
		if (whose == GUARD_SERVICE)
			store_once(word->service_ns, word->service_ns + (now_ns - word->read_ns));
	} else {
		open_window(word, now_ns);
	}
	for (int i = 0; i < SIDELANE_GUARD_EVENTS; i++)
		word->seen[i] = now.counts[i];
	word->away_seen_ns = now.away_ns;
	word->read_ns = now_ns;
	look_at_window(word, cpu, now_ns);
}

#endif
