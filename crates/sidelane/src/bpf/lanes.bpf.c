// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lane words, summons and the books: what the kernel does for Sidelane.
 *
 * At each context switch this program says in the lane's word who runs there, as Elfen's
 * cpu_task_map does (ATC'16 Fig. 9(a)), adds up how long batch ran beside the service, and
 * summons the holder of a batch lane when there is something to hold. It decides nothing:
 * what a summoned holder does is up to the policy in user space.
 *
 * Elfen's batch sees a request when the service runs. This program sees it when the service
 * is *woken*, which is some microseconds earlier, and on the waker's CPU: batch can be gone
 * before the request starts, and a waker elsewhere pays for the summons instead of the service.
 *
 * A lane's word and statistics are written by that lane's own switches, so plain stores do;
 * `busy` and the hold words are written from several sides, atomically. Where one lane's
 * store must be seen before another lane's word is read, the store is an atomic exchange
 * (a full barrier).
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "lanes.h"

char LICENSE[] SEC("license") = "GPL";

/* Longest chain of retries for a consistent look at another lane's word. A switch takes
 * microseconds, so a second collision in a row is already rare. */
#define SNAPSHOT_TRIES 4

/* One switch in this many is timed for cost_ns: often enough for a mean, too rare to pay for. */
#define COST_SAMPLE_EVERY 16

volatile const struct sidelane_settings settings;

/* The machine's CPU count replaces these sizes before the maps are made. */
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
	__type(value, struct sidelane_lane_stats);
} lane_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LANES_MAX);
	__type(key, uint32_t);
	__type(value, struct sidelane_lane_role);
} lane_roles SEC(".maps");

/* The class of every process that is the service's or the batch command's: two bits a process
 * id, 32 in a word. A table, not a hash: it is looked up in each switch and each wake-up.
 * Forks inherit, ends remove. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, uint64_t);
} process_classes SEC(".maps");

/* One ring buffer a batch lane, on which its holder sleeps. */
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SIDELANE_TRACE_EVENTS);
	__type(key, uint32_t);
	__type(value, struct sidelane_trace_event);
} trace_events SEC(".maps");

/* Events recorded so far; recording is on while trace_on is set. */
uint64_t trace_count;
uint32_t trace_on;

#define load_once(x) (*(volatile typeof(x) *)&(x))
#define store_once(x, v) (*(volatile typeof(x) *)&(x) = (v))

static __always_inline struct sidelane_lane_word *lane_word(uint32_t cpu)
{
	return bpf_map_lookup_elem(&lane_words, &cpu);
}

/* ---- Who is it? ---- */

static __always_inline struct cgroup *service_hierarchy_cgroup(struct task_struct *task)
{
	struct css_set *set = task->cgroups;
	uint32_t index = 0;

	switch (settings.lc_cgroup_v1) {
	case 0:
		return set->dfl_cgrp;
	case 1:
		index = bpf_core_enum_value(enum cgroup_subsys_id, cpuset_cgrp_id);
		break;
	case 2:
		index = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
		break;
	case 3:
		index = bpf_core_enum_value(enum cgroup_subsys_id, freezer_cgrp_id);
		break;
	case 4:
		index = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
		break;
	case 5:
		index = bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id);
		break;
	}
	struct cgroup_subsys_state *state = 0;
	bpf_core_read(&state, sizeof(state), &set->subsys[index]);
	return BPF_CORE_READ(state, cgroup);
}

static __always_inline bool in_service_cgroup(struct task_struct *task)
{
	struct cgroup *group = service_hierarchy_cgroup(task);
	struct cgroup *ancestor = 0;
	uint32_t level = settings.lc_cgroup_level;

	if (BPF_CORE_READ(group, level) < (int)level)
		return false;
	bpf_core_read(&ancestor, sizeof(ancestor), &group->ancestors[level]);
	return BPF_CORE_READ(ancestor, kn, id) == settings.lc_cgroup_id;
}

static __always_inline uint64_t *classes_word(uint32_t tgid)
{
	uint32_t index = tgid / SIDELANE_CLASSES_PER_WORD;

	return bpf_map_lookup_elem(&process_classes, &index);
}

static __always_inline uint32_t class_shift(uint32_t tgid)
{
	return tgid % SIDELANE_CLASSES_PER_WORD * SIDELANE_CLASS_BITS;
}

/* 0, which is SIDELANE_IDLE, for a process that has not been given a class. */
static __always_inline uint32_t given_class(uint32_t tgid)
{
	uint64_t *word = classes_word(tgid);

	return word ? load_once(*word) >> class_shift(tgid) & SIDELANE_CLASS_MASK : 0;
}

static __always_inline void give_class(uint32_t tgid, uint64_t class_)
{
	uint64_t *word = classes_word(tgid);

	if (!word)
		return;
	__sync_fetch_and_and(word, ~((uint64_t)SIDELANE_CLASS_MASK << class_shift(tgid)));
	__sync_fetch_and_or(word, class_ << class_shift(tgid));
}

static __always_inline uint32_t classify(struct task_struct *task)
{
	uint32_t tgid = task->tgid;

	if (!tgid)
		return SIDELANE_IDLE;
	uint32_t given = given_class(tgid);
	if (given)
		return given;
	if (settings.lc_cgroup_id && in_service_cgroup(task))
		return SIDELANE_LC;
	return SIDELANE_OTHER;
}

/* A thread that was switched out, but would rather run on. */
static __always_inline bool was_preempted(bool preempt, struct task_struct *prev)
{
	if (preempt)
		return true;
	if (bpf_core_field_exists(prev->__state))
		return prev->__state == 0;
	struct task_struct___before_5_14 *old = (void *)prev;
	return BPF_CORE_READ(old, state) == 0;
}

static __always_inline bool is_holder(struct sidelane_hold_word *hold, struct task_struct *task)
{
	return hold->holder_pid && hold->holder_pid == (uint32_t)task->pid;
}

/* ---- Summons ---- */

static __always_inline bool ring_for_holder(uint32_t lane)
{
	void *ring = bpf_map_lookup_elem(&summons_rings, &lane);
	uint32_t token = lane;

	return ring && !bpf_ringbuf_output(ring, &token, sizeof(token), BPF_RB_FORCE_WAKEUP);
}

static __always_inline void summon(uint32_t lane, uint32_t from_state, bool lc_pays)
{
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &lane);

	if (!hold || load_once(hold->state) != from_state)
		return;
	if (__sync_val_compare_and_swap(&hold->state, from_state, SIDELANE_SUMMONED) != from_state)
		return;
	if (!ring_for_holder(lane)) {
		/* Not rung: whoever comes next tries again. */
		__sync_val_compare_and_swap(&hold->state, SIDELANE_SUMMONED, from_state);
		return;
	}
	__sync_fetch_and_add(&hold->summons, 1);
	if (lc_pays)
		__sync_fetch_and_add(&hold->lc_summons, 1);
}

/* ---- The books ---- */

/* Time LC threads have run on a lane, up to `now_ns`. */
static __always_inline uint64_t lc_clock_ns(uint32_t lane, uint64_t now_ns)
{
	struct sidelane_lane_word *word = lane_word(lane);
	uint64_t done_ns = 0, since_ns = 0;

	if (!word)
		return 0;
	for (int try = 0; try < SNAPSHOT_TRIES; try++) {
		uint64_t before = load_once(word->since_ns);
		done_ns = load_once(word->lc_done_ns);
		since_ns = load_once(word->lc_since_ns);
		if (before && before == load_once(word->since_ns))
			break;
	}
	return done_ns + (since_ns && now_ns > since_ns ? now_ns - since_ns : 0);
}

static __always_inline uint64_t partners_lc_clock_ns(struct sidelane_lane_role *role, uint64_t now_ns)
{
	uint64_t sum_ns = 0;

	for (uint32_t i = 0; i < SIDELANE_MAX_PARTNERS; i++)
		if (i < role->partner_count)
			sum_ns += lc_clock_ns(role->partners[i], now_ns);
	return sum_ns;
}

static __always_inline uint32_t log2_floor(uint64_t v)
{
	uint32_t r = 0;

	if (v >> 32) { v >>= 32; r += 32; }
	if (v >> 16) { v >>= 16; r += 16; }
	if (v >> 8) { v >>= 8; r += 8; }
	if (v >> 4) { v >>= 4; r += 4; }
	if (v >> 2) { v >>= 2; r += 2; }
	return r + (v >> 1);
}

static __always_inline void record(uint32_t *hist, uint64_t latency_ns)
{
	uint64_t bucket = latency_ns;

	if (latency_ns >= 1 << SIDELANE_HIST_SUB_BITS) {
		uint32_t shift = log2_floor(latency_ns) - SIDELANE_HIST_SUB_BITS;
		bucket = (shift << SIDELANE_HIST_SUB_BITS) + (latency_ns >> shift);
	}
	if (bucket >= SIDELANE_HIST_BUCKETS)
		bucket = SIDELANE_HIST_BUCKETS - 1;
	hist[bucket & (SIDELANE_HIST_BUCKETS - 1)]++;
}

static __always_inline void trace(uint32_t cpu, uint32_t class_, uint64_t now_ns)
{
	if (!load_once(trace_on))
		return;
	uint64_t index = __sync_fetch_and_add(&trace_count, 1);
	uint32_t key = index;
	struct sidelane_trace_event *event = bpf_map_lookup_elem(&trace_events, &key);
	if (!event)
		return;
	event->cpu = cpu;
	event->class_ = class_;
	store_once(event->at_ns, now_ns);
}

/* ---- One switch, seen from a batch lane ---- */

/* How long batch ran beside the service, in a turn that ends now beside a busy lane: 0 if the
 * service was woken but does not run yet, for then batch is off before the request starts. */
static __always_inline uint64_t both_ran_ns(struct sidelane_lane_word *request, uint64_t began_ns, uint64_t now_ns)
{
	uint64_t both_ns = load_once(request->lc_since_ns);

	if (!both_ns)
		return 0;
	if (both_ns < began_ns)
		both_ns = began_ns;
	return both_ns < now_ns ? now_ns - both_ns : 0;
}

static __always_inline void batch_turn_ends(struct sidelane_lane_role *role,
					    struct sidelane_lane_stats *stats, uint64_t now_ns)
{
	uint64_t began_ns = stats->batch_since_ns;
	uint64_t clock_ns = partners_lc_clock_ns(role, now_ns);

	stats->batch_ns += now_ns - began_ns;
	if (clock_ns > stats->overlap_mark_ns)
		stats->overlap_ns += clock_ns - stats->overlap_mark_ns;
	stats->batch_since_ns = 0;

	for (uint32_t i = 0; i < SIDELANE_MAX_PARTNERS; i++) {
		if (i >= role->partner_count)
			break;
		struct sidelane_lane_word *request = lane_word(role->partners[i]);
		if (request && load_once(request->busy))
			record(stats->off_hist, both_ran_ns(request, began_ns, now_ns));
	}
}

/* The holder takes a lane for which batch waits, but on which it does not run: no reaction
 * was needed. */
static __always_inline void holder_was_first(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats)
{
	for (uint32_t i = 0; i < SIDELANE_MAX_PARTNERS; i++) {
		if (i >= role->partner_count)
			break;
		struct sidelane_lane_word *request = lane_word(role->partners[i]);
		if (request && load_once(request->busy))
			record(stats->off_hist, 0);
	}
}

static __always_inline void batch_turn_begins(uint32_t cpu, struct sidelane_lane_role *role,
					      struct sidelane_lane_stats *stats, struct sidelane_hold_word *hold,
					      struct task_struct *prev, uint64_t now_ns)
{
	bool after_hold = is_holder(hold, prev);
	uint64_t lc_off_ns = 0;
	bool busy = false;

	stats->batch_since_ns = now_ns;
	stats->overlap_mark_ns = partners_lc_clock_ns(role, now_ns);
	if (load_once(hold->state) == SIDELANE_HELD)
		stats->leaks++;
	for (uint32_t i = 0; i < SIDELANE_MAX_PARTNERS; i++) {
		if (i >= role->partner_count)
			break;
		struct sidelane_lane_word *request = lane_word(role->partners[i]);
		if (!request)
			continue;
		if (load_once(request->busy))
			busy = true;
		uint64_t off_ns = load_once(request->idle_since_ns);
		if (off_ns > lc_off_ns)
			lc_off_ns = off_ns;
	}
	if (busy)
		summon(cpu, SIDELANE_RELEASED, false);
	else if (after_hold && lc_off_ns && now_ns >= lc_off_ns)
		record(stats->on_hist, now_ns - lc_off_ns);
}

/* ---- The service starts and stops on a request lane ---- */

/* Batch runs on the lane, or will as soon as what preempted it is done. */
static __always_inline bool batch_is_on(uint32_t lane)
{
	struct sidelane_lane_word *word = lane_word(lane);
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &lane);

	return word && hold && (load_once(word->class_) == SIDELANE_BATCH || load_once(hold->batch_waits));
}

/* The caller has just set the lane's word to busy, with a full barrier. */
static __always_inline void service_starts(uint32_t cpu, struct sidelane_lane_role *role)
{
	bool lc_pays = cpu == bpf_get_smp_processor_id();

	for (uint32_t i = 0; i < SIDELANE_MAX_PARTNERS; i++) {
		if (i >= role->partner_count)
			break;
		if (batch_is_on(role->partners[i]))
			summon(role->partners[i], SIDELANE_RELEASED, lc_pays);
	}
}

/* The caller has just set the lane's word to not busy, with a full barrier. */
static __always_inline void service_stops(struct sidelane_lane_role *role)
{
	for (uint32_t i = 0; i < SIDELANE_MAX_PARTNERS; i++) {
		if (i >= role->partner_count)
			break;
		summon(role->partners[i], SIDELANE_EVICTED, true);
	}
}

static __always_inline bool make_busy(struct sidelane_lane_word *word, uint64_t now_ns)
{
	if (load_once(word->busy))
		return false;
	store_once(word->busy_since_ns, now_ns);
	return !__sync_lock_test_and_set(&word->busy, 1);
}

static __always_inline bool make_idle(struct sidelane_lane_word *word, uint64_t now_ns)
{
	if (!load_once(word->busy))
		return false;
	store_once(word->idle_since_ns, now_ns);
	return __sync_lock_test_and_set(&word->busy, 0);
}

/* A sleeping thread may have been confined elsewhere since it last ran. */
static __always_inline bool may_run_on(struct task_struct *task, uint32_t cpu)
{
	unsigned long word = 0;

	bpf_core_read(&word, sizeof(word), &task->cpus_ptr->bits[cpu / 64]);
	return word >> (cpu % 64) & 1;
}

/* A thread of the service is about to run on `cpu`. */
static __always_inline void service_woken(struct task_struct *task, uint32_t cpu)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);
	struct sidelane_lane_word *word = lane_word(cpu);

	if (!role || !word || role->role != SIDELANE_ROLE_REQUEST || load_once(word->busy))
		return;
	if (classify(task) == SIDELANE_LC && may_run_on(task, cpu) && make_busy(word, bpf_ktime_get_ns()))
		service_starts(cpu, role);
}

/* ---- The switch itself ---- */

/* Whether the service still needs its lane after a switch. A thread that was preempted, or
 * woken while another had the lane, waits for it; when the lane idles nobody does. */
static __always_inline bool still_busy(struct sidelane_lane_word *word, uint32_t is, bool preempted)
{
	if (is == SIDELANE_LC)
		return true;
	if (is == SIDELANE_IDLE || !load_once(word->busy))
		return false;
	return word->class_ != SIDELANE_LC || preempted;
}

static __always_inline void count(struct sidelane_lane_stats *stats, uint32_t role, uint32_t is)
{
	stats->switches++;
	if (is == SIDELANE_LC)
		stats->lc_switches++;
	if (is == SIDELANE_BATCH && role != SIDELANE_ROLE_BATCH)
		stats->batch_strays++;
	if (is == SIDELANE_LC && role != SIDELANE_ROLE_REQUEST)
		stats->lc_strays++;
}

static __always_inline void write_word(struct sidelane_lane_word *word, struct task_struct *next,
				       uint32_t is, uint64_t now_ns)
{
	uint32_t was = word->class_;

	store_once(word->since_ns, 0);
	if (was == SIDELANE_LC && is != SIDELANE_LC) {
		store_once(word->lc_done_ns, word->lc_done_ns + (now_ns - word->lc_since_ns));
		store_once(word->lc_since_ns, 0);
	} else if (was != SIDELANE_LC && is == SIDELANE_LC) {
		store_once(word->lc_since_ns, now_ns);
	}
	store_once(word->pid, next->pid);
	store_once(word->tgid, next->tgid);
	store_once(word->switches, word->switches + 1);
	if (was != is)
		__sync_lock_test_and_set(&word->class_, is);
	store_once(word->since_ns, now_ns);
}

/* A batch lane's part of a switch, before its word is written. */
static __always_inline void batch_lane_before(struct sidelane_lane_role *role, struct sidelane_lane_stats *stats,
					      struct sidelane_hold_word *hold, uint32_t was, uint32_t is,
					      bool preempted, struct task_struct *next, uint64_t now_ns)
{
	if (was != SIDELANE_BATCH && hold->batch_waits && is_holder(hold, next))
		holder_was_first(role, stats);
	if (was == SIDELANE_BATCH && is != SIDELANE_BATCH) {
		batch_turn_ends(role, stats, now_ns);
		store_once(hold->batch_waits, preempted);
	} else if (is == SIDELANE_BATCH || is == SIDELANE_IDLE) {
		store_once(hold->batch_waits, 0);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(lane_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_lane_word *word = lane_word(cpu);
	struct sidelane_lane_stats *stats = bpf_map_lookup_elem(&lane_stats, &cpu);
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &cpu);

	if (!word || !stats || !role || !hold)
		return 0;
	uint64_t now_ns = bpf_ktime_get_ns();
	uint32_t was = word->class_, is = classify(next);
	bool preempted = was_preempted(preempt, prev);
	bool busy = still_busy(word, is, preempted);

	if (role->role == SIDELANE_ROLE_BATCH)
		batch_lane_before(role, stats, hold, was, is, preempted, next, now_ns);
	write_word(word, next, is, now_ns);
	count(stats, role->role, is);
	bool starts = busy && make_busy(word, now_ns);
	bool stops = !busy && make_idle(word, now_ns);
	if (load_once(trace_on))
		trace(cpu, is_holder(hold, next) ? SIDELANE_TRACE_HOLDER : is, now_ns);
	if (stats->switches % COST_SAMPLE_EVERY == 0) {
		stats->cost_ns += bpf_ktime_get_ns() - now_ns;
		stats->cost_samples++;
	}

	if (role->role == SIDELANE_ROLE_REQUEST && starts) {
		service_starts(cpu, role);
		stats->summons_ns += bpf_ktime_get_ns() - now_ns;
	} else if (role->role == SIDELANE_ROLE_REQUEST && stops) {
		service_stops(role);
	} else if (role->role == SIDELANE_ROLE_BATCH && is == SIDELANE_BATCH && was != SIDELANE_BATCH) {
		batch_turn_begins(cpu, role, stats, hold, prev, now_ns);
	}
	return 0;
}

/* Of the next two, user space loads one. This one runs on the waker's CPU before the kernel
 * looks for a place for the thread: for a service that has a single place. */
SEC("tp_btf/sched_waking")
int BPF_PROG(lane_waking, struct task_struct *task)
{
	if (task->nr_cpus_allowed == 1)
		service_woken(task, task->thread_info.cpu);
	return 0;
}

/* This one runs after the kernel has found a place, often on that CPU itself. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(lane_wakeup, struct task_struct *task)
{
	service_woken(task, task->thread_info.cpu);
	return 0;
}

/* ---- Processes come and go ---- */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(lane_fork, struct task_struct *parent, struct task_struct *child)
{
	if (child->tgid != parent->tgid)
		give_class(child->tgid, given_class(parent->tgid));
	return 0;
}

/* Not at exit: a process that ends still runs for a while, tearing down its memory. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(lane_free, struct task_struct *task)
{
	if (task->pid == task->tgid && given_class(task->tgid))
		give_class(task->tgid, 0);
	return 0;
}

/* ---- The service leaves or enters a lane without a switch ---- */

static __always_inline void note_arrival(struct task_struct *task, uint32_t cpu)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);
	struct sidelane_lane_word *word = lane_word(cpu);

	if (!role || !word || role->role != SIDELANE_ROLE_BATCH || classify(task) != SIDELANE_LC)
		return;
	__sync_fetch_and_add(&word->lc_visitors, 1);
	/* A holder that naps sees the visitor; one that sleeps has to be woken to evict batch. */
	summon(cpu, SIDELANE_RELEASED, false);
}

/* A thread that waited for a request lane may be moved before it ran there. */
static __always_inline void note_departure(struct task_struct *task, uint32_t cpu)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);
	struct sidelane_lane_word *word = lane_word(cpu);

	if (!role || !word || role->role != SIDELANE_ROLE_REQUEST || load_once(word->lc_since_ns))
		return;
	if (classify(task) == SIDELANE_LC && make_idle(word, bpf_ktime_get_ns()))
		service_stops(role);
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(lane_migrate, struct task_struct *task, int to_cpu)
{
	note_departure(task, task->thread_info.cpu);
	note_arrival(task, to_cpu);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(lane_wakeup_new, struct task_struct *task)
{
	note_arrival(task, task->thread_info.cpu);
	return 0;
}
