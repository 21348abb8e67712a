/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The few kernel types of sockets that requests/requests.h reads; see kernel.h.
 */
#ifndef SIDELANE_KERNEL_NET_H
#define SIDELANE_KERNEL_NET_H

#include "kernel/types.h"

enum {
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1 << 0,
	BPF_RB_NO_WAKEUP = 1 << 0,
};

/* Constants of the interface to user space (tcp_states.h, socket.h), the same in all kernels. */
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_PUSH 0x08
#define IPPROTO_TCP 6
#define SEND_SHUTDOWN 2
#define EPIPE 32
#define ECONNRESET 104
#define MSG_PEEK 0x2
#define MSG_ERRQUEUE 0x2000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock;

struct net_device;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	char cb[48];
	unsigned int len;
	__be16 protocol;
	__u16 transport_header;
	__u16 network_header;
	unsigned char *head;
	unsigned char *data;
};

struct sk_buff_head {
	struct sk_buff *prev;
};

struct tcp_skb_cb {
	__u8 tcp_flags;
	__u32 ack_seq;
};

struct iphdr {
	__u8 ihl : 4;
	__be16 tot_len;
	__u8 protocol;
};

struct ipv6hdr {
	__be16 payload_len;
	__u8 nexthdr;
};

struct tcphdr {
	__be16 source;
	__be16 dest;
	__be32 seq;
	__be32 ack_seq;
	__u16 doff : 4;
};

typedef struct {
	__s64 counter;
} atomic64_t;

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	possible_net_t nd_net;
};

struct sock_common {
	possible_net_t skc_net;
	__u16 skc_num;
	__be16 skc_dport;
	__u16 skc_family;
	atomic64_t skc_cookie;
	volatile unsigned char skc_state;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_protocol;
	int sk_err;
	__u8 sk_shutdown;
	__u32 sk_pacing_status;
	void *sk_bpf_storage;
};

struct tcp_sock {
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 write_seq;
	__u32 retrans_out;
	__u32 total_retrans;
	__u32 lost_out;
	__u32 sacked_out;
	__u32 packets_out;
	__u32 snd_wnd;
	__u32 snd_cwnd;
	__u32 mss_cache;
	__u8 chrono_type : 2;
	__u8 nonagle : 4;
	__u64 tcp_wstamp_ns;
	__u64 tcp_clock_cache;
	__u64 bytes_received;
};

#pragma clang attribute pop

#endif
