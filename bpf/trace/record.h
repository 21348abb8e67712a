/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Writing of a record (abi/trace.h) into the ring of its CPU.
 *
 * A ring belongs to one CPU. Its records are numbered, and the number gives the place. A writer takes a number with one
 * atomic addition, since an interrupt may come in between and write, too. Then it fills the place, and writes the
 * number last. No thread waits and none is woken: a reader reads in time, or sees by the numbers which records it
 * missed. Besides the clock, which is most of the cost, a record costs seven nanoseconds for its one cache line; the
 * kernel's ring buffer costs 25 to 35.
 */
#ifndef SIDELANE_TRACE_RECORD_H
#define SIDELANE_TRACE_RECORD_H

#include "abi/trace.h"
#include "maps.h"

/* Rings of records, one for each CPU; user space replaces the sizes of these maps. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_event_slot);
} trace_rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_trace_cpu);
} trace_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDELANE_TRACE_THREADS);
	__type(key, uint32_t);
	__type(value, struct sidelane_trace_thread);
} trace_threads SEC(".maps");

/* Contents of a record, without the CPU and the sequence number. */
struct record {
	uint64_t at_ns;
	uint32_t type;
	uint32_t detail;
	uint32_t tid;
	uint32_t pid;
	uint32_t other_tid;
	uint32_t other_pid;
	uint64_t socket;
	uint64_t request;
	uint64_t value;
};

static __always_inline struct sidelane_trace_cpu *trace_cpu(uint32_t cpu)
{
	return bpf_map_lookup_elem(&trace_cpus, &cpu);
}

static __always_inline void fill(struct sidelane_event_slot *slot, uint32_t cpu, const struct record *record)
{
	store_once(slot->type, record->type);
	store_once(slot->tid, record->tid);
	store_once(slot->pid, record->pid);
	store_once(slot->payload[0], cpu | (uint64_t)record->detail << 32);
	store_once(slot->payload[1], record->other_tid | (uint64_t)record->other_pid << 32);
	store_once(slot->payload[2], record->socket);
	store_once(slot->payload[3], record->request);
	store_once(slot->payload[4], record->value);
}

static __always_inline void put_into_ring(uint32_t cpu, uint64_t number, const struct record *record)
{
	uint32_t place = cpu * settings.trace_records + (number & (settings.trace_records - 1));
	struct sidelane_event_slot *slot = bpf_map_lookup_elem(&trace_rings, &place);

	if (!slot)
		return;
	fill(slot, cpu, record);
	store_once(slot->timestamp_ns, record->at_ns);
	publish(slot->seq, (uint32_t)number + 1);
}

static __always_inline void tell(struct sidelane_trace_cpu *state, uint32_t cpu, const struct record *record)
{
	put_into_ring(cpu, __sync_fetch_and_add(&state->written, 1), record);
}

/* Writes two records at once: an atomic addition waits for all earlier stores, and the place of a record is in no
 * cache yet. */
static __always_inline void tell_both(struct sidelane_trace_cpu *state, uint32_t cpu, const struct record *first,
				      const struct record *second)
{
	uint64_t number = __sync_fetch_and_add(&state->written, 2);
	put_into_ring(cpu, number, first);
	put_into_ring(cpu, number + 1, second);
}

#endif
