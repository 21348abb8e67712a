/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The memory of request tracking. What user space shares comes first;
 * src/requests.rs compares its layout.
 */
#ifndef SIDELANE_REQUEST_STATE_H
#define SIDELANE_REQUEST_STATE_H

#include "abi/request.h"
#include "abi/trace.h"
#include "kernel/net.h"
#include "maps.h"

/* A request whose response went out, or went on going out: `sends` is 1 in its first record and
 * one more in each that replaces it. */
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
	uint32_t waited;      /* 64: 1: it arrived before another one on its lane had finished */
	uint32_t ended_by;    /* 68: enum sidelane_trace_end, of a request that its connection's end cut off: finished_ns is
	                       * when; 0: answered */
	uint64_t instructions; /* 72: retired on its lane between start and finish, see requests/counters.h */
	uint64_t cycles;      /* 80: not halted; 0: not counted */
};

/* Nothing reads it: with it the object's type information has the record, which the other side's layout is compared
 * with. */
struct sidelane_request_record *record_type;

/* Counters of the requests of one service. What changes with each request is in a cache line of its own: the CPU on
 * which data arrives reads the other one. From next_number to joined, and hands_over, they are the program's own. */
struct sidelane_request_books {
	uint64_t finished;    /*  0: requests answered */
	uint64_t dropped;     /*  8: records that found the ring full */
	uint64_t unasked;     /* 16: sends to a connection that had asked nothing */
	uint64_t unanswered;  /* 24: requests whose connection ended before an answer */
	uint64_t next_number; /* 32: begins with the service's number in the upper 16 bits, so that no two are alike */
	int64_t queued;       /* 40: requests that have arrived and no thread has received */
	int64_t handed;       /* 48: received, and handed to a thread that has not taken them up */
	uint64_t joined;      /* 56: requests with more messages than one: parts of one, or others' */
	uint32_t service;     /* 64: its number; by user space */
	uint32_t epoch;       /* 68: from 1 on, one more each time that its sockets are watched again; by user space */
	uint64_t hands_over;  /* 72: 1: a request was answered by another thread than received it */
	uint64_t parked;      /* 80: requests that were left for another one, or slept, and so made nobody wait */
	uint64_t began;       /* 88: connections that began under watch and had a second request */
	uint64_t reserved[4]; /* 96 */
};

/* Local TCP ports of any service in any network namespace: one bit a port. A quick no for all other sockets. */
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
	__type(value, struct sidelane_request_books);
} request_books SEC(".maps");

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

/* One ring buffer a service. Its size is user space's. */
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

/* Threads of all services that work on requests, and can be told of at once. A power of two. */
#define SIDELANE_THREAD_WORDS 512

/* A thread that works on requests. The first two are set together, when it takes up its first one. */
struct sidelane_thread_word {
	uint32_t tid;      /*  0: 0: free */
	uint32_t service;  /*  4: number of its service */
	uint64_t since_ns; /*  8: since when it works on the request that it has, 0 if it has none */
	uint64_t number;   /* 16: which request that is; changes while since_ns is 0 */
};

/* One entry alone where nobody asks for it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_thread_word);
} thread_words SEC(".maps");

/* Whoever moves threads of a service can sleep until one of them takes up a request on some CPUs, or has answered its own
 * on some. */
struct sidelane_request_bell {
	uint64_t armed;     /*  0: 1: the next one rings, by waking the reader of the service's records, and sets this to 0 */
	uint64_t begins[8]; /*  8: one bit a CPU */
	uint64_t ends[8];   /* 72: the same */
};

/* By number of the service; one entry alone where nobody asks for it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_request_bell);
} request_bells SEC(".maps");

/* ---- From here on, the program's own ---- */

/* A message is what the peer pushed as a whole: one or more segments, the last of them with
 * the flag that ends a write. */
struct message {
	uint64_t arrived_ns;
	uint32_t end_seq;
	uint32_t queue_len : 31;
	uint32_t answered : 1; /* the response to the one before was on its way already */
};

/* Messages that one connection can have waiting; more than these count as one with the last.
 * A power of two. */
#define MESSAGES 16

/* What a lane's counters stood at. */
struct counts {
	uint64_t instructions;
	uint64_t cycles;
	uint64_t away_ns;       /* time for which the counters were lent to somebody else */
	uint32_t lane_switches; /* the lane's switches then */
	uint32_t known;         /* 1: it was counted */
};

/* A request that was received and not answered, and its connection. The first part is written as data arrives, under
 * the socket's lock, by the CPU on which the network's work is done. With the pointer that the kernel keeps in front of
 * it that is one cache line: all that goes from that CPU to the service's with a request. The rest is written by the
 * service's threads, which take turns. */
struct connection {
	uint64_t data_ns;         /* the last arrival of data, be it a whole message or not */
	struct message newest;    /* a copy of the newest message */
	uint32_t newest_number;   /* which one that is, counted as in `arrived`; another one while it is written */
	uint32_t arrived;         /* messages arrived, wraps */
	uint32_t room_until;      /* up to which of them there is room */
	uint32_t seen_seq;        /* end of the data that has arrived */
	uint32_t known;           /* the epoch in which it is known, 0 before the first arrival */
	uint32_t foreign;         /* 1: whoever received on it last is not of the service */
	uint32_t service;         /* number of the service whose connection it is, 0 while none is known */
	uint32_t reserved;

	uint32_t taken;     /* messages received, wraps */
	uint32_t left;      /* messages received together and not answered yet */
	uint32_t sends;     /* since the last receive */
	uint32_t write_seq; /* end of the response when the last receive returned */
	uint32_t receiver;  /* thread that received */
	uint32_t by_other;  /* 1: another thread than the receiver answered */
	uint32_t handed;    /* 1: counted in request_books.handed */
	uint32_t lane;      /* where it was received */
	uint32_t on_lane;   /* its place among those open on that lane, and 1; 0 for none */
	uint32_t whole;     /* messages of the request that is under way */
	uint32_t fresh;     /* 1: it began under watch, and has had no second request yet */
	uint32_t waited;
	uint32_t queue_len;
	uint64_t first_number;
	uint64_t number; /* of the request that is answered next, or was answered last */
	uint64_t arrived_ns;
	uint64_t started_ns;
	uint64_t batch_ns; /* the partners' batch clock at its start */
	uint64_t ended_ns; /* one side closed the connection; 0 before that */
	uint32_t ended_by; /* which: enum sidelane_trace_end */
	uint32_t too_late; /* 1: `number` was answered after its client had closed */
	uint64_t cookie; /* of the socket; only where there is a trace */
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

/* When a thread slept, and what batch had run beside its lane when it ran again. */
struct sleep {
	uint64_t from_ns;
	uint64_t to_ns;
	uint64_t batch_ns;
};

/* Sleeps remembered of a thread: it looks for work in vain now and then. A power of two. */
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
	uint32_t holds;       /* 1: it has taken up one of request_books.handed */
	uint32_t sleep_count; /* wraps */
	uint32_t word;        /* its place in thread_words, and 1; 0 for none yet */
	uint32_t lane;        /* where `running` is open, if it is counted there */
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
	uint64_t asleep_ns; /* since when the thread sleeps that took it up, 0 while it runs */
};

/* So many of a lane are told apart; a power of two. */
#define LANE_OPEN 8

/* Of each lane: its open requests, how many more there are, and which finished there last. */
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

/* 1: of some service, a thread has answered what another one received. */
uint32_t requests_are_handed_over;

static __always_inline struct sidelane_request_books *books_of(uint32_t service)
{
	return bpf_map_lookup_elem(&request_books, &service);
}

static __always_inline struct sidelane_request_word *request_word(uint32_t cpu)
{
	return settings.request_words ? bpf_map_lookup_elem(&request_words, &cpu) : 0;
}

static __always_inline struct lane_load *lane_load(uint32_t cpu)
{
	return bpf_map_lookup_elem(&lane_loads, &cpu);
}

static __always_inline uint64_t new_number(struct sidelane_request_books *books)
{
	return __sync_fetch_and_add(&books->next_number, 1) + 1;
}

#endif
