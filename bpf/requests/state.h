/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Memory of request tracking. The part that user space shares comes first.
 */
#ifndef SIDELANE_REQUEST_STATE_H
#define SIDELANE_REQUEST_STATE_H

#include "abi/request.h"
#include "abi/trace.h"
#include "kernel/net.h"
#include "maps.h"

/* Record of a request whose response, or a further part of it, was sent. `sends` is 1 in the first record of a
 * request and one more in each record that replaces it. */
struct sidelane_request_record {
	uint64_t number;      /*  0: number of the request, in the order of starts; never reused */
	uint64_t connection;  /*  8: number of the first request of the same connection */
	uint64_t arrived_ns;  /* 16: when the last of the request's data reached the socket */
	uint64_t started_ns;  /* 24: when a thread started to work on the request */
	uint64_t finished_ns; /* 32: when the last of the response, so far, was written to the socket */
	uint64_t co_run_ns;   /* 40: time that batch ran on the partner lanes between start and finish */
	uint32_t tid;         /* 48: thread id of the thread that answered */
	uint32_t lane;        /* 52: CPU on which the request finished */
	uint32_t queue_len;   /* 56: queue length at the request's arrival, itself included */
	uint32_t sends;       /* 60: number of sends of the response so far */
	uint32_t waited;      /* 64: 1 if the request arrived before another request on its lane had finished */
	uint32_t ended_by;    /* 68: enum sidelane_trace_end, of a request that its connection's end cut off: finished_ns is
	                       * when; 0: answered */
	uint64_t instructions; /* 72: instructions retired on the lane from start to finish, see requests/counters.h */
	uint64_t cycles;      /* 80: cycles of the lane that were not halted; 0: not counted */
};

/* Pointer that is never read. It puts the record into the object's type information, from which build.rs makes the
 * Rust type. */
struct sidelane_request_record *record_type;

/* Counters of the requests of one service. Counters that change with each request have a cache line of their own: the
 * CPU on which data arrives reads the second cache line only. The kernel program alone uses the fields from next_number
 * to joined, and hands_over. */
struct sidelane_request_account {
	uint64_t finished;    /*  0: number of requests answered */
	uint64_t dropped;     /*  8: number of records that found the ring full */
	uint64_t unasked;     /* 16: number of sends on a connection without a request */
	uint64_t unanswered;  /* 24: number of requests whose connection ended before the response */
	uint64_t next_number; /* 32: number of the next request; upper 16 bits: the service's number */
	int64_t queued;       /* 40: number of requests that have arrived and that no thread has received */
	int64_t handed;       /* 48: number of requests received and handed to a thread that has not started them */
	uint64_t joined;      /* 56: number of requests with several messages, which may be several requests */
	uint32_t service;     /* 64: number of the service; set by user space */
	uint32_t epoch;       /* 68: count of how often watching began, from 1 on; set by user space */
	uint64_t hands_over;  /* 72: 1 if a request was answered by another thread than the one that received it */
	uint64_t parked;      /* 80: open requests that made none wait: their thread slept, or started another */
	uint64_t began;       /* 88: number of connections that began under watch and had a second request */
	uint64_t reserved[4]; /* 96 */
};

/* Local TCP ports of any service in any network namespace, one bit each: a fast exclusion of all other sockets. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, uint32_t);
	__type(value, uint64_t);
} service_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDELANE_NUMBERS);
	__type(key, uint32_t);
	__type(value, struct sidelane_request_account);
} request_account SEC(".maps");

/* Address at which a service listens: port and network namespace. */
struct sidelane_listener {
	uint32_t network; /* inode number of the network namespace */
	uint32_t port;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SIDELANE_LISTENERS_MAX);
	__type(key, struct sidelane_listener);
	__type(value, uint32_t); /* number of the service */
} listeners SEC(".maps");

/* Ring buffer with the request records of one service. User space sets its size. */
struct record_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SIDELANE_NUMBERS);
	__type(key, uint32_t);
	__array(values, struct record_ring);
} record_rings SEC(".maps");

/* Largest number of threads, of all services, whose present requests user space can read at once; a power of two. */
#define SIDELANE_THREAD_WORDS 512

/* Word of a thread that works on requests. The first two fields are set together, at the thread's first request. */
struct sidelane_thread_word {
	uint32_t tid;      /*  0: thread id; 0: the word is free */
	uint32_t service;  /*  4: number of the thread's service */
	uint64_t since_ns; /*  8: start of the request that the thread works on, 0 for none */
	uint64_t number;   /* 16: number of that request; changes while since_ns is 0 */
};

/* Words of threads that work on requests; a single entry unless requests are tracked by thread. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_thread_word);
} thread_words SEC(".maps");

/* Conditions of the wakeup of a program that moves threads: the CPUs on which a thread of the service starts or answers
 * a request. */
struct sidelane_request_wakeup {
	uint64_t armed;     /*  0: 1 if the next event wakes the records' reader; that event stores 0 here */
	uint64_t begins[8]; /*  8: CPUs on which the start of a request wakes the reader, one bit each */
	uint64_t ends[8];   /* 72: CPUs on which the end of a request wakes the reader, one bit each */
};

/* Wakeup conditions by the number of the service; a single entry unless requests are tracked by thread. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_request_wakeup);
} request_wakeups SEC(".maps");

/* ---- Memory that only the kernel program uses ---- */

/* Message: data that the peer pushed as a whole. It is one or more segments, the last of them with the flag that
 * ends a write (PSH). */
struct message {
	uint64_t arrived_ns;
	uint32_t end_seq;
	uint32_t queue_len : 31;
	uint32_t answered : 1; /* 1 if the response to the last request was already sent */
};

/* Largest number of messages of one connection that are stored until a thread receives them; later messages are counted
 * with the last one. A power of two. */
#define MESSAGES 16

/* State of a lane's counters when they were read. */
struct counts {
	uint64_t instructions;
	uint64_t cycles;
	uint64_t away_ns;       /* enabled time in which the counters did not count */
	uint32_t lane_switches; /* number of the lane's context switches at the read */
	uint32_t known;         /* 1 if the counters counted */
};

/* Connection, with the request that was received on it and not answered. The CPU that handles the network writes the
 * first part as data arrives, under the socket's lock. With the pointer that the kernel keeps in front of it, this part
 * is one cache line. It is the only one that moves, for each request, from that CPU to the CPU of the service's thread.
 * The service's threads write the rest, one at a time. */
struct connection {
	uint64_t data_ns;         /* last arrival of data, whether it ended a message or not */
	struct message newest;    /* copy of the newest message */
	uint32_t newest_number;   /* newest message's number, as in `arrived`; another number while it is written */
	uint32_t arrived;         /* number of messages that have arrived, wraps */
	uint32_t room_until;      /* number of the first message without room */
	uint32_t seen_seq;        /* TCP sequence number up to which data has arrived */
	uint32_t known;           /* epoch in which the connection is known, 0 before the first arrival */
	uint32_t foreign;         /* 1 if the last receiver does not belong to the service */
	uint32_t service;         /* number of the connection's service, 0 while none is known */
	uint32_t reserved;

	uint32_t taken;     /* number of messages received, wraps */
	uint32_t left;      /* number of messages received together and not answered yet */
	uint32_t sends;     /* number of sends since the last receive */
	uint32_t write_seq; /* TCP sequence number of the response's end at the last receive's return */
	uint32_t receiver;  /* thread id of the thread that received */
	uint32_t by_other;  /* 1 if another thread than the receiver answered */
	uint32_t handed;    /* 1 if the request is counted in request_account.handed */
	uint32_t lane;      /* lane on which the request was received */
	uint32_t on_lane;   /* place of the request among the lane's open requests, plus 1; 0 for none */
	uint32_t whole;     /* number of messages of the present request */
	uint32_t fresh;     /* 1 if the connection began under watch, and has had one request at most */
	uint32_t waited;
	uint32_t queue_len;
	uint64_t first_number;
	uint64_t number; /* number of the request that is answered next, or was answered last */
	uint64_t arrived_ns;
	uint64_t started_ns;
	uint64_t batch_ns; /* the partners' batch clock at the start of the request */
	uint64_t ended_ns; /* when one side closed the connection; 0 before that */
	uint32_t ended_by; /* side that closed the connection first: enum sidelane_trace_end */
	uint32_t too_late; /* 1 if `number` was answered after its client had closed */
	uint64_t cookie; /* cookie of the socket; only with a trace */
	uint64_t peer_port; /* TCP port of the client; only with a trace */
	struct counts counts; /* counters at the start of the request */
	struct message messages[MESSAGES];
};

_Static_assert(__builtin_offsetof(struct connection, taken) == 64 - sizeof(void *), "one cache line");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

/* Begin and end of a thread's sleep, and batch's clock beside the thread's lane at the end. */
struct sleep {
	uint64_t from_ns;
	uint64_t to_ns;
	uint64_t batch_ns;
};

/* Number of a thread's last sleeps that are stored; a power of two. One would not do: some wakeups find no work, and
 * the thread sleeps again. */
#define SLEEPS 8

struct request_thread {
	uint64_t running; /* number of the request that the thread works on, 0 for none */
	uint64_t arrived_ns;
	uint64_t started_ns;
	uint32_t waited;
	uint32_t more;        /* 1 if `running` is one of several received together, after the first */
	uint32_t hands_over;  /* 1 if other threads answered what this thread received */
	uint32_t takes_over;  /* 1 if this thread answered what other threads received */
	uint32_t service;     /* number of the thread's service */
	uint32_t holds;       /* 1 if the thread has started one request of request_account.handed */
	uint32_t sleep_count; /* number of sleeps, wraps */
	uint32_t word;        /* place of the thread's word in thread_words, plus 1; 0 for none yet */
	uint32_t lane;        /* lane on which `running` is open, if it is counted there */
	uint32_t on_lane;     /* place among the lane's open requests, as in struct connection */
	uint64_t asleep_ns;   /* since when the thread sleeps, 0 while it runs */
	uint64_t finished_ns; /* when the thread last finished a request */
	uint64_t batch_ns;    /* the partners' batch clock when the thread last finished a request */
	struct sleep sleeps[SLEEPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct request_thread);
} request_threads SEC(".maps");

/* Request that was received on a lane and not answered. */
struct open_request {
	uint64_t number;    /* 0: number of the request; 0: the place is free */
	uint64_t asleep_ns; /* since when the request's thread sleeps, 0 while it runs */
};

/* Number of open requests of a lane that are stored separately; a power of two. */
#define LANE_OPEN 8

/* Load of a lane: its stored open requests, the number of further open requests, and its last finished request. */
struct lane_load {
	struct open_request open[LANE_OPEN];
	int64_t more;
	uint64_t finished_number;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct lane_load);
} lane_loads SEC(".maps");

/* 1 if in some service, a thread has answered a request that another thread received. */
uint32_t requests_are_handed_over;

static __always_inline struct sidelane_request_account *account_of(uint32_t service)
{
	return bpf_map_lookup_elem(&request_account, &service);
}

static __always_inline struct sidelane_request_word *request_word(uint32_t cpu)
{
	return settings.request_words ? bpf_map_lookup_elem(&request_words, &cpu) : 0;
}

static __always_inline struct lane_load *lane_load(uint32_t cpu)
{
	return bpf_map_lookup_elem(&lane_loads, &cpu);
}

static __always_inline uint64_t new_number(struct sidelane_request_account *account)
{
	return __sync_fetch_and_add(&account->next_number, 1) + 1;
}

#endif
