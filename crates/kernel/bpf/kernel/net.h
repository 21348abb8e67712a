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

/* Part of the interface to user space (tcp_states.h, socket.h), so the same everywhere. */
#define TCP_ESTABLISHED 1
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_PUSH 0x08
#define IPPROTO_TCP 6
#define MSG_PEEK 0x2
#define MSG_ERRQUEUE 0x2000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sk_buff {
	char cb[48];
};

struct sk_buff_head {
	struct sk_buff *prev;
};

struct tcp_skb_cb {
	__u8 tcp_flags;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	possible_net_t skc_net;
	__u16 skc_num;
	volatile unsigned char skc_state;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_protocol;
};

struct tcp_sock {
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 write_seq;
	__u64 tcp_clock_cache;
};

#pragma clang attribute pop

#endif
