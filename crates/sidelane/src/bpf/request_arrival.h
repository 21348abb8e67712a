/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Requests arrive: on whichever CPU the network's work is done, under the socket's lock.
 */
#ifndef SIDELANE_REQUEST_ARRIVAL_H
#define SIDELANE_REQUEST_ARRIVAL_H

#include "request_queue.h"

static __always_inline bool is_service_port(const struct sock *sock)
{
	uint32_t port = sock->__sk_common.skc_num, index = port / 64;
	uint64_t *ports = bpf_map_lookup_elem(&service_ports, &index);

	return ports && load_once(*ports) >> (port % 64) & 1;
}

/* Whether the newest segment ends what the peer wrote. */
static __always_inline bool ends_message(const struct sock *sock)
{
	struct sk_buff *newest = BPF_CORE_READ(sock, sk_receive_queue.prev);
	struct tcp_skb_cb *control = (void *)newest + bpf_core_field_offset(struct sk_buff, cb);
	__u8 flags = TCP_PUSH;

	if ((void *)newest != (void *)sock + bpf_core_field_offset(struct sock, sk_receive_queue))
		bpf_core_read(&flags, sizeof(flags), &control->tcp_flags);
	return flags & TCP_PUSH;
}

static __always_inline void message_arrives(struct connection *conn, struct tcp_sock *tcp, uint64_t now_ns)
{
	struct sidelane_request_books *books = all_requests();
	bool room = conn->arrived - load_once(conn->taken) < MESSAGES;
	struct message *message = &conn->messages[(room ? conn->arrived : conn->arrived - 1) & (MESSAGES - 1)];

	if (!books)
		return;
	message->end_seq = conn->seen_seq;
	if (!room)
		return;
	message->arrived_ns = now_ns;
	message->answered = tcp->write_seq != conn->write_seq;
	message->queue_len = change_queue(books, 1, 0);
	store_once(conn->arrived, conn->arrived + 1);
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(request_data, const struct sock *sock)
{
	if (!is_service_port(sock))
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock((void *)sock);
	uint32_t state = sock->__sk_common.skc_state;

	if (!tcp || (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT))
		return 0;
	struct connection *conn = bpf_sk_storage_get(&connections, (void *)sock, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!conn)
		return 0;
	/* The end of the peer's data takes a number of its own. */
	uint32_t seq = tcp->rcv_nxt - (state == TCP_CLOSE_WAIT);
	if (!conn->known) {
		conn->known = 1;
		conn->seen_seq = tcp->copied_seq;
		conn->write_seq = tcp->write_seq;
	}
	if ((int)(seq - conn->seen_seq) <= 0)
		return 0;
	conn->seen_seq = seq;
	conn->data_ns = bpf_ktime_get_ns();
	if (ends_message(sock))
		message_arrives(conn, tcp, conn->data_ns);
	return 0;
}

#endif
