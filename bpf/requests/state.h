/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The memory of request tracking. The part that user space shares comes first.
 */
#ifndef SIDELANE_REQUEST_STATE_H
#define SIDELANE_REQUEST_STATE_H

#include "abi/request.h"
#include "abi/trace.h"
#include "kernel/net.h"
#include "maps.h"

/* The record of a request whose response, or a further part of it, was sent. `sends` is 1 in its first record and
 * one more in each record that replaces it. */
struct sidelane_request_record {
	uint64_t number;      /*  0: in the order of starts; never reused */
	uint64_t connection;  /*  8: number of the first request of its connection */
	uint64_t arrived_ns;  /* 16: the last of its data reached the socket */
	uint64_t started_ns;  /* 24: a thread took it up */
	uint64_t finished_ns; /* 32: the last of its response, so far, was handed to the socket */
	uint64_t co_run_ns;   /* 40: time batch ran on the partner lanes between start and finish */
	uint32_t tid;         /* 48: the thread that answered */
	uint32_t lane;        /* 52: CPU on which it finished */
	uint32_t queue_len;   /* 56: requests that had arrived and not started, itself included, at its arrival */
	uint32_t sends;       /* 60 */
	uint32_t waited;      /* 64: 1: it arrived before another request on its lane had finished */
	uint32_t ended_by;    /* 68: enum sidelane_trace_end, of a request that its connection's end cut off: finished_ns is
	                       * when; 0: answered */
	uint64_t instructions; /* 72: retired on its lane between start and finish, see requests/counters.h */
	uint64_t cycles;      /* 80: not halted; 0: not counted */
};

/* Not read. It puts the record into the object's type information, of which the record in Rust is made. */
struct sidelane_request_record *record_type;

/* Counters of the requests of one service. Those that change with each request have a cache line of their own: the
 * CPU on which data arrives reads the second one. next_number to joined, and hands_over, are used by the kernel
 * program alone. */
struct sidelane_request_account {
	uint64_t finished;    /*  0: requests answered */
	uint64_t dropped;     /*  8: records that found the ring full */
	uint64_t unasked;     /* 16: sends on a connection without a request */
	uint64_t unanswered;  /* 24: requests whose connection ended before the response */
	uint64_t next_number; /* 32: upper 16 bits: the service's number, so that all are unique */
	int64_t queued;       /* 40: requests that have arrived and no thread has received */
	int64_t handed;       /* 48: received, and handed to a thread that has not taken them up */
	uint64_t joined;      /* 56: requests with several messages: parts of one request, or several requests */
	uint32_t service;     /* 64: its number; by user space */
	uint32_t epoch;       /* 68: from 1 on, one more each time that watching begins again; by user space */
	uint64_t hands_over;  /* 72: 1: a request was answered by another thread than the one that received it */
	uint64_t parked;      /* 80: open requests that made none wait: their thread slept, or took up another */
	uint64_t began;       /* 88: connections that began under watch and had a second request */
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

/* Where a service listens. */
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

/* One ring buffer for each service. User space sets its size. */
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

/* The most threads of all services whose requests are shown at once. A power of two. */
#define SIDELANE_THREAD_WORDS 512

/* A thread that works on requests. The first two fields are set together, when it takes up its first request. */
struct sidelane_thread_word {
	uint32_t tid;      /*  0: 0: free */
	uint32_t service;  /*  4: number of its service */
	uint64_t since_ns; /*  8: start of the request that it works on, 0 for none */
	uint64_t number;   /* 16: number of that request; changes while since_ns is 0 */
};

/* A single entry unless threads are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_thread_word);
} thread_words SEC(".maps");

/* The wakeup of a program that moves threads: a thread of the service takes up a request on one of some CPUs,
 * or has answered its request on one of some. */
struct sidelane_request_wakeup {
	uint64_t armed;     /*  0: 1: the next event wakes the reader of the service's records, and sets this to 0 */
	uint64_t begins[8]; /*  8: one bit a CPU */
	uint64_t ends[8];   /* 72: the same */
};

/* By number of the service; a single entry unless threads are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_request_wakeup);
} request_wakeups SEC(".maps");

/* ---- From here on: the kernel program's own ---- */

/* A message is what the peer pushed as a whole: one or more segments, the last of them with
 * the flag that ends a write. */
struct message {
	uint64_t arrived_ns;
	uint32_t end_seq;
	uint32_t queue_len : 31;
	uint32_t answered : 1; /* the response to the last request was already sent */
};

/* The most messages of one connection that can wait; further ones count as one with the last. A power of two. */
#define MESSAGES 16

/* State of a lane's counters at one read. */
struct counts {
	uint64_t instructions;
	uint64_t cycles;
	uint64_t away_ns;       /* enabled time in which the counters did not count */
	uint32_t lane_switches; /* the lane's switches then */
	uint32_t known;         /* 1: it was counted */
};

/* A request that was received and not answered, and its connection. The first part is written as data arrives, under
 * the socket's lock, by the CPU that does the network's work. With the pointer that the kernel keeps in front of it,
 * this part is one cache line: the only one that goes from that CPU to the service's with a request. The service's
 * threads write the rest, one at a time. */
struct connection {
	uint64_t data_ns;         /* last arrival of data, be it a whole message or not */
	struct message newest;    /* a copy of the newest message */
	uint32_t newest_number;   /* its number, counted as in `arrived`; another number while it is written */
	uint32_t arrived;         /* messages arrived, wraps */
	uint32_t room_until;      /* number of the first message without room */
	uint32_t seen_seq;        /* end of the data that has arrived */
	uint32_t known;           /* epoch in which it is known, 0 before the first arrival */
	uint32_t foreign;         /* 1: the last receiver is not of the service */
	uint32_t service;         /* number of the service whose connection it is, 0 while none is known */
	uint32_t reserved;

	uint32_t taken;     /* messages received, wraps */
	uint32_t left;      /* messages received together and not answered yet */
	uint32_t sends;     /* since the last receive */
	uint32_t write_seq; /* end of the response at the last receive's return */
	uint32_t receiver;  /* thread that received */
	uint32_t by_other;  /* 1: another thread than the receiver answered */
	uint32_t handed;    /* 1: counted in request_account.handed */
	uint32_t lane;      /* lane on which it was received */
	uint32_t on_lane;   /* its place among the requests open on that lane, plus 1; 0 for none */
	uint32_t whole;     /* messages of the request under way */
	uint32_t fresh;     /* 1: it began under watch, and has had one request at most */
	uint32_t waited;
	uint32_t queue_len;
	uint64_t first_number;
	uint64_t number; /* of the request that is answered next, or was answered last */
	uint64_t arrived_ns;
	uint64_t started_ns;
	uint64_t batch_ns; /* the partners' batch clock at its start */
	uint64_t ended_ns; /* when one side closed the connection; 0 before that */
	uint32_t ended_by; /* that side: enum sidelane_trace_end */
	uint32_t too_late; /* 1: `number` was answered after its client had closed */
	uint64_t cookie; /* of the socket; only with a trace */
	uint64_t peer_port; /* the same */
	struct counts counts; /* at its start */
	struct message messages[MESSAGES];
};

_Static_assert(__builtin_offsetof(struct connection, taken) == 64 - sizeof(void *), "one cache line");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

/* A sleep of a thread, and batch's clock beside its lane when it ran again. */
struct sleep {
	uint64_t from_ns;
	uint64_t to_ns;
	uint64_t batch_ns;
};

/* Sleeps remembered of a thread, since some of its looks for work find none. A power of two. */
#define SLEEPS 8

struct request_thread {
	uint64_t running; /* number of the request it works on, 0 for none */
	uint64_t arrived_ns;
	uint64_t started_ns;
	uint32_t waited;
	uint32_t more;        /* 1: `running` is one of several received together, after the first */
	uint32_t hands_over;  /* 1: other threads answered what it received */
	uint32_t takes_over;  /* 1: it answered what other threads received */
	uint32_t service;     /* number of its service */
	uint32_t holds;       /* 1: it has taken up one request of request_account.handed */
	uint32_t sleep_count; /* wraps */
	uint32_t word;        /* its place in thread_words, plus 1; 0 for none yet */
	uint32_t lane;        /* lane on which `running` is open, if it is counted there */
	uint32_t on_lane;     /* as in struct connection */
	uint64_t asleep_ns;   /* since when it sleeps, 0 while it runs */
	uint64_t finished_ns; /* when it last finished a request */
	uint64_t batch_ns;    /* the partners' batch clock then */
	struct sleep sleeps[SLEEPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct request_thread);
} request_threads SEC(".maps");

/* A request that was received on a lane and not answered. */
struct open_request {
	uint64_t number;    /* 0: the place is free */
	uint64_t asleep_ns; /* since when its thread sleeps, 0 while it runs */
};

/* Open requests of a lane that are told apart; a power of two. */
#define LANE_OPEN 8

/* Load of a lane: its open requests, the number of further ones, and the request that finished there last. */
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

/* 1: in some service, a thread has answered what another one received. */
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
