/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Request of each thread of the service, and so of each lane: Elfen's running_request (ATC'16 Fig. 9(b)).
 *
 * If one thread receives and others answer, the kernel does not see which worker thread starts which request. Nor does
 * it see when, if all workers are busy. A worker's answer shows it afterwards (request_start). Until then the worker is
 * assumed to work on a request that was handed over, from the earliest possible time.
 */
#ifndef SIDELANE_REQUEST_THREAD_H
#define SIDELANE_REQUEST_THREAD_H

#include "lane/self_checking.h"
#include "requests/queue.h"
#include "lane/summons.h"
#include "requests/open.h"
#include "requests/word.h"

/* Number of attempts to read batch's clock; a read between two of its writes is repeated. */
#define BATCH_CLOCK_TRIES 2

/* Returns the time that batch has run on a lane without napping, less the known stolen time. */
static __always_inline uint64_t batch_clock_ns(uint32_t lane, uint64_t now_ns)
{
	struct sidelane_lane_stats *stats = bpf_map_lookup_elem(&lane_stats, &lane);
	uint64_t done_ns = 0, since_ns = 0;

	if (!stats)
		return 0;
	for (int try = 0; try < BATCH_CLOCK_TRIES; try++) {
		since_ns = load_once(stats->batch_since_ns);
		done_ns = load_once(stats->batch_ns);
		if (since_ns == load_once(stats->batch_since_ns))
			break;
	}
	done_ns += since_ns && now_ns > since_ns ? now_ns - since_ns : 0;
	done_ns -= load_once(stats->stolen_ns[SIDELANE_BATCH]);
	return done_ns - nap_clock_ns(lane, stats, now_ns);
}

CHECKED_ALONE uint64_t batch_clocks_ns(uint32_t cpu, uint64_t now_ns)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);
	uint64_t sum_ns = 0;

	if (!role || role->role != SIDELANE_ROLE_REQUEST)
		return 0;
	for_each_partner(lane, role)
		sum_ns += batch_clock_ns(lane, now_ns);
	return sum_ns;
}

/* Returns the sum of batch's clocks on the partners of a request lane. Only the difference of two readings has a
 * meaning; a single one may have wrapped. */
static __always_inline uint64_t partners_batch_ns(uint32_t cpu, uint64_t now_ns)
{
	return settings.lanes ? batch_clocks_ns(cpu, now_ns) : 0;
}

/* Takes back the lanes that were lent beside the last request, because a request starts that had to wait. */
CHECKED_ALONE int request_that_waited_starts(uint32_t cpu)
{
	struct sidelane_lane_role *role = settings.lanes ? bpf_map_lookup_elem(&lane_roles, &cpu) : 0;

	if (!role || role->role != SIDELANE_ROLE_REQUEST || role->lends_to_waited)
		return 0;
	for_each_partner(lane, role) {
		struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &lane);
		if (hold)
			summon_from_lent(lane, hold, true);
	}
	return 0;
}

/* Writes the request of the running thread into the lane's request word. `finished_ns` is not 0 if the thread has
 * just finished a request. The last store is a full barrier: a summons reads the hold word next. */
static __always_inline void show_request(uint32_t cpu, struct request_thread *thread, uint64_t finished_ns,
					 uint64_t now_ns)
{
	struct sidelane_request_word *word = request_word(cpu);

	if (!word)
		return;
	uint64_t last_ns = word->stamp_ns;
	store_once(word->stamp_ns, 0);
	store_once(word->running, thread->running);
	store_once(word->arrived_ns, thread->arrived_ns);
	store_once(word->started_ns, thread->started_ns);
	store_once(word->waited, thread->waited);
	if (finished_ns) {
		store_once(word->finished_ns, finished_ns);
		store_once(word->finished, word->finished + 1);
	}
	uint64_t stamp_ns = now_ns > last_ns ? now_ns : last_ns + 1;
	if (settings.lanes)
		__sync_lock_test_and_set(&word->stamp_ns, stamp_ns);
	else
		store_once(word->stamp_ns, stamp_ns);
}

static __always_inline void works_on(struct request_thread *thread, uint64_t number, uint64_t arrived_ns,
				     uint64_t started_ns, bool waited)
{
	thread->running = number;
	thread->arrived_ns = arrived_ns;
	thread->started_ns = started_ns;
	thread->waited = waited;
	thread->more = 0;
}

/* Assigns a request that was handed over to a worker thread that is free, if there is such a request. */
static __always_inline void take_over(struct request_thread *thread, struct sidelane_request_account *account,
				      bool waited, uint64_t now_ns)
{
	if (load_once(account->handed) <= 0) {
		thread->running = 0;
		return;
	}
	thread->holds = 1;
	change_queue(account, 0, -1);
	/* A thread that slept during its request works on the same request, under the same number. */
	if (!thread->running)
		works_on(thread, new_number(account), now_ns, now_ns, waited);
}

/* Returns when a worker thread started the request that it answers now, which another thread received at
 * `received_ns`. The worker was free from its last response on, unless it slept then. Changes `batch_ns` to batch's
 * clock at that time. */
static __always_inline uint64_t request_start(struct request_thread *thread, uint64_t received_ns, uint64_t *batch_ns)
{
	uint64_t free_ns = received_ns;

	if (thread->finished_ns > received_ns) {
		free_ns = thread->finished_ns;
		*batch_ns = thread->batch_ns;
	}
	for (uint32_t i = 0; i < SLEEPS; i++) {
		struct sleep *sleep = &thread->sleeps[i];
		if (sleep->from_ns <= free_ns && free_ns < sleep->to_ns) {
			*batch_ns = sleep->batch_ns;
			return sleep->to_ns;
		}
	}
	return free_ns;
}

/* Handles a thread that sleeps for lack of work: it has answered all requests that it received together. */
static __always_inline void thread_rests(struct request_thread *thread, uint32_t tid)
{
	if (!thread->more)
		return;
	thread->running = 0;
	show_thread(thread, tid);
}

static __always_inline void thread_sleeps(struct task_struct *task, uint64_t now_ns)
{
	struct request_thread *thread = bpf_task_storage_get(&request_threads, task, 0, 0);
	struct sidelane_request_account *account = thread ? account_of(thread->service) : 0;

	if (!thread || !account)
		return;
	thread->asleep_ns = now_ns;
	note_sleep(thread, now_ns);
	thread_rests(thread, task->pid);
	if (thread->holds) {
		thread->holds = 0;
		change_queue(account, 0, 1);
	}
}

static __always_inline void thread_woke(struct request_thread *thread, uint32_t tid, uint32_t cpu, uint64_t now_ns)
{
	struct sidelane_request_account *account = account_of(thread->service);
	struct sleep *sleep = &thread->sleeps[thread->sleep_count++ & (SLEEPS - 1)];

	sleep->from_ns = thread->asleep_ns;
	sleep->to_ns = now_ns;
	sleep->batch_ns = partners_batch_ns(cpu, now_ns);
	thread->asleep_ns = 0;
	note_sleep(thread, 0);
	if (thread->takes_over && account) {
		take_over(thread, account, false, now_ns);
		show_thread(thread, tid);
	}
}

static __always_inline void thread_runs(struct task_struct *task, uint32_t cpu, uint64_t now_ns)
{
	struct request_thread *thread = bpf_task_storage_get(&request_threads, task, 0, 0);
	struct sidelane_request_word *word = request_word(cpu);

	if (thread && thread->asleep_ns)
		thread_woke(thread, task->pid, cpu, now_ns);
	if (!word || load_once(word->running) == (thread ? thread->running : 0))
		return;
	struct request_thread none = {};
	show_request(cpu, thread ? thread : &none, 0, now_ns);
}

/* Handles a context switch from or to a thread of the service, as far as requests are concerned. */
static __always_inline void request_switch(uint32_t cpu, struct task_struct *prev, uint32_t was, bool preempted,
					   struct task_struct *next, uint32_t is, uint64_t now_ns)
{
	if (was == SIDELANE_LC && !preempted)
		thread_sleeps(prev, now_ns);
	if (is == SIDELANE_LC)
		thread_runs(next, cpu, now_ns);
}

#endif
