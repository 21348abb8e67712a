/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The few kernel types that lanes.bpf.c reads (and sibling.bpf.c of the lab). Fields are found by
 * name in the running kernel's BTF when the program is loaded (CO-RE), so order and offsets here mean nothing
 * and no generated vmlinux.h is needed. A name with a triple underscore is the same kernel
 * type in another kernel version.
 */
#ifndef SIDELANE_KERNEL_H
#define SIDELANE_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 uint8_t;
typedef __s32 int32_t;
typedef __s64 int64_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef _Bool bool;
#define false 0
#define true 1

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_RB_FORCE_WAKEUP = 1 << 1,
};

#define BPF_F_CURRENT_CPU 0xffffffffULL

/* Timer of a BPF program, since Linux 5.15. It is part of the kernel's interface, so the same in all kernels. */
struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));

/* Value of a counter, as bpf_perf_event_read_value returns it. It is part of the kernel's interface, so the same in
 * all kernels. */
struct bpf_perf_event_value {
	__u64 counter;
	__u64 enabled;
	__u64 running;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
	int level;
	struct cgroup *ancestors[];
};

/* A cgroup before Linux 6.1, with the ids of the groups above it instead of pointers to them. */
struct cgroup___before_6_1 {
	int level;
	__u64 ancestor_ids[];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

typedef struct cpumask {
	unsigned long bits[1];
} cpumask_t;

struct thread_info {
	__u32 cpu;
};

struct rq;
struct mm_struct;

/* Run queue of one cgroup on one CPU; exists with CONFIG_FAIR_GROUP_SCHED. */
struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

/* Scheduler statistics of a thread; exists with CONFIG_SCHED_INFO, which schedstats and delay accounting select. */
struct sched_info {
	unsigned long long last_arrival;
};

/* Times of a CPU, by kind. */
struct kernel_cpustat {
	__u64 cpustat[10];
};

struct signal_struct {
	int nr_threads;
};

struct task_struct {
	struct sched_entity se;
	struct sched_info sched_info;
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	unsigned long jobctl;
	unsigned int policy;
	int prio;
	int pid;
	int tgid;
	char comm[16];
	int nr_cpus_allowed;
	const cpumask_t *cpus_ptr;
	struct css_set *cgroups;
	struct mm_struct *mm;
	struct signal_struct *signal;
};

/* A thread before Linux 5.14, whose state was a signed long named `state`. */
struct task_struct___before_5_14 {
	long state;
};

/* A thread before Linux 5.16, or on later kernels on which thread_info.cpu exists but is not kept up to date. */
struct task_struct___before_5_16 {
	unsigned int cpu;
};

struct linux_binprm;
struct hrtimer;

#pragma clang attribute pop

#endif
