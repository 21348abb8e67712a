/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Identity of a process: the service or batch job to which it belongs, if any.
 *
 * User space gives identities to processes, or to a cgroup and so to each process in it, at any depth. This program
 * then keeps them up to date at forks, ends and moves between groups, so that a switch only has to read a table.
 */
#ifndef SIDELANE_WHO_H
#define SIDELANE_WHO_H

#include "maps.h"
#include "kernel/place.h"
#include "kernel/preempted.h"

/* Largest depth of cgroups that is searched: no real tree was deeper. */
#define GROUP_DEPTH_MAX 32

static __always_inline uint64_t *identities_word(uint32_t tgid)
{
	uint32_t index = tgid / SIDELANE_IDENTITIES_PER_WORD;

	return bpf_map_lookup_elem(&process_identities, &index);
}

static __always_inline uint32_t identity_shift(uint32_t tgid)
{
	return tgid % SIDELANE_IDENTITIES_PER_WORD * SIDELANE_IDENTITY_BITS;
}

static __always_inline uint32_t identity_of(uint32_t tgid)
{
	uint64_t *word = identities_word(tgid);

	return word ? load_once(*word) >> identity_shift(tgid) & SIDELANE_IDENTITY_MASK : 0;
}

static __always_inline void give_identity(uint32_t tgid, uint64_t identity)
{
	uint64_t *word = identities_word(tgid);

	if (!word)
		return;
	__sync_fetch_and_and(word, ~((uint64_t)SIDELANE_IDENTITY_MASK << identity_shift(tgid)));
	__sync_fetch_and_or(word, identity << identity_shift(tgid));
}

static __always_inline uint32_t number_of(uint32_t identity)
{
	return identity >> SIDELANE_NUMBER_SHIFT;
}

static __always_inline uint32_t class_of(uint32_t identity)
{
	if (!identity)
		return SIDELANE_OTHER;
	return identity & SIDELANE_IDENTITY_BATCH ? SIDELANE_BATCH : SIDELANE_LC;
}

static __always_inline uint32_t classify(struct task_struct *task)
{
	return task->tgid ? class_of(identity_of(task->tgid)) : SIDELANE_IDLE;
}

static __always_inline bool is_holder(struct sidelane_hold_word *hold, uint32_t pid)
{
	return hold->holder_pid && hold->holder_pid == pid;
}

/* ---- Identities that processes have by their cgroup ---- */

/* Returns the id of the cgroup `level` levels below the root, which is `group` or above it. */
static __always_inline uint64_t ancestor_id(struct cgroup *group, int level)
{
	struct cgroup___before_6_1 *old = (void *)group;
	struct cgroup *ancestor = 0;
	uint64_t id = 0;

	if (bpf_core_field_exists(old->ancestor_ids)) {
		bpf_core_read(&id, sizeof(id), &old->ancestor_ids[level]);
		return id;
	}
	bpf_core_read(&ancestor, sizeof(ancestor), &group->ancestors[level]);
	return BPF_CORE_READ(ancestor, kn, id);
}

/* Returns the identity that the processes of a cgroup have because of it, or of the nearest named cgroup above it. */
static __always_inline uint32_t group_identity(struct cgroup *group, uint32_t hierarchy)
{
	int level = BPF_CORE_READ(group, level);

	for (int above = 0; above < GROUP_DEPTH_MAX && above <= level; above++) {
		struct sidelane_group key = { .id = ancestor_id(group, level - above), .hierarchy = hierarchy };
		uint32_t *identity = bpf_map_lookup_elem(&named_groups, &key);
		if (identity)
			return *identity | SIDELANE_IDENTITY_BY_GROUP;
	}
	return 0;
}

static __always_inline bool comes_from_hierarchy(uint32_t identity, uint32_t hierarchy)
{
	uint32_t key = number_of(identity) << 1 | (identity & SIDELANE_IDENTITY_BATCH);
	uint32_t *of_group = bpf_map_lookup_elem(&group_hierarchies, &key);

	return of_group && *of_group == hierarchy;
}

/* Updates the identity of a process that is in `group` now. `takes_it_out`: the whole process leaves its former
 * cgroup, not one thread of it. An identity that was given to the process itself, not by a cgroup, stays. */
static __always_inline void regroup(uint32_t tgid, struct cgroup *group, bool takes_it_out)
{
	uint32_t hierarchy = BPF_CORE_READ(group, root, hierarchy_id);
	uint32_t had = identity_of(tgid), gets = group_identity(group, hierarchy);

	if (had && !(had & SIDELANE_IDENTITY_BY_GROUP))
		return;
	if (gets || (takes_it_out && had && comes_from_hierarchy(had, hierarchy)))
		give_identity(tgid, gets);
}

#endif
