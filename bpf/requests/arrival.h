/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Arrival of requests, handled on the CPU that does the network's work, under the socket's lock.
 */
#ifndef SIDELANE_REQUEST_ARRIVAL_H
#define SIDELANE_REQUEST_ARRIVAL_H

#include "kernel/word.h"
#include "requests/forget.h"
#ifdef SIDELANE_TRACE
#include "trace/sockets.h"
#else
#include "trace/none.h"
#endif

static __always_inline bool is_services(uint32_t port)
{
	uint32_t index = port / 64;
	uint64_t *ports = bpf_map_lookup_elem(&service_ports, &index);

	return ports && load_once(*ports) >> (port % 64) & 1;
}

static __always_inline bool is_a_services_port(const struct sock *sock)
{
	return is_services(sock->__sk_common.skc_num);
}

/* Returns the number of the service that listens at this port in this network namespace; 0 for none. */
static __always_inline uint32_t service_in(uint32_t network, uint32_t port)
{
	struct sidelane_listener key = { .network = network, .port = port };
	uint32_t *service = bpf_map_lookup_elem(&listeners, &key);

	return service ? *service : 0;
}

/* Returns the number of the service that listens at the connection's port, in its network namespace; 0 for none. */
static __always_inline uint32_t service_at(const struct sock *sock)
{
	return service_in(sock->__sk_common.skc_net.net->ns.inum, sock->__sk_common.skc_num);
}

/* Returns whether a socket belongs to a service. Checks the namespace, too: other programs may listen at the same
 * port in other network namespaces. */
static __always_inline bool is_a_services(const struct sock *sock)
{
	return is_a_services_port(sock) && service_at(sock);
}

/* Returns the TCP socket of a socket; null if it is not a TCP socket. */
static __always_inline struct tcp_sock *tcp_of(const struct sock *sock)
{
	if (!bpf_ksym_exists(bpf_rdonly_cast))
		return bpf_skc_to_tcp_sock((void *)sock);
	return sock->sk_protocol == IPPROTO_TCP ? bpf_rdonly_cast(sock, bpf_core_type_id_kernel(struct tcp_sock)) : 0;
}

static __always_inline __u8 flags_of(struct tcp_skb_cb *control)
{
	__u8 flags = TCP_PUSH;

	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		struct tcp_skb_cb *read = bpf_rdonly_cast(control, bpf_core_type_id_kernel(struct tcp_skb_cb));
		return read->tcp_flags;
	}
	bpf_core_read(&flags, sizeof(flags), &control->tcp_flags);
	return flags;
}

/* Returns whether the newest segment ends a message, which the peer wrote at once. */
static __always_inline bool ends_message(const struct sock *sock)
{
	struct sk_buff *newest = sock->sk_receive_queue.prev;

	if ((void *)newest == (void *)sock + bpf_core_field_offset(struct sock, sk_receive_queue))
		return true;
	return flags_of((void *)newest + bpf_core_field_offset(struct sk_buff, cb)) & TCP_PUSH;
}

/* Returns when the newest segment arrived. TCP has read CLOCK_MONOTONIC before it looked at the segment; reading the
 * clock again would be the most expensive part of an arrival. */
static __always_inline uint64_t segment_came_ns(struct tcp_sock *tcp)
{
	return bpf_core_field_exists(tcp->tcp_clock_cache) ? tcp->tcp_clock_cache : bpf_ktime_get_ns();
}

static __always_inline void message_arrives(struct connection *conn, struct sidelane_request_account *account,
					    struct tcp_sock *tcp, uint64_t now_ns)
{
	uint32_t number = conn->arrived;

	if (load_once(conn->foreign))
		return;
	if (number == conn->room_until)
		conn->room_until = load_once(conn->taken) + MESSAGES;
	if (number == conn->room_until) {
		conn->messages[(number - 1) & (MESSAGES - 1)].end_seq = conn->seen_seq;
		conn->newest.end_seq = conn->seen_seq;
		return;
	}
	struct message message = {
		.arrived_ns = now_ns,
		.end_seq = conn->seen_seq,
		/* Only lanes need this field: the comparison reads a cache line that the service's threads write. */
		.answered = settings.lanes && tcp->write_seq != conn->write_seq,
		.queue_len = change_queue(account, 1, 0),
	};
	conn->messages[number & (MESSAGES - 1)] = message;
	publish(conn->arrived, number + 1);
	publish(conn->newest_number, number + 1);
	conn->newest = message;
	publish(conn->newest_number, number);
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(request_data, const struct sock *sock)
{
	if (!is_a_services_port(sock)) {
		trace_answer_arrives(sock);
		return 0;
	}
	struct tcp_sock *tcp = tcp_of(sock);
	uint32_t state = sock->__sk_common.skc_state;

	if (!tcp || (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT))
		return 0;
	struct connection *conn = bpf_sk_storage_get(&connections, (void *)sock, 0, 0);
	uint32_t service = conn && conn->service ? conn->service : service_at(sock);
	if (!conn && service)
		conn = bpf_sk_storage_get(&connections, (void *)sock, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!conn)
		return 0;
	conn->service = service;
	struct sidelane_request_account *account = conn->service ? account_of(conn->service) : 0;
	if (!account)
		return 0;
	/* The end of the peer's data (FIN) takes a sequence number, too, which is subtracted here. */
	uint32_t seq = tcp->rcv_nxt - (state == TCP_CLOSE_WAIT);
	uint32_t epoch = load_once(account->epoch);
	if (conn->known != epoch) {
		forget(conn, account);
		conn->known = epoch;
		/* The connection is fresh if none of its data has been received yet. */
		conn->fresh = tcp->bytes_received == tcp->rcv_nxt - tcp->copied_seq;
		conn->seen_seq = tcp->copied_seq;
		conn->write_seq = tcp->write_seq;
	}
	if ((int)(seq - conn->seen_seq) <= 0)
		return 0;
	uint32_t bytes = seq - conn->seen_seq;
	conn->seen_seq = seq;
	conn->data_ns = segment_came_ns(tcp);
	trace_data_ready(sock, seq, bytes, conn->data_ns);
	/* The client's end of the connection came with this data, before this program knew the connection. */
	if (state == TCP_CLOSE_WAIT && !conn->ended_by) {
		conn->ended_by = SIDELANE_TRACE_ENDED_BY_CLIENT;
		conn->ended_ns = conn->data_ns;
		trace_state(sock, conn, TCP_ESTABLISHED, state, false, conn->data_ns);
	}
	if (ends_message(sock))
		message_arrives(conn, account, tcp, conn->data_ns);
	return 0;
}

#endif
