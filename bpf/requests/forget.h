/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Removal of the request that is under way on a connection: it leaves its lane, and is forgotten.
 */
#ifndef SIDELANE_REQUEST_FORGET_H
#define SIDELANE_REQUEST_FORGET_H

#include "requests/open.h"
#include "requests/queue.h"

/* Removes a connection's request from the open requests of its lane. Returns whether it was one of them. */
static __always_inline bool uncount_on_lane(struct connection *conn)
{
	uint32_t on_lane = conn->on_lane;

	conn->on_lane = 0;
	return close_on_lane(conn->lane, on_lane, conn->number);
}

/* Resets the state of a connection that was not watched for a while, or has ended. */
static __always_inline void forget(struct connection *conn, struct sidelane_request_account *account)
{
	change_queue(account, -(int64_t)(conn->arrived - conn->taken), -(int64_t)conn->handed);
	uncount_on_lane(conn);
	conn->handed = conn->left = conn->sends = conn->number = conn->fresh = 0;
	conn->taken = conn->arrived;
}

#endif
