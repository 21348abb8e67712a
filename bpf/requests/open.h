/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Requests that are open on a lane: received there, and not answered. A request that arrives while others are open
 * has waited for them.
 *
 * A request may be open for minutes and make no other request wait: a long poll, a WebSocket, a proxy that waits for a
 * server. It stops counting as open in two cases: its thread has slept for PARKED_NS, or its thread had nothing to do
 * and then took up another request. If threads hand requests over, neither case shows: the thread that received a
 * request sleeps while another thread works on it.
 */
#ifndef SIDELANE_REQUEST_OPEN_H
#define SIDELANE_REQUEST_OPEN_H

#include "requests/state.h"

/* Sleep after which a request no longer counts as open on its lane. Most answers of a disk or another server take
 * less time: after a shorter sleep, the thread comes back to its lane soon. */
#define PARKED_NS 10000000

static __always_inline struct open_request *open_place(struct lane_load *load, uint32_t on_lane)
{
	return on_lane && on_lane <= LANE_OPEN ? &load->open[(on_lane - 1) & (LANE_OPEN - 1)] : 0;
}

/* Adds a request to the open requests of a lane. Returns its place plus 1; 0 for none. */
CHECKED_ALONE uint32_t open_on_lane(struct lane_load *load, uint64_t number)
{
	if (!load)
		return 0;
	for (uint32_t i = 0; i < LANE_OPEN; i++) {
		struct open_request *place = &load->open[i];
		if (__sync_val_compare_and_swap(&place->number, 0, number))
			continue;
		store_once(place->asleep_ns, 0);
		return i + 1;
	}
	__sync_fetch_and_add(&load->more, 1);
	return LANE_OPEN + 1;
}

/* Removes a request from the open requests of a lane. Returns whether it was still open there. Another CPU may have
 * removed it before, if the request's thread slept so long that no other request had to wait for it. */
static __always_inline bool close_on_lane(uint32_t cpu, uint32_t on_lane, uint64_t number)
{
	struct lane_load *load = on_lane ? lane_load(cpu) : 0;

	if (!load)
		return false;
	struct open_request *place = open_place(load, on_lane);
	if (place)
		return __sync_val_compare_and_swap(&place->number, number, 0) == number;
	__sync_fetch_and_add(&load->more, -1);
	return true;
}

/* Returns whether a request that starts on this lane has to wait for another request there. */
CHECKED_ALONE int is_kept_waiting(struct lane_load *load, struct sidelane_request_account *account, uint64_t now_ns)
{
	if (!load || !account)
		return 0;
	int waits = load_once(load->more) > 0;
	for (uint32_t i = 0; i < LANE_OPEN; i++) {
		struct open_request *place = &load->open[i];
		uint64_t number = load_once(place->number), asleep_ns = load_once(place->asleep_ns);
		if (!number)
			continue;
		if (!asleep_ns || now_ns < asleep_ns + PARKED_NS || load_once(account->hands_over))
			waits = 1;
		else if (__sync_val_compare_and_swap(&place->number, number, 0) == number)
			__sync_fetch_and_add(&account->parked, 1);
	}
	return waits;
}

/* Returns the entry of the thread's request among the open requests of its lane; null if the request is not open. */
static __always_inline struct open_request *own_place(struct request_thread *thread)
{
	struct lane_load *load = thread->running && thread->on_lane ? lane_load(thread->lane) : 0;
	struct open_request *place = load ? open_place(load, thread->on_lane) : 0;

	return place && load_once(place->number) == thread->running ? place : 0;
}

/* Records that the thread sleeps since `asleep_ns`, or has woken (0). */
static __always_inline void note_sleep(struct request_thread *thread, uint64_t asleep_ns)
{
	struct open_request *place = own_place(thread);

	if (place)
		store_once(place->asleep_ns, asleep_ns);
}

/* Closes the thread's request when the thread is about to start another one, which arrived at `arrived_ns`. Returns
 * whether the new request had to wait for the old request. The new request did not wait if the thread has slept since,
 * and the arrival woke the thread. */
static __always_inline bool leave_open(struct request_thread *thread, struct sidelane_request_account *account,
				       uint64_t arrived_ns)
{
	struct open_request *place = own_place(thread);
	uint64_t slept_ns = thread->sleeps[(thread->sleep_count - 1) & (SLEEPS - 1)].from_ns;

	if (!place || load_once(account->hands_over))
		return false;
	bool in_the_way = slept_ns < thread->started_ns || arrived_ns < slept_ns;
	if (__sync_val_compare_and_swap(&place->number, thread->running, 0) == thread->running && !in_the_way)
		__sync_fetch_and_add(&account->parked, 1);
	return in_the_way;
}

#endif
