/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The object of a wait: the file that a system call names, the futex operation, the timeout, the peer of a socket.
 * All of it is read when a thread goes to sleep or sends, from its registers and the kernel's own structures.
 */
#ifndef SIDELANE_TRACE_OBJECTS_H
#define SIDELANE_TRACE_OBJECTS_H

#include <bpf/bpf_endian.h>
#include "requests/state.h"
#include "trace/registers.h"
#include "trace/who.h"

/* Constants of the interface to user space. */
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define MODE_SHIFT 12
#define ANON_INODE_FS_MAGIC 0x09041934
/* Value for "no timeout" of a socket, as in include/linux/sched.h. */
#define NO_TIMEOUT 0x7fffffffffffffffll
/* Largest distance of a futex from the stack pointer at the system call at which it counts as a variable on the
 * thread's own stack. The frames of a C library are in between. */
#define OWN_STACK_BYTES 512
/* Largest distance of a futex from the begin of a thread's control block at which it counts as a part of the block. */
#define CONTROL_BLOCK_BYTES 256

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	unsigned long s_magic;
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	struct super_block *i_sb;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	struct path f_path;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct___files {
	struct files_struct *files;
};

struct socket {
	struct sock *sk;
};

struct upid {
	int nr;
};

struct pid {
	struct upid numbers[1];
};

struct in6_addr {
	union {
		__u32 u6_addr32[4];
	} in6_u;
};

struct sock_common___peer {
	__be32 skc_daddr;
	struct in6_addr skc_v6_daddr;
};

struct sock___peer {
	struct pid *sk_peer_pid;
	long sk_rcvtimeo;
};

#pragma clang attribute pop

/* User space's `struct sockaddr_in` and `struct sockaddr_in6`, and the begin of `struct msghdr`, in one type. */
struct user_address {
	__u16 family;
	__be16 port;
	uint32_t v4;
	uint64_t v6[2];
};

struct user_message {
	uint64_t address;
	uint32_t address_bytes;
};

struct user_time {
	int64_t seconds;
	int64_t rest;
};

/* Numbers of system calls on x86-64. */
enum {
	CALL_READ = 0,
	CALL_WRITE = 1,
	CALL_POLL = 7,
	CALL_PREAD = 17,
	CALL_PWRITE = 18,
	CALL_READV = 19,
	CALL_WRITEV = 20,
	CALL_SELECT = 23,
	CALL_SENDFILE = 40,
	CALL_CONNECT = 42,
	CALL_ACCEPT = 43,
	CALL_SENDTO = 44,
	CALL_RECVFROM = 45,
	CALL_SENDMSG = 46,
	CALL_RECVMSG = 47,
	CALL_FCNTL = 72,
	CALL_FLOCK = 73,
	CALL_FSYNC = 74,
	CALL_FDATASYNC = 75,
	CALL_FUTEX = 202,
	CALL_EPOLL_WAIT = 232,
	CALL_PSELECT = 270,
	CALL_PPOLL = 271,
	CALL_SPLICE = 275,
	CALL_EPOLL_PWAIT = 281,
	CALL_ACCEPT4 = 288,
	CALL_RECVMMSG = 299,
	CALL_SENDMMSG = 307,
	CALL_EPOLL_PWAIT2 = 441,
};

static __always_inline bool names_a_file(uint32_t call)
{
	switch (call) {
	case CALL_READ:
	case CALL_WRITE:
	case CALL_PREAD:
	case CALL_PWRITE:
	case CALL_READV:
	case CALL_WRITEV:
	case CALL_SENDFILE:
	case CALL_CONNECT:
	case CALL_ACCEPT:
	case CALL_SENDTO:
	case CALL_RECVFROM:
	case CALL_SENDMSG:
	case CALL_RECVMSG:
	case CALL_FCNTL:
	case CALL_FLOCK:
	case CALL_FSYNC:
	case CALL_FDATASYNC:
	case CALL_SPLICE:
	case CALL_ACCEPT4:
	case CALL_RECVMMSG:
	case CALL_SENDMMSG:
		return true;
	default:
		return false;
	}
}

/* Returns whether a wakeup in a system call means that a pipe or socket has room again: the call reads from it. */
static __always_inline bool receives(uint32_t call)
{
	switch (call) {
	case CALL_READ:
	case CALL_READV:
	case CALL_RECVFROM:
	case CALL_RECVMSG:
	case CALL_RECVMMSG:
	case CALL_SPLICE:
		return true;
	default:
		return false;
	}
}

static __always_inline struct file *file_of(struct task_struct *task, uint64_t number)
{
	struct files_struct *files = ((struct task_struct___files *)task)->files;
	struct fdtable *table = files ? files->fdt : 0;
	void *file = 0;

	if (!table || number >= table->max_fds)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), (void *)((uint64_t)table->fd + number * sizeof(void *)));
	return file ? bpf_rdonly_cast(file, bpf_core_type_id_kernel(struct file)) : 0;
}

/* Returns the kind of a file, an enum sidelane_trace_file. */
static __always_inline uint32_t kind_of(struct file *file, struct inode *inode)
{
	char name[8] = {};

	if (inode->i_sb->s_magic != ANON_INODE_FS_MAGIC)
		return inode->i_mode >> MODE_SHIFT;
	bpf_probe_read_kernel(name, sizeof(name), file->f_path.dentry->d_name.name);
	if (name[1] == 'e' && name[6] == 'f')
		return SIDELANE_TRACE_FILE_EVENT;
	if (name[1] == 't' && name[2] == 'i')
		return SIDELANE_TRACE_FILE_TIMER;
	return SIDELANE_TRACE_FILE_ANONYMOUS;
}

/* Returns a timeout in whole milliseconds, limited to the record's field. Values that the kernel documents as "no
 * timeout" give 0. */
static __always_inline uint32_t whole_ms(uint64_t ms)
{
	return ms < SIDELANE_TRACE_TIMEOUT_UNKNOWN ? ms : SIDELANE_TRACE_TIMEOUT_UNKNOWN;
}

/* Returns the timeout in milliseconds from a time structure at `address`: seconds, and a fraction of a second.
 * `fraction` is the number of the second field's units in one second. */
static __always_inline uint32_t ms_at(uint64_t address, uint64_t fraction)
{
	struct user_time time;

	if (!address)
		return 0;
	if (bpf_probe_read_user(&time, sizeof(time), (void *)address))
		return SIDELANE_TRACE_TIMEOUT_UNKNOWN;
	uint64_t part = fraction / 1000, ms = (uint64_t)time.seconds * 1000 + ((uint64_t)time.rest + part - 1) / part;
	return whole_ms(ms ?: 1);
}

static __always_inline uint32_t ms_of(uint64_t argument)
{
	return (int)argument < 0 ? 0 : whole_ms((uint32_t)argument);
}

#define NANO 1000000000ull
#define MICRO 1000000ull

/* Returns the timeout of a system call in milliseconds; 0 for none. */
static __always_inline uint32_t timeout_of(struct pt_regs *regs, uint32_t call)
{
	switch (call) {
	case CALL_POLL:
		return ms_of(argument(regs, 3));
	case CALL_EPOLL_WAIT:
	case CALL_EPOLL_PWAIT:
		return ms_of(argument(regs, 4));
	case CALL_EPOLL_PWAIT2:
		return ms_at(argument(regs, 4), NANO);
	case CALL_PPOLL:
		return ms_at(argument(regs, 3), NANO);
	case CALL_PSELECT:
		return ms_at(argument(regs, 5), NANO);
	case CALL_SELECT:
		return ms_at(argument(regs, 5), MICRO);
	case CALL_FUTEX:
		return argument(regs, 4) ? SIDELANE_TRACE_TIMEOUT_UNKNOWN : 0;
	default:
		return 0;
	}
}

/* Adds the object of the wait to a SLEEPS_IN record: the file, socket or futex. */
static __always_inline void name_object(struct record *record, struct task_struct *task, struct pt_regs *regs)
{
	uint32_t call = record->detail, kind = 0, timeout = timeout_of(regs, call);
	struct file *file = names_a_file(call) ? file_of(task, record->value) : 0;
	struct inode *inode = file ? file->f_inode : 0;

	if (call == CALL_FUTEX) {
		record->other_tid = argument(regs, 2);
		record->socket = (uint32_t)argument(regs, 3);
		if (record->value - stack_pointer(regs) < OWN_STACK_BYTES)
			record->socket |= SIDELANE_TRACE_OWN_STACK;
	}
	if (inode) {
		kind = kind_of(file, inode);
		record->other_tid = inode->i_ino;
	}
	if (inode && kind == SIDELANE_TRACE_FILE_SOCKET) {
		struct socket *socket =
			bpf_rdonly_cast(file->private_data, bpf_core_type_id_kernel(struct socket));
		struct sock *sock = socket->sk;
		if (sock) {
			record->socket = sock->__sk_common.skc_cookie.counter;
			record->other_tid = sock->__sk_common.skc_family | (uint32_t)sock->sk_protocol << 16;
			if (((struct sock___peer *)sock)->sk_rcvtimeo != NO_TIMEOUT)
				timeout = SIDELANE_TRACE_TIMEOUT_UNKNOWN;
		}
	}
	record->other_pid = kind | timeout << SIDELANE_TRACE_TIMEOUT_SHIFT;
}

/* ---- Addresses of the peers of sockets ---- */

static __always_inline void put_v4(struct record *record, uint32_t address, __be16 port)
{
	record->other_tid = address;
	record->detail |= bpf_ntohs(port);
}

static __always_inline void put_v6(struct record *record, uint64_t first, uint64_t last, __be16 port)
{
	record->other_tid = first;
	record->other_pid = first >> 32;
	record->value = last;
	record->detail |= bpf_ntohs(port);
}

/* Adds the address to which a system call sends, on a socket that is not connected. */
static __always_inline void put_address_of_call(struct record *record, struct task_struct *task)
{
	struct pt_regs *regs = registers_of(task);
	uint32_t call = number_of_call(regs);
	struct user_message message = {};
	struct user_address address = {};

	if (call == CALL_SENDTO)
		message.address = argument(regs, 5);
	else if (call == CALL_SENDMSG || call == CALL_SENDMMSG)
		bpf_probe_read_user(&message, sizeof(message), (void *)argument(regs, 2));
	if (!message.address)
		return;
	/* An IPv4 address is shorter than this structure; the remaining bytes do not matter. */
	if (bpf_probe_read_user(&address, sizeof(address), (void *)message.address))
		bpf_probe_read_user(&address, 16, (void *)message.address);
	if (address.family == AF_INET)
		put_v4(record, address.v4, address.port);
	else if (address.family == AF_INET6)
		put_v6(record, address.v6[0], address.v6[1], address.port);
	record->detail |= (uint32_t)address.family << SIDELANE_TRACE_FAMILY_SHIFT;
}

#define half_of(address, first) \
	((address)->in6_u.u6_addr32[first] | (uint64_t)(address)->in6_u.u6_addr32[(first) + 1] << 32)

/* Adds the address of a socket's peer to a record. The address replaces the number of bytes in records that have no
 * room for both. */
static __always_inline void put_peer(struct record *record, const struct sock *sock)
{
	struct sock_common___peer *peer = (void *)&sock->__sk_common;
	uint32_t family = sock->__sk_common.skc_family;
	__be16 port = sock->__sk_common.skc_dport;

	record->detail = (uint32_t)(sock->sk_protocol & 0xff) << SIDELANE_TRACE_PROTOCOL_SHIFT;
	if ((family == AF_INET || family == AF_INET6) && !port) {
		if (calls_are_known)
			put_address_of_call(record, bpf_get_current_task_btf());
		return;
	}
	record->detail |= family << SIDELANE_TRACE_FAMILY_SHIFT;
	if (family == AF_INET) {
		put_v4(record, peer->skc_daddr, port);
	} else if (family == AF_INET6) {
		put_v6(record, half_of(&peer->skc_v6_daddr, 0), half_of(&peer->skc_v6_daddr, 2), port);
	} else if (family == AF_UNIX) {
		struct pid *pid = ((struct sock___peer *)sock)->sk_peer_pid;
		record->other_pid = pid ? pid->numbers[0].nr : 0;
	}
}

#endif
