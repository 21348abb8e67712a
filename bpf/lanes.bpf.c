// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lane words, summons and accounting: the kernel's part of Sidelane.
 *
 * At each context switch this program writes the thread that runs there into the lane's word, as Elfen's
 * cpu_task_map does (ATC'16 Fig. 9(a)). It adds up how long batch ran beside the service. It summons the holder of a
 * batch lane when batch has to leave. It decides nothing: the policy in user space decides what a summoned holder
 * does.
 *
 * Elfen's batch sees a request when the service runs. This program sees it when the service is *woken*, some
 * microseconds earlier, and on the waker's CPU. So batch can be gone before the request starts, and a waker
 * elsewhere pays for the summons instead of the service.
 *
 * Only a lane's own switches write its word and statistics, so plain stores suffice. `busy` and the hold words are
 * written from several sides, atomically. If one lane's store must be visible before another lane's word is read,
 * the store is an atomic exchange, a full barrier.
 *
 * Compiled with SIDELANE_SCX it is an object of its own that also holds a scheduler for batch
 * (scx/ops.h), for kernels that have sched_ext. The two are one object because a scheduler's CPUs
 * can only be kicked from its own.
 */
#include "kernel/types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "lanes.h"
#include "guard/guard.h"
#include "lane/batch.h"
#include "lane/halt.h"
#include "lane/ledger.h"
#include "lane/request.h"
#include "lane/shares.h"
#include "requests/requests.h"

char LICENSE[] SEC("license") = "GPL";

/* Sampling of cost_ns: one context switch in this many is timed, enough for a mean at little cost. */
#define COST_SAMPLE_EVERY 64

/* ---- Context switches ---- */

/* Returns whether the service still needs its lane after a switch away from its thread. A thread of the service waits
 * for the lane if it was preempted there, or woken while another thread ran. If the lane is idle, no thread waits. */
static __always_inline bool still_busy(struct sidelane_lane_word *word, uint32_t is, bool preempted)
{
	if (is == SIDELANE_LC)
		return true;
	if (is == SIDELANE_IDLE || !load_once(word->busy))
		return false;
	return word->class_ != SIDELANE_LC || preempted;
}

/* One context switch, with the lane's role, words and statistics on its CPU. */
struct lane_switch {
	uint32_t cpu;
	uint32_t was; /* class of the thread that leaves, enum sidelane_class */
	uint32_t is;  /* class of the thread that comes, enum sidelane_class */
	uint32_t identity; /* identity of the thread that comes */
	uint32_t tgid;     /* process id of the thread that comes */
	uint32_t pid;      /* its thread id */
	bool preempted; /* 1: the thread that leaves was preempted */
	uint64_t now_ns;
	struct task_struct *prev;
	struct task_struct *next;
	struct sidelane_lane_word *word;
	struct sidelane_lane_stats *stats;
	struct sidelane_lane_role *role;
};

static __always_inline bool is_on_its_request_lane(const struct lane_switch *s)
{
	return s->role->role == SIDELANE_ROLE_REQUEST && s->role->service == number_of(s->identity);
}

/* Counts a switch, and returns the number of switches before it. */
static __always_inline uint64_t count(const struct lane_switch *s)
{
	uint64_t before = s->stats->switches;

	s->stats->switches = before + 1;
	if (s->is == SIDELANE_LC) {
		s->stats->lc_switches++;
		if (!is_on_its_request_lane(s))
			s->stats->lc_strays++;
	}
	if (s->is == SIDELANE_BATCH && s->role->role != SIDELANE_ROLE_BATCH)
		s->stats->batch_strays++;
	return before;
}

static __always_inline void write_word(const struct lane_switch *s)
{
	struct sidelane_lane_word *word = s->word;

	store_once(word->since_ns, 0);
	if (s->was == SIDELANE_LC && s->is != SIDELANE_LC) {
		store_once(word->lc_done_ns, word->lc_done_ns + (s->now_ns - word->lc_since_ns));
		store_once(word->lc_since_ns, 0);
	} else if (s->was != SIDELANE_LC && s->is == SIDELANE_LC) {
		store_once(word->lc_since_ns, s->now_ns);
	}
	store_once(word->pid, s->pid);
	store_once(word->tgid, s->tgid);
	store_once(word->switches, word->switches + 1);
	/* Full barrier: batch reads the words of its partner lanes next. With self-checking batch, a switch between two
	 * batch threads needs it, too, because only some of them check their lane. */
	if (s->is == SIDELANE_BATCH && (s->was != s->is || settings.self_checking))
		__sync_lock_test_and_set(&word->class_, s->is);
	else
		store_once(word->class_, s->is);
	store_once(word->since_ns, s->now_ns);
}

/* Wakes a keeper that sleeps. A holder that naps on the lane checks the lane words by itself. */
static __always_inline void wake_keeper(uint32_t cpu, uint32_t more_states)
{
	struct sidelane_hold_word *hold = bpf_map_lookup_elem(&hold_words, &cpu);

	if (hold)
		call_keeper(cpu, hold, IN_STATE(SIDELANE_RELEASED) | IN_STATE(SIDELANE_LENT) | more_states, false);
}

/* Counts a thread of a service that was put on a batch lane. The keeper then evicts batch from that lane. */
CHECKED_ALONE int receive_visitor(struct sidelane_lane_word *word, uint32_t cpu)
{
	if (!word)
		return 0;
	__sync_fetch_and_add(&word->lc_visitors, 1);
	wake_keeper(cpu, ext_is_on() ? IN_STATE(SIDELANE_HELD) : 0);
	return 0;
}

/* Handles a batch lane's part of a context switch, before the lane's word is written. */
static __always_inline void batch_lane_before(const struct lane_switch *s, struct sidelane_hold_word *hold)
{
	bool is_batch_lane = s->role->role == SIDELANE_ROLE_BATCH, holder_comes = is_holder(hold, s->pid);

	if (holder_comes)
		s->stats->holder_since_ns = s->now_ns;
	if (s->was != SIDELANE_BATCH && hold->batch_waits && holder_comes && !looks_for_itself(hold->waiting_pid))
		holder_was_first(s->role, s->stats);
	if (s->was == SIDELANE_BATCH)
		note_cut_nap(s->cpu, s->role, s->stats, s->prev->pid, s->word->since_ns, s->now_ns);
	if (s->was == SIDELANE_BATCH && s->is != SIDELANE_BATCH) {
		batch_turn_ends(s->role, s->stats, hold, s->prev->pid, s->now_ns);
		store_once(hold->waiting_pid, s->prev->pid);
		store_once(hold->batch_waits, s->preempted);
	} else if (s->is == SIDELANE_BATCH || s->is == SIDELANE_IDLE) {
		store_once(hold->batch_waits, 0);
	}
	if (!is_batch_lane)
		return;
	/* A thread may belong to the service only since it came to this lane, for example after a restart of the
	 * service. */
	if (s->is == SIDELANE_LC && s->was != SIDELANE_LC)
		receive_visitor(s->word, s->cpu);
	/* A switch between threads of batch changes nothing in the ledger. */
	if (s->was != SIDELANE_BATCH || s->is != SIDELANE_BATCH)
		ledger_turn(s->role, s->stats, hold, turn_kind(s->next, s->is, holder_comes), s->now_ns);
}

/* Handles the rest of the switch on a batch lane to which batch has come. */
static __always_inline void batch_lane_after(const struct lane_switch *s, struct sidelane_hold_word *hold)
{
	if (s->was != SIDELANE_BATCH) {
		s->stats->batch_since_ns = s->now_ns;
		batch_turn_begins(s->role, s->stats, hold, s->prev->pid, s->pid);
	} else if (settings.self_checking || ext_is_on()) {
		batch_turn_goes_on(s->role, hold, s->pid);
	}
}

/* Handles a switch that the kernel did not report. Some kernels hide some of their threads from every tracer, and
 * the switches away from them. The thread that came next is known only now, when it leaves. When it began to run is
 * unknown. */
static __always_inline void note_untold(struct lane_switch *s)
{
	if ((uint32_t)s->prev->pid != s->word->pid && s->stats->switches) {
		store_once(s->stats->untold, s->stats->untold + 1);
		guard_forget(s->cpu);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(lane_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_hold_word *hold = 0;
	struct lane_switch s = {
		.cpu = cpu,
		.prev = prev,
		.next = next,
		.word = lane_word(cpu),
		.stats = bpf_map_lookup_elem(&lane_stats, &cpu),
		.role = bpf_map_lookup_elem(&lane_roles, &cpu),
	};

	if (!s.word || !s.stats || !s.role)
		return 0;
	s.now_ns = bpf_ktime_get_ns();
	s.was = s.word->class_;
	s.pid = next->pid;
	s.tgid = next->tgid;
	s.identity = s.tgid ? identity_of(s.tgid) : 0;
	s.is = s.tgid ? class_of(s.identity) : SIDELANE_IDLE;
	s.preempted = was_preempted(preempt, prev);
	bool busy = still_busy(s.word, s.is, s.preempted);

	find_run_queue(s.stats, next);
	if (s.now_ns - s.word->since_ns >= STOLEN_TURN_MIN_NS)
		note_stolen(s.role, s.stats, s.was);
	/* A lane that is withdrawn has no role, but a turn of batch that began there before still has to end. */
	if (s.role->role == SIDELANE_ROLE_BATCH || s.stats->batch_since_ns) {
		hold = bpf_map_lookup_elem(&hold_words, &cpu);
		if (hold)
			batch_lane_before(&s, hold);
	}
	if (settings.turns)
		note_turn(cpu, s.word, s.was, s.now_ns);
	note_untold(&s);
	note_halt(prev);
	guard_switch(cpu, s.was, s.is, s.now_ns);
	if (settings.shares)
		note_share(cpu, s.is, s.identity, s.now_ns);
	write_word(&s);
	uint64_t switches = count(&s);
	if (s.is == SIDELANE_BATCH) {
		ext_note_class(next);
		if (s.role->role == SIDELANE_ROLE_BATCH && outranks_the_holder(next))
			raise_alarm(cpu, s.stats, s.now_ns);
	}
	bool starts = busy && make_busy(s.word, s.now_ns);
	bool stops = !busy && make_idle(s.word, s.stats, s.now_ns);
	if (settings.requests)
		request_switch(cpu, prev, s.was, s.preempted, next, s.is, s.now_ns);
	if (switches % COST_SAMPLE_EVERY == COST_SAMPLE_EVERY - 1) {
		s.stats->cost_ns += bpf_ktime_get_ns() - s.now_ns;
		s.stats->cost_samples++;
	}
	/* The partner lanes learn that the service has started or stopped, or that batch has come. */
	if (s.role->role == SIDELANE_ROLE_REQUEST) {
		if (starts)
			service_starts(s.role, true);
		else if (stops)
			service_stops(s.role, s.word);
		return 0;
	}
	if (s.is == SIDELANE_BATCH && hold && s.role->role == SIDELANE_ROLE_BATCH)
		batch_lane_after(&s, hold);
	return 0;
}

/* Handles a timer interrupt on any lane. The thread there runs on, but time may have been stolen from it, or it may
 * have to leave. Loaded only if time can be stolen, or lanes are lent. */
SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(lane_timer, struct hrtimer *timer)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct sidelane_lane_word *word = lane_word(cpu);
	struct sidelane_lane_stats *stats = bpf_map_lookup_elem(&lane_stats, &cpu);
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);

	if (!word || !stats || !role || role->role == SIDELANE_ROLE_NONE || !stats->switches)
		return 0;
	note_stolen(role, stats, word->class_);
	if (role->role == SIDELANE_ROLE_BATCH)
		look_for_unanswered(cpu, role, stats, word);
	return 0;
}

/* Handles a wakeup of a thread that may run on one CPU only. Runs on the waker's CPU before the kernel chooses a
 * CPU. */
SEC("tp_btf/sched_waking")
int BPF_PROG(lane_waking, struct task_struct *task)
{
	if (task->nr_cpus_allowed == 1)
		service_woken(task, cpu_of(task));
	return 0;
}

/* Handles a wakeup of any other thread. Runs after the kernel has chosen a CPU, often on that CPU itself, so the
 * service pays for the summons. This program is not loaded if every thread of the services may run on one CPU only. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(lane_wakeup, struct task_struct *task)
{
	if (task->nr_cpus_allowed != 1)
		service_woken(task, cpu_of(task));
	return 0;
}

/* ---- Identities of processes that begin, end or change their cgroup ---- */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(lane_fork, struct task_struct *parent, struct task_struct *child)
{
	if (child->tgid != parent->tgid) {
		give_identity(child->tgid, identity_of(parent->tgid));
		/* The system call clone3 can put a child into another cgroup. */
		if (settings.groups && child->cgroups->dfl_cgrp != parent->cgroups->dfl_cgrp)
			regroup(child->tgid, child->cgroups->dfl_cgrp, true);
	}
	inherit_promise(parent->pid, child->pid);
	return 0;
}

/* Updates identities when a thread moves between cgroups. Loaded only if cgroups may have an identity. A single
 * thread that moves into a group gives its whole process the identity. A single thread that leaves does not take it
 * away: the other threads are still there. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(lane_regroup, struct cgroup *group, const char *path, struct task_struct *task, bool whole_process)
{
	regroup(task->tgid, group, whole_process || task->signal->nr_threads == 1);
	return 0;
}

/* Clears the promise to check of a thread that executes another program. Loaded only if batch may check its own
 * lane. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(lane_exec, struct task_struct *task, int old_pid, struct linux_binprm *program)
{
	forget_promise(old_pid);
	forget_promise(task->pid);
	return 0;
}

/* Removes the identity of a process. Not at its exit: a process that ends still runs for a while, to free its
 * memory. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(lane_free, struct task_struct *task)
{
	if (task->pid == task->tgid && identity_of(task->tgid))
		give_identity(task->tgid, 0);
	forget_promise(task->pid);
	free_word(task);
	return 0;
}

/* ---- Threads of the service that come to a lane or leave it without a context switch ---- */

static __always_inline void note_arrival(struct task_struct *task, uint32_t cpu)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);

	if (role && role->role == SIDELANE_ROLE_BATCH && classify(task) == SIDELANE_LC)
		receive_visitor(lane_word(cpu), cpu);
}

/* Handles a thread that waited for a request lane and is moved to another lane before it ran there. */
static __always_inline void note_departure(struct task_struct *task, uint32_t cpu)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);

	if (!role || role->role != SIDELANE_ROLE_REQUEST || classify(task) != SIDELANE_LC)
		return;
	struct sidelane_lane_word *word = lane_word(cpu);
	struct sidelane_lane_stats *stats = bpf_map_lookup_elem(&lane_stats, &cpu);
	if (word && stats && !load_once(word->lc_since_ns) && make_idle(word, stats, bpf_ktime_get_ns()))
		service_stops(role, word);
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(lane_migrate, struct task_struct *task, int to_cpu)
{
	note_departure(task, cpu_of(task));
	note_arrival(task, to_cpu);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(lane_wakeup_new, struct task_struct *task)
{
	note_arrival(task, cpu_of(task));
	return 0;
}

/* ---- CPUs that go offline or come online ---- */

/* Wakes the keeper of a CPU that goes offline, at each step of the kernel's CPU hotplug: `state`, the state reached, is
 * below `step` only on the way down. After the first such step, no thread of a program may begin a turn on the CPU, so
 * a woken keeper runs on another CPU. */
SEC("tp_btf/cpuhp_exit")
int BPF_PROG(lane_offline, uint32_t cpu, int state, int step, int ret)
{
	struct sidelane_lane_role *role = bpf_map_lookup_elem(&lane_roles, &cpu);

	if (role && role->role == SIDELANE_ROLE_BATCH && state < step)
		wake_keeper(cpu, 0);
	return 0;
}

/* ---- Check of what this program reads about a thread (src/tracker/self_check.rs) ---- */

SEC("raw_tp")
int self_cpu(void *nothing)
{
	return cpu_of(bpf_get_current_task_btf());
}

SEC("raw_tp")
int self_pid(void *nothing)
{
	return bpf_get_current_pid_tgid() >> 32;
}

#ifdef SIDELANE_SCX
#include "scx/ops.h"
#endif

#ifdef SIDELANE_TRACE
#include "trace/trace.h"
#endif
