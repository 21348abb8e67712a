/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Disk requests of threads that serve requests. The completion comes in an interrupt, so the program remembers the
 * thread that asked.
 */
#ifndef SIDELANE_TRACE_DISKS_H
#define SIDELANE_TRACE_DISKS_H

#include "trace/who.h"

/* Number of unfinished disk requests that are remembered; a newer one replaces an older one. */
#define DISK_REQUESTS 1024
/* Least distance of two disk requests in memory, in bytes. */
#define DISK_REQUEST_BYTES 64
/* Number of bits of the minor number in the kernel's device numbers. */
#define MINOR_BITS 20

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	__u64 __sector;
};

#pragma clang attribute pop

struct disk_request {
	uint64_t address;
	struct record issued;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DISK_REQUESTS);
	__type(key, uint32_t);
	__type(value, struct disk_request);
} trace_disk_requests SEC(".maps");

static __always_inline struct disk_request *disk_request(struct request *request)
{
	uint32_t place = (uint64_t)request / DISK_REQUEST_BYTES % DISK_REQUESTS;

	return bpf_map_lookup_elem(&trace_disk_requests, &place);
}

static __always_inline uint32_t device_of(struct request *request)
{
	struct gendisk *disk = request->q->disk;

	return disk ? (uint32_t)disk->major << MINOR_BITS | (uint32_t)disk->first_minor : 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(trace_disk_asked, struct request *request)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);
	struct disk_request *asked = disk_request(request);

	if (!state || !asked || !state->tid || is_interrupt(state))
		return 0;
	asked->issued = (struct record){
		.at_ns = bpf_ktime_get_ns(),
		.type = SIDELANE_TRACE_DISK_ISSUED,
		.detail = device_of(request),
		.tid = state->tid,
		.pid = state->pid,
		.request = present_request(state, cpu),
		.value = request->__sector,
	};
	tell(state, cpu, &asked->issued);
	store_once(asked->address, (uint64_t)request);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(trace_disk_answers, struct request *request)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_trace_cpu *state = trace_cpu(cpu);
	struct disk_request *asked = disk_request(request);

	if (!state || !asked || asked->address != (uint64_t)request)
		return 0;
	struct record record = asked->issued;
	store_once(asked->address, 0);
	record.at_ns = bpf_ktime_get_ns();
	record.type = SIDELANE_TRACE_DISK_COMPLETED;
	tell(state, cpu, &record);
	return 0;
}

#endif
