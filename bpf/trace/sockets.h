/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Records that request tracking writes for a trace, at the places where it sees a service's sockets and requests.
 */
#ifndef SIDELANE_TRACE_SOCKETS_H
#define SIDELANE_TRACE_SOCKETS_H

#include <bpf/bpf_endian.h>
#include "trace/lost.h"
#include "trace/objects.h"

static __always_inline uint64_t cookie_of(const struct sock *sock)
{
	uint64_t cookie = sock->__sk_common.skc_cookie.counter;

	return cookie ?: bpf_get_socket_cookie((void *)sock);
}

/* Socket on which a thread of a service has sent a question to another service. */
struct question {
	uint64_t arrived_ns; /* when data last arrived on the socket; 0 before that */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct question);
} questions SEC(".maps");

/* Returns the question of a socket; null if there is none. Nearly all sockets have no memory of a BPF program; one
 * load shows that. */
static __always_inline struct question *question_of(const struct sock *sock)
{
	return sock->sk_bpf_storage ? bpf_sk_storage_get(&questions, (void *)sock, 0, 0) : 0;
}

/* Stores the arrival time of data on a socket that is not at a service's port. The record of the receive has this
 * time. */
static __always_inline void trace_answer_arrives(const struct sock *sock)
{
	struct question *question = question_of(sock);

	if (question)
		store_once(question->arrived_ns, bpf_ktime_get_ns());
}

/* Records the arrival of data at a service's port. The arrival counts as work of the interrupt, not of the thread that
 * it stopped. */
static __always_inline void trace_data_ready(const struct sock *sock, uint32_t end_seq, uint32_t bytes, uint64_t at_ns)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);
	struct record record = {
		.at_ns = at_ns,
		.type = SIDELANE_TRACE_DATA_READY,
		.detail = end_seq,
		.socket = cookie_of(sock),
		.value = bytes,
	};

	if (!state)
		return;
	if (!is_interrupt(state)) {
		record.tid = state->tid;
		record.pid = state->pid;
	}
	tell(state, cpu, &record);
}

static __always_inline struct record of_socket(struct sidelane_trace_cpu *state, const struct sock *sock, uint32_t type,
					     uint32_t seq, int bytes, uint64_t request, uint64_t now_ns)
{
	return (struct record){
		.at_ns = now_ns,
		.type = type,
		.detail = seq,
		.tid = state->tid,
		.pid = state->pid,
		.socket = cookie_of(sock),
		.request = request,
		.value = bytes,
	};
}

static __always_inline struct record of_request(struct sidelane_trace_cpu *state, struct connection *conn, uint32_t type,
					      uint32_t detail, uint64_t value, uint64_t at_ns)
{
	return (struct record){
		.at_ns = at_ns,
		.type = type,
		.detail = detail,
		.tid = state->tid,
		.pid = state->pid,
		.socket = conn->cookie,
		.request = conn->number,
		.value = value,
	};
}

static __always_inline struct record of_start(struct sidelane_trace_cpu *state, struct connection *conn)
{
	return of_request(state, conn, SIDELANE_TRACE_REQUEST_STARTED, conn->peer_port, conn->arrived_ns,
			  conn->started_ns);
}

/* Records a request that starts on this CPU, or whose start there is known only now. */
static __always_inline void trace_started(struct connection *conn, uint32_t cpu)
{
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (!state)
		return;
	struct record start = of_start(state, conn);
	tell(state, cpu, &start);
}

/* Handles the running thread if its arrival on this CPU was not seen. The thread ran already when its process joined
 * the service, or came in a switch that the kernel hides. */
static __always_inline void know_present(struct sidelane_trace_cpu *state, uint32_t service)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (state->service && state->tid == (uint32_t)task->pid)
		return;
	see_thread(task);
	state->tid = task->pid;
	state->pid = task->tgid;
	state->follow = FOLLOWED_WAKES;
	state->service = service;
}

/* Records data that the thread received. If a request, or more of one, starts with the data, records that, too. */
static __always_inline void trace_received(const struct sock *sock, struct tcp_sock *tcp, struct connection *conn,
					  int bytes, uint32_t cpu, uint64_t now_ns)
{
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (!state)
		return;
	know_present(state, conn->service);
	conn->cookie = cookie_of(sock);
	conn->peer_port = bpf_ntohs(sock->__sk_common.skc_dport);
	struct record received =
		of_socket(state, sock, SIDELANE_TRACE_RECEIVED, tcp->copied_seq, bytes, conn->number, now_ns);
	if (conn->handed || conn->started_ns != now_ns) {
		tell(state, cpu, &received);
		return;
	}
	struct record start = of_start(state, conn);
	tell_both(state, cpu, &received, &start);
}

/* Stores the process identity of a service's thread, of which an event is about to be recorded. */
static __always_inline void trace_present(struct connection *conn, uint32_t cpu)
{
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (state)
		know_present(state, conn->service);
}

/* Constants of the kernel's TCP: enum tcp_chrono, the bits of nonagle, enum sk_pacing. */
#define CHRONO_SNDBUF_LIMITED 3
#define NAGLE_OFF 1
#define NAGLE_CORK 2
#define PACING_NEEDED 1

/* Returns whether the sender waits for room in the send buffer, though all data in it was sent. */
static __always_inline bool waits_for_room(struct tcp_sock *tcp)
{
	return BPF_CORE_READ_BITFIELD(tcp, chrono_type) == CHRONO_SNDBUF_LIMITED;
}

/* Returns what holds back data in the socket's send buffer: bits of enum sidelane_trace_hold. */
static __always_inline uint32_t what_holds(const struct sock *sock, struct tcp_sock *tcp, uint64_t now_ns)
{
	uint32_t unsent = tcp->write_seq - tcp->snd_nxt, mss = tcp->mss_cache, nonagle = BPF_CORE_READ_BITFIELD(tcp, nonagle);
	uint32_t in_flight = tcp->packets_out + tcp->retrans_out - tcp->sacked_out - tcp->lost_out;
	int window = tcp->snd_una + tcp->snd_wnd - tcp->snd_nxt;
	uint32_t holds = 0;

	if (window < (int)(unsent < mss ? unsent : mss))
		holds |= SIDELANE_TRACE_HOLD_WINDOW;
	if (in_flight >= tcp->snd_cwnd)
		holds |= SIDELANE_TRACE_HOLD_CONGESTION;
	if (unsent < mss)
		holds |= SIDELANE_TRACE_HOLD_SMALL;
	if (nonagle & NAGLE_OFF)
		holds |= SIDELANE_TRACE_HOLD_NODELAY;
	if (nonagle & NAGLE_CORK)
		holds |= SIDELANE_TRACE_HOLD_CORK;
	if (tcp->packets_out)
		holds |= SIDELANE_TRACE_HOLD_IN_FLIGHT;
	if (sock->sk_pacing_status == PACING_NEEDED && tcp->tcp_wstamp_ns > now_ns)
		holds |= SIDELANE_TRACE_HOLD_PACED;
	if (tcp->retrans_out || tcp->lost_out)
		holds |= SIDELANE_TRACE_HOLD_LOSS;
	if (!unsent && waits_for_room(tcp))
		holds |= SIDELANE_TRACE_HOLD_ROOM;
	return holds;
}

/* Records that a response, or a further part of one, was sent: the request has finished, so far. */
static __always_inline void trace_answered(const struct sock *sock, struct tcp_sock *tcp, struct connection *conn,
					  int bytes, uint32_t cpu, uint64_t now_ns)
{
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (!state)
		return;
	tell_of_overlap(state, cpu, conn->number, now_ns);
	struct record sent = of_socket(state, sock, SIDELANE_TRACE_SENT, tcp->write_seq, bytes, conn->number, now_ns);
	sent.other_tid = SIDELANE_TRACE_HOLD_KNOWN;
	if (tcp->write_seq != tcp->snd_nxt) {
		sent.other_tid |= what_holds(sock, tcp, now_ns);
		sent.other_pid = tcp->write_seq - tcp->snd_nxt;
	}
	struct record finished =
		of_request(state, conn, SIDELANE_TRACE_REQUEST_FINISHED, conn->sends, conn->started_ns, now_ns);
	tell_both(state, cpu, &sent, &finished);
}

/* Records that a thread of a service uses a socket that is not at the service's own port. The thread sends questions to
 * other services, or receives requests by other means than TCP. */
static __always_inline void trace_elsewhere(const struct sock *sock, uint32_t type, int bytes)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (!state || !state->service || is_interrupt(state))
		return;
	struct record record =
		of_socket(state, sock, type, 0, bytes, present_request(state, cpu), bpf_ktime_get_ns());
	if (type == SIDELANE_TRACE_SENT) {
		put_peer(&record, sock);
		bpf_sk_storage_get(&questions, (void *)sock, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	} else {
		struct question *question = question_of(sock);
		uint64_t arrived_ns = question ? load_once(question->arrived_ns) : 0;
		record.other_tid = arrived_ns;
		record.other_pid = arrived_ns >> 32;
	}
	tell(state, cpu, &record);
}

/* Records that a thread of a service begins to connect to another service. */
static __always_inline void trace_connects(const struct sock *sock)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);

	if (!state || !state->service || is_interrupt(state))
		return;
	struct record record = of_socket(state, sock, SIDELANE_TRACE_CONNECTS, 0, 0, present_request(state, cpu),
				     bpf_ktime_get_ns());
	put_peer(&record, sock);
	tell(state, cpu, &record);
}

/* Records that a connection to the service ends, or one side of it. */
static __always_inline void trace_state(const struct sock *sock, struct connection *conn, int old, int new, bool in_vain,
				       uint64_t now_ns)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);
	struct record record = {
		.at_ns = now_ns,
		.type = SIDELANE_TRACE_SOCKET_STATE,
		.detail = (uint32_t)old << 16 | (uint32_t)new,
		.socket = cookie_of(sock),
		.request = conn->number,
		.value = conn->ended_by | (in_vain ? SIDELANE_TRACE_IN_VAIN : 0),
	};

	if (state)
		tell(state, cpu, &record);
}

#endif
