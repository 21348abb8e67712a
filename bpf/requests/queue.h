/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Length of a service's queue: requests that have arrived and that no thread has started.
 */
#ifndef SIDELANE_REQUEST_QUEUE_H
#define SIDELANE_REQUEST_QUEUE_H

#include "requests/state.h"

static __always_inline uint32_t queue_len(struct sidelane_request_account *account)
{
	int64_t queued = load_once(account->queued), handed = load_once(account->handed);

	return (queued > 0 ? queued : 0) + (handed > 0 ? handed : 0);
}

/* Writes the length of a service's request queue into the service word. Two CPUs may write in either order, so each CPU
 * repeats the write if the sum has changed since. */
static __always_inline uint32_t publish_queue_len(struct sidelane_request_account *account)
{
	uint32_t len = queue_len(account);
	struct sidelane_service_word *service = service_word(account->service);

	if (!service)
		return len;
	__sync_lock_test_and_set(&service->queue_len, len);
	if (queue_len(account) != len)
		__sync_lock_test_and_set(&service->queue_len, queue_len(account));
	return len;
}

/* Adds `change` to the length of a service's request queue, and returns the new length. For a trace without lanes, only
 * requests that are handed over to another thread count. */
static __always_inline uint32_t change_queue(struct sidelane_request_account *account, int64_t queued, int64_t handed)
{
	if (!settings.lanes && !handed)
		return 0;
	if (queued)
		__sync_fetch_and_add(&account->queued, queued);
	if (handed)
		__sync_fetch_and_add(&account->handed, handed);
	return publish_queue_len(account);
}

#endif
