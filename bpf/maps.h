/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Memory of the kernel program: settings from user space, and maps that both sides share.
 */
#ifndef SIDELANE_MAPS_H
#define SIDELANE_MAPS_H

volatile const struct sidelane_settings settings;

/* Sizes of maps, which user space replaces by the machine's CPU count before it creates the maps. */
#define LANES_MAX 1

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct sidelane_lane_word);
} lane_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct sidelane_hold_word);
} hold_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct sidelane_request_word);
} request_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDELANE_NUMBERS * SIDELANE_SERVICE_STRIDE);
	__type(key, uint32_t);
	__type(value, struct sidelane_service_word);
} service_words SEC(".maps");

/* Lending limits of lanes, written and read by user space alone. They are a map so that a batch program can be given
 * it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct sidelane_lane_limits);
} lane_limits SEC(".maps");

/* Accounting maps of self-checking batch. Batch may write anything here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct sidelane_gate_word);
} gate_words SEC(".maps");

/* Promises to check: one bit for each thread id, set by the thread itself. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, uint64_t);
} self_checking_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct sidelane_lane_stats);
} lane_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct sidelane_lane_ledger);
} lane_ledgers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct sidelane_lane_programs);
} lane_programs SEC(".maps");

/* CPU shares: one entry for each CPU if shares are recorded; otherwise a single entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_cpu_shares);
} cpu_shares SEC(".maps");

/* Turns of threads: one entry for each lane if requests are emitted; otherwise a single entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct sidelane_lane_turns);
} lane_turns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct sidelane_lane_role);
} lane_roles SEC(".maps");

/* Identity of every process of a service or of batch. It is a table, not a hash: each switch and each wakeup looks
 * it up. A fork copies the identity and an end removes it. A process that joins or leaves a named cgroup gets or
 * loses one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, uint64_t);
} process_identities SEC(".maps");

/* Named cgroups, and the identity of their processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SIDELANE_GROUPS_MAX);
	__type(key, struct sidelane_group);
	__type(value, uint32_t);
} named_groups SEC(".maps");

/* Hierarchy of the cgroup that gives an identity. Index: the identity without its lowest two bits, and with
 * SIDELANE_IDENTITY_BATCH as the lowest. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * SIDELANE_NUMBERS);
	__type(key, uint32_t);
	__type(value, uint32_t);
} group_hierarchies SEC(".maps");

/* Ring buffer of a batch lane, on which the lane's holder sleeps. */
struct summons_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__array(values, struct summons_ring);
} summons_rings SEC(".maps");

/* 1 if request tracking needs context switches: a thread has answered a request that another thread received, or has
 * answered one after the other several requests that it received together. */
uint32_t switches_tell;

/* Marks a function that the kernel's verifier checks once, not again on each path to it. Loops over partners have
 * many paths: without this mark the verifier took most of a second. Such a function takes numbers and pointers to
 * structs, and has to compare each pointer with null. */
#define CHECKED_ALONE __noinline

#define load_once(x) (*(volatile typeof(x) *)&(x))
#define store_once(x, v) (*(volatile typeof(x) *)&(x) = (v))

/* Stores with release order: earlier stores are visible before `where` changes. On x86, stores are always visible in
 * program order. */
#if defined(__TARGET_ARCH_x86)
#define publish(where, value)             \
	do {                              \
		barrier();                \
		store_once(where, value); \
		barrier();                \
	} while (0)
#else
#define publish(where, value) ((void)__sync_lock_test_and_set(&(where), value))
#endif

static __always_inline struct sidelane_lane_word *lane_word(uint32_t cpu)
{
	return bpf_map_lookup_elem(&lane_words, &cpu);
}

/* Loops over the partners of a lane: `lane` is the CPU of each. */
#define for_each_partner(lane, role)                                                                      \
	for (uint32_t lane##_at = 0, lane; lane##_at < SIDELANE_MAX_PARTNERS && lane##_at < (role)->partner_count && \
					   ((lane = (role)->partners[lane##_at]), true);                     \
	     lane##_at++)

static __always_inline struct sidelane_service_word *service_word(uint32_t number)
{
	uint32_t index = number % SIDELANE_NUMBERS * SIDELANE_SERVICE_STRIDE;

	return bpf_map_lookup_elem(&service_words, &index);
}

static __always_inline bool a_partner_is_busy(struct sidelane_lane_role *role)
{
	for_each_partner(lane, role) {
		struct sidelane_lane_word *partner = lane_word(lane);
		if (partner && load_once(partner->busy))
			return true;
	}
	return false;
}

#endif
