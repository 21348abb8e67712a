/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Requests of an unmodified TCP service, from the tracepoints of its sockets. The programs are loaded only if
 * requests are tracked.
 *
 * Request tracking knows no protocol. These rules define what counts as a request:
 *
 *  - Data that arrives makes up messages: what the peer pushed as a whole.
 *  - A receive after a send takes up a request, and the first send after it finishes it. More
 *    receives before that send are parts of the same request: it arrives with the last of its
 *    data and starts with the first receive after that. More sends are parts of its response:
 *    it finishes with the last of them.
 *  - A receive that takes k messages at once takes up as many requests as sends follow it, k at
 *    most; each but the first starts when the one before it finishes. So requests that came
 *    together and were answered together count as one, and a response in parts never as two,
 *    unless its request came in as many parts and was received at once.
 *
 * A connection on which the service reads ahead, receiving the next request before it has answered the last, looks
 * like one whose requests come in parts. Such a service has to emit its requests (runtime/c/sidelane.h).
 *
 * A send returns after the response has left: the peer's next request may arrive before this program sees the end of
 * the last one. Such a request is marked `answered`, so that it does not seem to have waited for its own
 * predecessor.
 */
#ifndef SIDELANE_REQUESTS_H
#define SIDELANE_REQUESTS_H

#include "requests/arrival.h"
#include "requests/finish.h"
#include "requests/start.h"
#include "requests/turn.h"

#endif
