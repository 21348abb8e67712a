/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Present request of each thread of a service, for a program that moves threads: one store at each begin and end of a
 * request. The reader reads at any time. It is woken only if it asked for that, once for each time that it asked.
 *
 * A thread gets a word with its first request, and keeps it. If all words near its place are taken, the thread has
 * none. Its requests are then known by their records alone, until it finds a free word at a later request.
 */
#ifndef SIDELANE_REQUEST_WORD_H
#define SIDELANE_REQUEST_WORD_H

#include "requests/state.h"

/* Number of words among which a thread looks for a free one. */
#define WORDS_TRIED 16
#define NO_WORD (SIDELANE_THREAD_WORDS + 1)

static __always_inline struct sidelane_thread_word *thread_word(uint32_t place)
{
	return bpf_map_lookup_elem(&thread_words, &place);
}

/* Returns thread id and service in one word to store, so that a reader never sees only one of them. */
static __always_inline uint64_t owner_of(uint32_t tid, uint32_t service)
{
	struct sidelane_thread_word word = { .tid = tid, .service = service };

	return *(uint64_t *)&word;
}

/* Claims a free word for a thread. Returns its place plus 1, or NO_WORD. Neither this function nor `wake_once` is
 * CHECKED_ALONE. Before Linux 6.8 the verifier checks such functions even if they are not called, and their maps may
 * have been left out. */
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

/* Wakes the reader of the request records, if it has armed the wakeup. One wakeup disarms it. */
static __noinline int wake_once(struct sidelane_request_wakeup *wakeup, uint32_t service)
{
	void *ring = bpf_map_lookup_elem(&record_rings, &service);

	if (!ring || !__sync_lock_test_and_set(&wakeup->armed, 0))
		return 0;
	void *nothing = bpf_ringbuf_reserve(ring, sizeof(uint64_t), 0);
	if (nothing)
		bpf_ringbuf_discard(nothing, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* Wakes a reader that waits for the begin or end of a request on this CPU. */
static __always_inline void ring(uint32_t service, bool begins)
{
	struct sidelane_request_wakeup *wakeup = bpf_map_lookup_elem(&request_wakeups, &service);

	if (wakeup && load_once(wakeup->armed) &&
	    has_cpu(begins ? wakeup->begins : wakeup->ends, bpf_get_smp_processor_id()))
		wake_once(wakeup, service);
}

/* Writes the number of a thread's request. A reader never sees the start time of one request with the number of
 * another. */
static __always_inline void show_number(struct sidelane_thread_word *word, uint64_t number)
{
	if (load_once(word->number) == number)
		return;
	store_once(word->since_ns, 0);
	publish(word->number, number);
}

/* Writes the request of the thread into the thread's word. */
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
