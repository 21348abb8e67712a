/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Event slots: a channel that holds one event, in one cache line of shared memory. The next event
 * overwrites the last. A reader that needs every event has to read faster than events come; a gap
 * in `seq` shows that it missed some. These are Tailor's single-entry software channels (thesis
 * "SHIM and Its Applications", section 4.2.1, figures 4.3 and 4.4). crates/formats/src/slot.rs
 * mirrors this file and asserts every offset.
 *
 * In Tailor a writer stores the timestamp last, and a reader takes a changed timestamp as proof of
 * a whole event. That requires Total Store Ordering, and it misses a second event that overwrites
 * the first during the copy. Here a writer
 *
 *   1. stores timestamp 0, "being written",
 *   2. then the fields, none of which can be seen before that 0,
 *   3. then the new timestamp, which cannot be seen before the fields.
 *
 * The timestamps of one slot strictly increase. So a reader that sees the same timestamp, not 0,
 * before and after its copy has one whole event, on any architecture.
 *
 * A slot has one writer at a time. A slot of zero bytes is empty. This header compiles as C99, C++
 * and BPF; outside BPF it needs GCC's or Clang's __atomic builtins.
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_SLOT_H
#define SIDELANE_ABI_SLOT_H

#define SIDELANE_PAYLOAD_WORDS 5

/* Event slot of one cache line, so that one cache miss moves a whole event from writer to
 * reader. */
struct sidelane_event_slot {
	uint64_t timestamp_ns; /*  0: time of the event, CLOCK_MONOTONIC; 0 while the slot is empty or being written */
	uint32_t type;         /*  8: kind of the event, in the emitter's own numbering */
	uint32_t seq;          /* 12: sequence number of the event, from 1 on; wraps */
	uint32_t tid;          /* 16: thread that the event is about */
	uint32_t pid;          /* 20: process id of that thread */
	uint64_t payload[SIDELANE_PAYLOAD_WORDS]; /* 24: further data of the event; its meaning depends on `type` */
} __attribute__((aligned(64)));

/* Static assertion in C99: the array has a negative size, an error, if the slot is not one cache
 * line. */
typedef char sidelane_slot_is_one_cache_line[sizeof(struct sidelane_event_slot) == 64 ? 1 : -1];

/* BPF has neither release stores nor fences before instruction set v4. A BPF program uses only
 * the layout from this file, and follows the protocol with barriers of its own. */
#ifndef __bpf__

/* Writes an event into the slot, over the previous one. `now_ns` may repeat or go back: the slot
 * then gets the next larger timestamp instead. */
static inline void sidelane_emit(struct sidelane_event_slot *slot, uint64_t now_ns,
				 uint32_t type, uint32_t tid, uint32_t pid,
				 const uint64_t payload[SIDELANE_PAYLOAD_WORDS])
{
	/* One writer at a time stores to a slot, so the writer's own loads need no memory
	 * ordering. */
	uint64_t least_ns = __atomic_load_n(&slot->timestamp_ns, __ATOMIC_RELAXED) + 1;
	uint32_t seq = __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) + 1;
	int i;

	__atomic_store_n(&slot->timestamp_ns, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&slot->type, type, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->seq, seq, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->tid, tid, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->pid, pid, __ATOMIC_RELAXED);
	for (i = 0; i < SIDELANE_PAYLOAD_WORDS; i++)
		__atomic_store_n(&slot->payload[i], payload[i], __ATOMIC_RELAXED);
	__atomic_store_n(&slot->timestamp_ns, now_ns > least_ns ? now_ns : least_ns,
			 __ATOMIC_RELEASE);
}

#endif /* __bpf__ */

#endif
