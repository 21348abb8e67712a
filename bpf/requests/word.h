/* SPDX-License-Identifier: GPL-2.0-only
 *
 * What each thread of a service works on, for whoever moves threads: one store at each begin and end of a request. The
 * reader looks when it likes. It is woken only if it asked for that, once for each time that it asked.
 *
 * A thread gets a word with its first request, and keeps it. Where all words near its place are taken it has none, and
 * its requests are known by their records alone, until it finds a free word at one of its next requests.
 */
#ifndef SIDELANE_REQUEST_WORD_H
#define SIDELANE_REQUEST_WORD_H

#include "requests/state.h"

/* Words that a thread looks at for a free one. */
#define WORDS_TRIED 16
#define NO_WORD (SIDELANE_THREAD_WORDS + 1)

static __always_inline struct sidelane_thread_word *thread_word(uint32_t place)
{
	return bpf_map_lookup_elem(&thread_words, &place);
}

/* Owner and service are one store, so that nobody reads one of them alone. */
static __always_inline uint64_t owner_of(uint32_t tid, uint32_t service)
{
	struct sidelane_thread_word word = { .tid = tid, .service = service };

	return *(uint64_t *)&word;
}

/* Neither this nor `ring_once` is CHECKED_ALONE: before 6.8 that checks them where they are not called, too, and there
 * the maps that they use may have been left out. */
static __noinline uint32_t find_word(uint32_t tid, uint32_t service)
{
	for (uint32_t i = 0; i < WORDS_TRIED; i++) {
		uint32_t place = (tid + i) & (SIDELANE_THREAD_WORDS - 1);
		struct sidelane_thread_word *word = thread_word(place);

		if (word && !__sync_val_compare_and_swap((uint64_t *)word, 0, owner_of(tid, service)))
			return place + 1;
	}
	return NO_WORD;
}

static __always_inline bool has_cpu(const uint64_t *cpus, uint32_t cpu)
{
	return cpu < 512 && load_once(cpus[cpu / 64 & 7]) >> (cpu % 64) & 1;
}

/* Wakes whoever sleeps, unless somebody else is first. */
static __noinline int ring_once(struct sidelane_request_bell *bell, uint32_t service)
{
	void *ring = bpf_map_lookup_elem(&record_rings, &service);

	if (!ring || !__sync_lock_test_and_set(&bell->armed, 0))
		return 0;
	void *nothing = bpf_ringbuf_reserve(ring, sizeof(uint64_t), 0);
	if (nothing)
		bpf_ringbuf_discard(nothing, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* A thread works on a request on this CPU, or has ended its work. */
static __always_inline void ring(uint32_t service, bool begins)
{
	struct sidelane_request_bell *bell = bpf_map_lookup_elem(&request_bells, &service);

	if (bell && load_once(bell->armed) && has_cpu(begins ? bell->begins : bell->ends, bpf_get_smp_processor_id()))
		ring_once(bell, service);
}

/* Whoever reads finds no time beside the number of another request. */
static __always_inline void show_number(struct sidelane_thread_word *word, uint64_t number)
{
	if (load_once(word->number) == number)
		return;
	store_once(word->since_ns, 0);
	publish(word->number, number);
}

/* Says what the thread works on now. */
static __always_inline void show_thread(struct request_thread *thread, uint32_t tid)
{
	if (!settings.threads)
		return;
	if (!thread->word || (thread->word == NO_WORD && thread->running))
		thread->word = find_word(tid, thread->service);
	struct sidelane_thread_word *word = thread_word(thread->word - 1);
	if (word && thread->running)
		show_number(word, thread->running);
	if (word)
		store_once(word->since_ns, thread->running ? thread->started_ns : 0);
	ring(thread->service, thread->running);
}

/* The thread is gone. */
static __always_inline void free_word(struct task_struct *task)
{
	if (!settings.requests || !settings.threads)
		return;
	struct request_thread *thread = bpf_task_storage_get(&request_threads, task, 0, 0);
	struct sidelane_thread_word *word = thread ? thread_word(thread->word - 1) : 0;
	if (!word)
		return;
	store_once(word->since_ns, 0);
	__sync_lock_test_and_set((uint64_t *)word, 0);
}

#endif
