/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Stubs for the program without a trace: request tracking writes no trace records.
 */
#ifndef SIDELANE_NO_TRACE_H
#define SIDELANE_NO_TRACE_H

#include "abi/trace.h"
#include "requests/state.h"

static __always_inline void trace_data_ready(const struct sock *sock, uint32_t end_seq, uint32_t bytes, uint64_t at_ns)
{
}

static __always_inline void trace_received(const struct sock *sock, struct tcp_sock *tcp, struct connection *conn,
					  int bytes, uint32_t cpu, uint64_t now_ns)
{
}

static __always_inline void trace_present(struct connection *conn, uint32_t cpu) {}

static __always_inline void trace_answered(const struct sock *sock, struct tcp_sock *tcp, struct connection *conn,
					  int bytes, uint32_t cpu, uint64_t now_ns)
{
}

static __always_inline void trace_answer_arrives(const struct sock *sock) {}

static __always_inline void trace_elsewhere(const struct sock *sock, uint32_t type, int bytes) {}

static __always_inline void trace_connects(const struct sock *sock) {}

static __always_inline void trace_started(struct connection *conn, uint32_t cpu) {}

static __always_inline void trace_state(const struct sock *sock, struct connection *conn, int old, int new, bool in_vain,
				       uint64_t now_ns)
{
}

#endif
