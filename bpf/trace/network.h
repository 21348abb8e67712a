/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Incoming and outgoing TCP segments of a service's connections.
 */
#ifndef SIDELANE_TRACE_NETWORK_H
#define SIDELANE_TRACE_NETWORK_H

#include "requests/arrival.h"
#include "trace/sockets.h"

/* Protocol numbers of Ethernet and IP. */
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define IPV6_HEADER_BYTES 40

/* A TCP segment, as read from its headers. */
struct segment {
	uint32_t own_port; /* TCP port of the side that sends the segment */
	uint32_t peer_port;
	uint32_t bytes; /* number of data bytes in the segment */
	uint32_t end_seq;
};

static __always_inline void read_tcp(const void *header, uint32_t tcp_bytes, struct segment *segment)
{
	struct tcphdr *tcp = bpf_rdonly_cast(header, bpf_core_type_id_kernel(struct tcphdr));
	uint32_t header_bytes = BPF_CORE_READ_BITFIELD(tcp, doff) * 4;

	segment->own_port = bpf_ntohs(tcp->source);
	segment->peer_port = bpf_ntohs(tcp->dest);
	segment->bytes = tcp_bytes > header_bytes ? tcp_bytes - header_bytes : 0;
	segment->end_seq = bpf_ntohl(tcp->seq) + segment->bytes;
}

/* Reads the headers of a packet, from the network header on. The port stays 0 if the packet is not TCP. All headers lie
 * in one piece of memory. */
static __always_inline void read_segment(const struct sk_buff *skb, const void *header, struct segment *segment)
{
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = bpf_rdonly_cast(header, bpf_core_type_id_kernel(struct iphdr));
		uint32_t bytes = bpf_ntohs(ip->tot_len) ?: skb->len, own_bytes = BPF_CORE_READ_BITFIELD(ip, ihl) * 4;
		if (ip->protocol == IPPROTO_TCP)
			read_tcp(header + own_bytes, bytes - own_bytes, segment);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = bpf_rdonly_cast(header, bpf_core_type_id_kernel(struct ipv6hdr));
		uint32_t bytes = bpf_ntohs(ip->payload_len) ?: skb->len - IPV6_HEADER_BYTES;
		if (ip->nexthdr == IPPROTO_TCP)
			read_tcp(header + IPV6_HEADER_BYTES, bytes, segment);
	}
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(trace_segment, struct sk_buff *skb)
{
	struct segment segment = {};

	read_segment(skb, skb->data, &segment);
	if (!segment.bytes || !is_services(segment.peer_port) ||
	    !service_in(skb->dev->nd_net.net->ns.inum, segment.peer_port))
		return 0;
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);
	struct record record = {
		.at_ns = bpf_ktime_get_ns(),
		.type = SIDELANE_TRACE_SEGMENT,
		.detail = segment.end_seq,
		.value = segment.bytes,
	};
	if (state)
		tell(state, cpu, &record);
	return 0;
}

/* Records a segment of a socket. The socket may be the small one of a connection that is not yet established. */
static __always_inline void tell_of_segment(const struct sock *sock, uint32_t type, uint32_t detail, uint32_t value,
					    uint32_t holds, uint32_t unsent)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);
	bool by_thread = state && state->service && !is_interrupt(state);
	struct record record = {
		.at_ns = bpf_ktime_get_ns(),
		.type = type,
		.detail = detail,
		.socket = sock->__sk_common.skc_cookie.counter,
		.value = value,
		.other_tid = holds,
		.other_pid = unsent,
	};

	if (by_thread) {
		record.tid = state->tid;
		record.pid = state->pid;
		record.request = present_request(state, cpu);
	}
	if (state)
		tell(state, cpu, &record);
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(trace_transmit, const struct sk_buff *skb)
{
	struct sock *sock = skb->sk;
	struct segment segment = {};

	if (!sock || !is_a_services(sock))
		return 0;
	read_segment(skb, skb->head + skb->network_header, &segment);
	if (segment.bytes && segment.own_port == sock->__sk_common.skc_num)
		tell_of_segment(sock, SIDELANE_TRACE_TRANSMITTED, segment.end_seq, segment.bytes, 0, 0);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(trace_retransmit, const struct sock *sock, const struct sk_buff *skb)
{
	if (is_a_services(sock) || question_of(sock))
		tell_of_segment(sock, SIDELANE_TRACE_RETRANSMITTED, 0, skb->len, 0, 0);
	return 0;
}

/* Layout of TCP options in Linux and other systems: words of four bytes. A time stamp takes three such words. */
#define TCP_HEADER_BYTES 20
#define OPTION_TIMES 0x0101080au
#define OPTION_SACK 0x01010500u
#define OPTION_SACK_MASK 0xffffff00u

/* Returns whether the peer reports data that it received twice: a SACK block below the acknowledged sequence number. */
static __always_inline bool got_twice(const struct sk_buff *skb, uint32_t acknowledged)
{
	struct tcphdr *tcp = bpf_rdonly_cast(skb->data, bpf_core_type_id_kernel(struct tcphdr));
	uint32_t words[5] = {}, bytes = BPF_CORE_READ_BITFIELD(tcp, doff) * 4;

	if (bytes < TCP_HEADER_BYTES + 12)
		return false;
	bpf_probe_read_kernel(words, sizeof(words), skb->data + TCP_HEADER_BYTES);
	if (words[0] == bpf_htonl(OPTION_TIMES)) {
		if (bytes < TCP_HEADER_BYTES + 24)
			return false;
		words[0] = words[3];
		words[1] = words[4];
	}
	return (bpf_ntohl(words[0]) & OPTION_SACK_MASK) == OPTION_SACK && (int)(acknowledged - bpf_ntohl(words[1])) > 0;
}

static __always_inline struct tcp_skb_cb *control_of(const struct sk_buff *skb)
{
	void *control = (void *)skb + bpf_core_field_offset(struct sk_buff, cb);

	return bpf_rdonly_cast(control, bpf_core_type_id_kernel(struct tcp_skb_cb));
}

/* Records that the peer of an outgoing connection received a question (a request of the service to another service)
 * twice. So the data that was retransmitted had not been lost. */
static __always_inline void trace_question_got_twice(const struct sock *sock, const struct sk_buff *skb)
{
	struct tcp_sock *tcp = question_of(sock) ? tcp_of(sock) : 0;

	if (!tcp || !tcp->total_retrans)
		return;
	uint32_t acknowledged = control_of(skb)->ack_seq;
	if (got_twice(skb, acknowledged))
		tell_of_segment(sock, SIDELANE_TRACE_ACKNOWLEDGED, acknowledged, 0, SIDELANE_TRACE_HOLD_TWICE, 0);
}

/* Handles a segment from the peer, before TCP processes it. It matters in three cases. Data waits in the socket, and
 * the segment acknowledges more of it. Data waits because of the peer's window, which the segment may have opened.
 * Data was retransmitted: then the segment may show that it was not lost, even if all was acknowledged before. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(trace_acknowledge, struct sock *sock, const struct sk_buff *skb)
{
	if (!is_a_services(sock)) {
		trace_question_got_twice(sock, skb);
		return 0;
	}
	struct tcp_sock *tcp = tcp_of(sock);
	if (!tcp)
		return 0;
	bool waits = tcp->snd_nxt != tcp->write_seq || waits_for_room(tcp);
	if (!waits && !tcp->total_retrans)
		return 0;
	struct tcp_skb_cb *control = control_of(skb);
	bool twice = tcp->total_retrans && got_twice(skb, control->ack_seq);
	if (!waits && !twice)
		return 0;
	uint32_t holds = what_holds(sock, tcp, segment_came_ns(tcp)) | (twice ? SIDELANE_TRACE_HOLD_TWICE : 0);
	if ((int)(control->ack_seq - tcp->snd_una) > 0 || twice || holds & SIDELANE_TRACE_HOLD_WINDOW)
		tell_of_segment(sock, SIDELANE_TRACE_ACKNOWLEDGED, control->ack_seq, 0, holds, tcp->write_seq - tcp->snd_nxt);
	return 0;
}

#endif
