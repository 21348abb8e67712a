/* SPDX-License-Identifier: GPL-2.0-only
 *
 * End of a request: a thread of the service answers it, or its connection ends.
 */
#ifndef SIDELANE_REQUEST_FINISH_H
#define SIDELANE_REQUEST_FINISH_H

#include "requests/start.h"

/* Returns the time that batch ran beside a request that finishes now. Batch's own account of its naps may be wrong, so
 * the result is at least 0, and at most the request's time on all partner lanes. `batch_ns` is batch's clock beside
 * this CPU. */
static __always_inline uint64_t co_run_ns(struct connection *conn, uint32_t cpu, uint64_t batch_ns, uint64_t now_ns)
{
	uint64_t until_ns = conn->lane == cpu ? batch_ns : partners_batch_ns(conn->lane, now_ns);
	int64_t ran_ns = until_ns - conn->batch_ns;

	if (ran_ns <= 0)
		return 0;
	if (!settings.self_checking)
		return ran_ns;
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &conn->lane);
	uint64_t most_ns = role ? role->partner_count * (now_ns - conn->started_ns) : 0;
	return (uint64_t)ran_ns < most_ns ? (uint64_t)ran_ns : most_ns;
}

/* Response, or a further part of one, that a thread has just sent. */
struct response {
	struct sock *sock;
	struct tcp_sock *tcp;
	struct task_struct *task;
	int bytes;
	uint32_t cpu;
	uint64_t now_ns;
};

static __always_inline void write_record(struct connection *conn, struct sidelane_request_account *account,
					 const struct response *response, uint64_t batch_ns)
{
	uint32_t cpu = response->cpu;
	uint32_t service = conn->service;
	void *ring = bpf_map_lookup_elem(&record_rings, &service);

	trace_answered(response->sock, response->tcp, conn, response->bytes, cpu, response->now_ns);
	/* User space wants no records of this service. */
	if (!ring)
		return;
	struct sidelane_request_record *record = bpf_ringbuf_reserve(ring, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&account->dropped, 1);
		return;
	}
	*record = (struct sidelane_request_record){
		.number = conn->number,
		.connection = conn->first_number,
		.arrived_ns = conn->arrived_ns,
		.started_ns = conn->started_ns,
		.finished_ns = response->now_ns,
		.co_run_ns = co_run_ns(conn, cpu, batch_ns, response->now_ns),
		.tid = response->task->pid,
		.lane = cpu,
		.queue_len = conn->queue_len,
		.sends = conn->sends,
		.waited = conn->waited,
	};
	end_counting(&conn->counts, conn->lane, cpu, record);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* Finds out when a request was started that one thread has received and another thread, the running one, answers. */
static __always_inline void find_start(struct connection *conn, struct request_thread *thread,
				       struct sidelane_request_account *account, uint32_t cpu)
{
	uint64_t received_ns = conn->started_ns;

	if (!load_once(account->hands_over)) {
		store_once(account->hands_over, 1);
		store_once(requests_are_handed_over, 1);
		store_once(switches_tell, 1);
	}
	thread->takes_over = 1;
	conn->by_other = 1;
	/* The request's start and lane are known only now, so the lane's counters were not read at its start. */
	conn->counts.known = 0;
	uncount_on_lane(conn);
	conn->started_ns = request_start(thread, received_ns, &conn->batch_ns);
	if (conn->started_ns != received_ns)
		conn->lane = cpu;
	else
		/* The worker was free before the request was received, so it started then. One nanosecond is added,
		 * because a trace orders the receipt and the start by their times. */
		conn->started_ns++;
}

/* Starts the next of several requests that were received together. */
static __always_inline void begin_next(struct connection *conn, struct request_thread *thread,
				       struct sidelane_request_account *account, uint32_t tid, uint32_t cpu, uint64_t now_ns)
{
	struct message *message = &conn->messages[(conn->taken - conn->left) & (MESSAGES - 1)];

	conn->number = new_number(account);
	conn->receiver = tid;
	conn->waited = 1;
	conn->queue_len = message->queue_len;
	begin_at(conn, message->arrived_ns, cpu, now_ns);
	works_on(thread, conn->number, conn->arrived_ns, now_ns, true);
	trace_started(conn, cpu);
	thread->more = 1;
	if (!load_once(switches_tell))
		store_once(switches_tell, 1);
}

static __always_inline void leave_request(struct connection *conn, struct request_thread *thread,
					  struct sidelane_request_account *account)
{
	uncount_on_lane(conn);
	if (thread->holds || thread->running == conn->number)
		thread->running = 0;
	if (!conn->handed)
		return;
	if (thread->holds)
		thread->holds = 0;
	else
		change_queue(account, 0, -1);
	conn->handed = 0;
}

static __always_inline void finish_request(struct connection *conn, struct request_thread *thread,
					   struct sidelane_request_account *account, const struct response *response)
{
	struct task_struct *task = response->task;
	uint32_t cpu = response->cpu;
	uint64_t now_ns = response->now_ns;
	struct lane_load *load = settings.lanes ? lane_load(cpu) : 0;
	uint64_t batch_ns = partners_batch_ns(cpu, now_ns);

	if (conn->receiver != (uint32_t)task->pid) {
		find_start(conn, thread, account, cpu);
		trace_started(conn, cpu);
	}
	conn->left--;
	conn->sends = 1;
	conn->too_late = conn->ended_by == SIDELANE_TRACE_ENDED_BY_CLIENT;
	/* This addition comes before the record is written: an atomic addition waits for all earlier stores, and stores
	 * to the ring are slow. */
	__sync_fetch_and_add(&account->finished, 1);
	if (load)
		load->finished_number = conn->number;
	leave_request(conn, thread, account);
	thread->finished_ns = now_ns;
	thread->batch_ns = batch_ns;
	write_record(conn, account, response, batch_ns);
	if (conn->left)
		begin_next(conn, thread, account, task->pid, cpu, now_ns);
	else if (thread->takes_over && !thread->running)
		take_over(thread, account, true, now_ns);
	show_request(cpu, thread, now_ns, now_ns);
	show_thread(thread, task->pid);
	if (thread->running && thread->started_ns == now_ns)
		request_that_waited_starts(cpu);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(request_sent, struct sock *sock, int length, int flags)
{
	if (length <= 0)
		return 0;
	if (!is_a_services_port(sock)) {
		trace_elsewhere(sock, SIDELANE_TRACE_SENT, length);
		return 0;
	}
	struct task_struct *task = bpf_get_current_task_btf();
	struct tcp_sock *tcp = tcp_of(sock);
	uint32_t identity = identity_of(task->tgid), service = number_of(identity);
	struct sidelane_request_account *account = account_of(service);
	if (!account || class_of(identity) != SIDELANE_LC || !tcp)
		return 0;
	struct connection *conn = bpf_sk_storage_get(&connections, sock, 0, 0);
	if (conn && conn->service && conn->service != service)
		return 0;
	if (!conn || !conn->number) {
		__sync_fetch_and_add(&account->unasked, 1);
		return 0;
	}
	struct request_thread *thread = bpf_task_storage_get(&request_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return 0;
	thread->service = service;
	struct response response = {
		.sock = sock,
		.tcp = tcp,
		.task = task,
		.bytes = length,
		.cpu = bpf_get_smp_processor_id(),
		.now_ns = bpf_ktime_get_ns(),
	};
	trace_present(conn, response.cpu);
	if (conn->left) {
		finish_request(conn, thread, account, &response);
	} else {
		conn->sends++;
		write_record(conn, account, &response, partners_batch_ns(response.cpu, response.now_ns));
	}
	return 0;
}

/* Returns which side ends the connection. A socket that the service closes is shut down before its state changes. A
 * reset shows as an error of the socket. */
static __always_inline uint32_t who_ends(const struct sock *sock, int new)
{
	if (new == TCP_CLOSE_WAIT)
		return SIDELANE_TRACE_ENDED_BY_CLIENT;
	if (sock->sk_shutdown & SEND_SHUTDOWN)
		return SIDELANE_TRACE_ENDED_BY_SERVICE;
	if (sock->sk_err == ECONNRESET || sock->sk_err == EPIPE)
		return SIDELANE_TRACE_ENDED_BY_CLIENT;
	return SIDELANE_TRACE_ENDED_OTHERWISE;
}

/* Returns whether sent data was never acknowledged. The end of the service's data (FIN) takes a sequence number,
 * too. */
static __always_inline bool is_unacknowledged(const struct sock *sock)
{
	struct tcp_sock *tcp = tcp_of(sock);

	return tcp && tcp->write_seq - tcp->snd_una > (sock->sk_shutdown & SEND_SHUTDOWN ? 1 : 0);
}

/* Records a request that ends without a response, or whose client did not wait for the response. */
static __always_inline void tell_of_end(struct connection *conn, struct sidelane_request_account *account)
{
	uint32_t service = conn->service;
	void *ring = bpf_map_lookup_elem(&record_rings, &service);
	struct sidelane_request_record *record = ring ? bpf_ringbuf_reserve(ring, sizeof(*record), 0) : 0;

	if (ring && !record)
		__sync_fetch_and_add(&account->dropped, 1);
	if (!record)
		return;
	*record = (struct sidelane_request_record){
		.number = conn->number,
		.connection = conn->first_number,
		.arrived_ns = conn->arrived_ns,
		.started_ns = conn->started_ns,
		.finished_ns = conn->ended_ns,
		.tid = conn->receiver,
		.lane = conn->lane,
		.queue_len = conn->queue_len,
		.waited = conn->waited,
		.ended_by = conn->ended_by,
	};
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* Records the arrival of a message whose client has closed the connection before a thread received the message. */
static __always_inline void take_unread(struct connection *conn, struct sidelane_request_account *account)
{
	struct message message = next_message(conn);

	conn->number = new_number(account);
	conn->arrived_ns = conn->started_ns = message.arrived_ns;
	conn->queue_len = message.queue_len;
	conn->waited = conn->receiver = 0;
}

/* Handles state changes of TCP connections. A connection is found by the memory that this program has at its socket:
 * the port is 0 already when the connection closes. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(request_closed, const struct sock *sock, int old, int new)
{
	if (new == TCP_SYN_SENT)
		trace_connects(sock);
	if (new != TCP_CLOSE_WAIT && new != TCP_FIN_WAIT1 && new != TCP_CLOSE)
		return 0;
	struct connection *conn = bpf_sk_storage_get(&connections, (void *)sock, 0, 0);
	struct sidelane_request_account *account = conn ? account_of(conn->service) : 0;

	if (!conn || !account)
		return 0;
	uint64_t now_ns = bpf_ktime_get_ns();
	if (!conn->ended_by) {
		conn->ended_by = who_ends(sock, new);
		conn->ended_ns = now_ns;
	}
	bool in_vain = new == TCP_CLOSE && !is_open(conn) && conn->number && conn->too_late && is_unacknowledged(sock);
	trace_state(sock, conn, old, new, in_vain, now_ns);
	if (new != TCP_CLOSE)
		return 0;
	bool unread = !is_open(conn) && conn->ended_by == SIDELANE_TRACE_ENDED_BY_CLIENT && conn->taken != conn->arrived;
	if (unread)
		take_unread(conn, account);
	if (is_open(conn) || unread)
		__sync_fetch_and_add(&account->unanswered, 1);
	if (is_open(conn) || unread || in_vain)
		tell_of_end(conn, account);
	forget(conn, account);
	return 0;
}

#endif
