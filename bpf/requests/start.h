/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Start of a request: a thread of the service receives it.
 */
#ifndef SIDELANE_REQUEST_START_H
#define SIDELANE_REQUEST_START_H

#include "requests/arrival.h"
#include "requests/counters.h"
#include "requests/open.h"
#include "requests/thread.h"
#include "who.h"

/* Messages that one receive call took from a socket. */
struct taken {
	struct message first; /* oldest message of the call */
	uint64_t last_arrived_ns;
	uint32_t whole;
};

/* Returns the oldest message of a connection that no thread has received. It is mostly the newest message, too, of
 * which there is a copy. Then of all that the CPU writes on which data arrives, only one cache line is read. */
static __always_inline struct message next_message(struct connection *conn)
{
	struct message message = {};

	if (load_once(conn->newest_number) == conn->taken) {
		message = conn->newest;
		barrier();
		if (load_once(conn->newest_number) == conn->taken)
			return message;
	}
	return conn->messages[conn->taken & (MESSAGES - 1)];
}

static __always_inline void take_messages(struct connection *conn, struct tcp_sock *tcp, struct taken *taken)
{
	uint32_t copied_seq = tcp->copied_seq;

	taken->first.arrived_ns = taken->last_arrived_ns = conn->data_ns;
	taken->first.queue_len = 1;
	for (uint32_t i = 0; i < MESSAGES; i++) {
		if (conn->taken == load_once(conn->arrived))
			break;
		struct message message = next_message(conn);
		if ((int)(message.end_seq - copied_seq) > 0)
			break;
		if (!taken->whole)
			taken->first = message;
		taken->last_arrived_ns = message.arrived_ns;
		taken->whole++;
		store_once(conn->taken, conn->taken + 1);
	}
	conn->write_seq = tcp->write_seq;
}

/* Returns whether a message, with which a request starts now, arrived before an earlier request on this lane had
 * finished. */
static __always_inline bool has_waited(struct connection *conn, struct message *message, struct request_thread *thread,
				       struct sidelane_request_account *account, struct lane_load *load, uint32_t cpu,
				       uint64_t now_ns)
{
	struct sidelane_request_word *word = load ? request_word(cpu) : 0;

	if (!word)
		return false;
	bool behind_own = leave_open(thread, account, message->arrived_ns);
	if (is_kept_waiting(load, account, now_ns) || behind_own)
		return true;
	bool own_predecessor = message->answered && load->finished_number == conn->number;
	return word->finished_ns > message->arrived_ns && !own_predecessor;
}

static __always_inline void count_on_lane(struct connection *conn, struct request_thread *thread,
					  struct lane_load *load, uint32_t cpu)
{
	if (!load)
		return;
	conn->on_lane = thread->on_lane = open_on_lane(load, conn->number);
	thread->lane = cpu;
}

/* Sets the times of a connection's present request: when its data arrived, and when `cpu` received it. */
static __always_inline void begin_at(struct connection *conn, uint64_t arrived_ns, uint32_t cpu, uint64_t now_ns)
{
	conn->arrived_ns = arrived_ns;
	conn->started_ns = now_ns;
	conn->lane = cpu;
	conn->batch_ns = partners_batch_ns(cpu, now_ns);
	begin_counting(&conn->counts, cpu);
}

/* Counts a request that consists of several messages, or to which several responses will follow. Parts of one
 * request and several requests look the same. */
static __always_inline void note_messages(struct connection *conn, uint32_t whole,
					  struct sidelane_request_account *account)
{
	bool was_one = conn->whole < 2;

	conn->whole += whole;
	if (was_one && conn->whole > 1)
		__sync_fetch_and_add(&account->joined, 1);
}

/* Counts connections that had a second request. The first exchange of client and service, as for TLS, looks like a
 * request, too; a connection with one request had no such exchange. */
static __always_inline void note_second_request(struct connection *conn, struct sidelane_request_account *account)
{
	if (!conn->fresh || !conn->first_number)
		return;
	conn->fresh = 0;
	__sync_fetch_and_add(&account->began, 1);
}

static __always_inline void begin_request(struct connection *conn, struct taken *taken, struct request_thread *thread,
					  struct sidelane_request_account *account, struct lane_load *load,
					  uint32_t cpu, uint64_t now_ns)
{
	conn->waited = has_waited(conn, &taken->first, thread, account, load, cpu, now_ns);
	conn->queue_len = taken->first.queue_len;
	conn->number = new_number(account);
	note_second_request(conn, account);
	if (!conn->first_number)
		conn->first_number = conn->number;
	conn->left = taken->whole ?: 1;
	conn->sends = conn->whole = 0;
	note_messages(conn, taken->whole, account);
	conn->handed = thread->hands_over;
	begin_at(conn, taken->first.arrived_ns, cpu, now_ns);
	if (!conn->handed)
		count_on_lane(conn, thread, load, cpu);
}

/* Handles more data of a request that has not been answered; this may be its end. */
static __always_inline void continue_request(struct connection *conn, struct taken *taken,
					     struct request_thread *thread, struct sidelane_request_account *account,
					     struct lane_load *load, uint32_t cpu, uint64_t now_ns)
{
	if (taken->whole)
		conn->left += taken->whole - 1;
	note_messages(conn, taken->whole, account);
	if (taken->last_arrived_ns <= conn->started_ns)
		return;
	bool counted = uncount_on_lane(conn);
	begin_at(conn, taken->last_arrived_ns, cpu, now_ns);
	if (counted)
		count_on_lane(conn, thread, load, cpu);
}

/* Excludes a connection whose receiver does not belong to the service: the receiver listens at the same port beside the
 * service, or at another address. No request of the service waits for this connection's data. A receiver that is not
 * known yet may become known. */
static __always_inline void disown(struct connection *conn)
{
	struct sidelane_request_account *account = conn->service ? account_of(conn->service) : 0;

	if (!account)
		return;
	forget(conn, account);
	store_once(conn->foreign, 1);
}

static __always_inline bool is_open(struct connection *conn)
{
	return conn->number && !conn->sends;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(request_received, struct sock *sock, int length, int flags)
{
	if (length <= 0 || flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	if (!is_a_services_port(sock)) {
		trace_elsewhere(sock, SIDELANE_TRACE_RECEIVED, length);
		return 0;
	}
	struct task_struct *task = bpf_get_current_task_btf();
	struct tcp_sock *tcp = tcp_of(sock);
	uint32_t identity = identity_of(task->tgid), service = number_of(identity);
	struct connection *conn = tcp ? bpf_sk_storage_get(&connections, sock, 0, 0) : 0;
	if (!conn)
		return 0;
	if (class_of(identity) != SIDELANE_LC || conn->service != service) {
		disown(conn);
		return 0;
	}
	if (load_once(conn->foreign))
		store_once(conn->foreign, 0);
	struct request_thread *thread = bpf_task_storage_get(&request_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct sidelane_request_account *account = account_of(service);
	if (!thread || !account)
		return 0;
	thread->service = service;

	uint32_t cpu = bpf_get_smp_processor_id(), tid = task->pid;
	uint64_t now_ns = bpf_ktime_get_ns();
	struct taken taken = {};
	take_messages(conn, tcp, &taken);
	struct lane_load *load = settings.lanes ? lane_load(cpu) : 0;
	bool begins = !is_open(conn);
	if (begins && conn->number && conn->receiver == tid)
		thread->hands_over = conn->by_other;
	if (begins)
		begin_request(conn, &taken, thread, account, load, cpu, now_ns);
	else
		continue_request(conn, &taken, thread, account, load, cpu, now_ns);
	conn->receiver = tid;
	conn->by_other = 0;
	if (taken.whole || (begins && conn->handed))
		change_queue(account, -(int64_t)taken.whole, begins && conn->handed);

	if (conn->handed)
		thread->running = 0;
	else
		works_on(thread, conn->number, conn->arrived_ns, conn->started_ns, conn->waited);
	show_request(cpu, thread, 0, now_ns);
	show_thread(thread, tid);
	trace_received(sock, tcp, conn, length, cpu, now_ns);
	if (begins && conn->waited && !conn->handed)
		request_that_waited_starts(cpu);
	return 0;
}

#endif
