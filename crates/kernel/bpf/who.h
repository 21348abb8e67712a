/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Who is it? Finds the class of a thread: of the service, of batch, or neither.
 */
#ifndef SIDELANE_WHO_H
#define SIDELANE_WHO_H

#include "maps.h"
#include "preempted.h"

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

static __always_inline bool is_holder(struct sidelane_hold_word *hold, struct task_struct *task)
{
	return hold->holder_pid && hold->holder_pid == (uint32_t)task->pid;
}

#endif
