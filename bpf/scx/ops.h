/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Batch's scheduler: only batch is in SCHED_EXT, all other threads keep their class.
 *
 * All of batch waits in one queue. A lane takes a thread from it if the hold word and the request lanes permit batch
 * there (ext_may_run). Otherwise it idles, or runs what is not batch. Only a lane itself puts a thread of batch on
 * its own queue, at the moment at which the thread is to run; so a preempted thread asks again. Batch that starts
 * although the answer has changed in between is seen by the switch itself (batch_turn_begins).
 *
 * One queue for all lanes leaves no permitted lane without work. The queue is short, since a thread of batch waits only
 * if it may run nowhere.
 */
#ifndef SIDELANE_SCX_OPS_H
#define SIDELANE_SCX_OPS_H

#include "lane/request.h"
#include "scx/scx.h"

#define BATCH_DSQ 1
#define SCX_DSQ_LOCAL ((1ULL << 63) | 2)
#define SCX_OPS_ENQ_LAST (1ULL << 1)
#define SCX_OPS_ENQ_EXITING (1ULL << 2)
#define SCX_OPS_SWITCH_PARTIAL (1ULL << 3)

/* Time slice of a batch thread: long enough for warm caches, short enough for a long queue. */
#define SLICE_NS 5000000ULL
/* Longest wait of a thread before the kernel ends this scheduler: the kernel's maximum. Batch that is refused for a
 * third of that time is frozen; see gate/sched_ext/keeper.rs. */
#define TIMEOUT_MS 30000

extern __s32 scx_bpf_create_dsq(__u64 dsq, __s32 node) __ksym;
extern __s32 scx_bpf_task_cpu(const struct task_struct *task) __ksym;
extern __s32 scx_bpf_dsq_nr_queued(__u64 dsq) __ksym;
/* Functions that insert a thread into a queue and move it to a CPU's queue, by their names since Linux 6.13 and in
 * 6.12. */
extern void scx_bpf_dsq_insert(struct task_struct *task, __u64 dsq, __u64 slice_ns, __u64 flags) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local(__u64 dsq) __ksym __weak;
extern void scx_bpf_dispatch(struct task_struct *task, __u64 dsq, __u64 slice_ns, __u64 flags) __ksym __weak;
extern bool scx_bpf_consume(__u64 dsq) __ksym __weak;

/* Iterator for loops whose length is not known in advance, as the kernel defines it. */
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_ext_entity {
	__u64 slice;
};

struct task_struct___ext {
	struct sched_ext_entity scx;
};

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	const char *reason;
	char *msg;
};

#pragma clang attribute pop

/* Callbacks of the scheduler that are set here; libbpf finds them by name in the kernel's own struct. */
struct sched_ext_ops {
	__s32 (*select_cpu)(struct task_struct *task, __s32 prev_cpu, __u64 flags);
	void (*enqueue)(struct task_struct *task, __u64 flags);
	void (*dispatch)(__s32 cpu, struct task_struct *prev);
	void (*runnable)(struct task_struct *task, __u64 flags);
	void (*stopping)(struct task_struct *task, bool runnable);
	void (*quiescent)(struct task_struct *task, __u64 flags);
	__s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	__u64 flags;
	__u32 timeout_ms;
	char name[128];
};

static __always_inline void insert(struct task_struct *task, __u64 dsq, __u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(task, dsq, SLICE_NS, flags);
	else
		scx_bpf_dispatch(task, dsq, SLICE_NS, flags);
}

static __always_inline bool take_next(void)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(BATCH_DSQ);
	return scx_bpf_consume(BATCH_DSQ);
}

static __always_inline void set_slice(struct task_struct *task, __u64 slice_ns)
{
	((struct task_struct___ext *)task)->scx.slice = slice_ns;
}

/* Suitability of a CPU for a batch thread, from worst to best. */
enum place {
	PLACE_NONE,
	PLACE_REFUSED, /* a batch lane that does not permit batch now */
	PLACE_TAKEN,   /* another thread runs on the CPU */
	PLACE_FREE,
};

static __always_inline uint32_t place_on(struct task_struct *task, uint32_t cpu)
{
	struct sidelane_lane_role *role = batch_lane(cpu);
	struct sidelane_lane_word *word = lane_word(cpu);

	if (!role || !word || !may_run_on(task, cpu))
		return PLACE_NONE;
	if (!ext_may_run(cpu, role))
		return PLACE_REFUSED;
	return load_once(word->class_) == SIDELANE_IDLE ? PLACE_FREE : PLACE_TAKEN;
}

/* Returns the best CPU for a batch thread that ran on `cpu`. It loops over the machine's CPUs, but in batch's own
 * wakeup: the service never waits for it. */
static __always_inline uint32_t best_place(struct task_struct *task, uint32_t cpu)
{
	struct sidelane_ext_word *ext = ext_word();
	uint32_t best = place_on(task, cpu), at = cpu, other;

	if (best == PLACE_FREE || !ext)
		return cpu;
	bpf_for(other, 0, ext->cpu_count) {
		uint32_t place = place_on(task, other);
		if (place > best) {
			best = place;
			at = other;
		}
		if (best == PLACE_FREE)
			break;
	}
	return at;
}

/* Chooses a CPU for a batch thread. The kernel's own function would also put the thread into that CPU's queue; this one
 * does not. */
SEC("struct_ops/ext_select_cpu")
__s32 BPF_PROG(ext_select_cpu, struct task_struct *task, __s32 prev_cpu, __u64 flags)
{
	return best_place(task, prev_cpu);
}

/* Puts a batch thread into the queue that all batch lanes share. Batch that no cpuset confines may stray to a CPU that
 * is no batch lane. It runs there, and user space notices it and puts it back, as with any other gate. */
SEC("struct_ops/ext_enqueue")
void BPF_PROG(ext_enqueue, struct task_struct *task, __u64 flags)
{
	uint32_t cpu = scx_bpf_task_cpu(task);
	struct sidelane_lane_role *role = batch_lane(cpu);

	if (!role) {
		insert(task, SCX_DSQ_LOCAL, flags);
		return;
	}
	insert(task, BATCH_DSQ, flags);
	/* The lane that the thread leaves checks the queue by itself. Another lane has to be kicked even if it looks
	 * busy: it may be about to idle, and only the kick finds out. */
	bool leaves = bpf_get_current_task() == (uint64_t)task && cpu == bpf_get_smp_processor_id();
	if (!leaves && ext_may_run(cpu, role))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	uint32_t at = best_place(task, cpu);
	if (at != cpu)
		scx_bpf_kick_cpu(at, SCX_KICK_IDLE);
}

SEC("struct_ops/ext_dispatch")
void BPF_PROG(ext_dispatch, __s32 lane, struct task_struct *prev)
{
	uint32_t cpu = lane;
	struct sidelane_lane_role *role = batch_lane(cpu);

	if (!role)
		return;
	if (!ext_may_run(cpu, role)) {
		if (prev || scx_bpf_dsq_nr_queued(BATCH_DSQ))
			ext_refuse(cpu);
	} else if (!take_next() && prev) {
		set_slice(prev, SLICE_NS);
	}
}

/* Handles a batch thread that stops running. A thread preempted with time left would otherwise be the next on its
 * lane without a call of ext_may_run. */
SEC("struct_ops/ext_stopping")
void BPF_PROG(ext_stopping, struct task_struct *task, bool runnable)
{
	if (runnable)
		set_slice(task, 0);
}

static __always_inline void count_runnable(int32_t change)
{
	struct sidelane_ext_word *ext = ext_word();

	if (ext)
		__sync_fetch_and_add(&ext->runnable, change);
}

SEC("struct_ops/ext_runnable")
void BPF_PROG(ext_runnable, struct task_struct *task, __u64 flags)
{
	count_runnable(1);
}

SEC("struct_ops/ext_quiescent")
void BPF_PROG(ext_quiescent, struct task_struct *task, __u64 flags)
{
	count_runnable(-1);
}

SEC("struct_ops.s/ext_init")
__s32 BPF_PROG(ext_init)
{
	struct sidelane_ext_word *ext = ext_word();
	__s32 error = scx_bpf_create_dsq(BATCH_DSQ, -1);

	if (!error && ext)
		store_once(ext->on, 1);
	return error;
}

/* Handles the end of this scheduler, for any reason: the kernel schedules batch again. From now on the keepers have
 * to hold their lanes as holders. */
SEC("struct_ops/ext_exit")
void BPF_PROG(ext_exit, struct scx_exit_info *info)
{
	struct sidelane_ext_word *ext = ext_word();
	uint32_t cpu;

	if (!ext)
		return;
	bpf_probe_read_kernel_str(ext->reason, sizeof(ext->reason), info->reason);
	bpf_probe_read_kernel_str(ext->message, sizeof(ext->message), info->msg);
	store_once(ext->exit_kind, info->kind);
	__sync_lock_test_and_set(&ext->on, 0);
	bpf_for(cpu, 0, ext->cpu_count) {
		if (batch_lane(cpu))
			ring_for_holder(cpu);
	}
}

SEC(".struct_ops.link")
struct sched_ext_ops ext_ops = {
	.select_cpu = (void *)ext_select_cpu,
	.enqueue = (void *)ext_enqueue,
	.dispatch = (void *)ext_dispatch,
	.runnable = (void *)ext_runnable,
	.stopping = (void *)ext_stopping,
	.quiescent = (void *)ext_quiescent,
	.init = (void *)ext_init,
	.exit = (void *)ext_exit,
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING,
	.timeout_ms = TIMEOUT_MS,
	.name = "sidelane",
};

/* Changes the hold word for a lane's keeper, and makes the lane check it. */
SEC("syscall")
int ext_set_hold(struct sidelane_hold_order *order)
{
	uint32_t cpu = order->lane;
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &cpu);
	struct sidelane_lane_role *role = batch_lane(cpu);

	if (!hold || !role)
		return -1;
	/* Full barrier: either this program sees that the service has started, or the service sees the new state. */
	if (__sync_lock_test_and_set(&hold->state, order->state) == SIDELANE_LENT && order->state != SIDELANE_LENT)
		ext_stop_lending(hold);
	scx_bpf_kick_cpu(cpu, ext_may_run(cpu, role) ? SCX_KICK_IDLE : SCX_KICK_PREEMPT);
	return 0;
}

#endif
