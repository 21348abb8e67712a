/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that a program shares with Sidelane: a sealed memfd among its open files, made at the
 * first use. Not for users: sidelane.h and sidelane_signal.h include it.
 */
#ifndef SIDELANE_FILE_H
#define SIDELANE_FILE_H

#ifndef _GNU_SOURCE
#define SIDELANE_DEFINED_GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef SIDELANE_DEFINED_GNU_SOURCE
#undef SIDELANE_DEFINED_GNU_SOURCE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Constants of linux/fcntl.h, linux/memfd.h and linux/mman.h, which some C libraries do not
 * define. */
#define SIDELANE_MFD_CLOEXEC 1u
#define SIDELANE_MFD_ALLOW_SEALING 2u
#define SIDELANE_F_ADD_SEALS 1033
#define SIDELANE_F_SEALS 7 /* seals against more seals, shrinking and growing */
#define SIDELANE_MADV_WIPEONFORK 18

/* Marks definitions that a program's object files share if several of them include this file. */
#define SIDELANE_ONE_DEFINITION __attribute__((weak))

/* State of one shared file, for each process and kind of file. After a fork this memory is zero
 * in the child, so that the child makes a file of its own. */
struct sidelane_process {
	void *file;
	int busy;   /* 1 while a thread makes the shared file */
	int failed; /* 1: the shared file could not be made */
};

/* Returns the process's state at `place`, and creates it if there is none; 0 if no memory is
 * available. */
static inline struct sidelane_process *sidelane_process_at(struct sidelane_process **place)
{
	struct sidelane_process *process = __atomic_load_n(place, __ATOMIC_ACQUIRE);
	struct sidelane_process *none = 0;
	void *page;

	if (process)
		return process;
	page = mmap(0, sizeof(*process), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return 0;
	madvise(page, sizeof(*process), SIDELANE_MADV_WIPEONFORK);
	process = (struct sidelane_process *)page;
	if (__atomic_compare_exchange_n(place, &none, process, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return process;
	munmap(page, sizeof(*process));
	return none;
}

/* Creates a file of zeroes and maps it. Returns its memory, or 0 if that is not possible. */
static inline void *sidelane_make_file(const char *name, size_t bytes)
{
	int fd = (int)syscall(SYS_memfd_create, name, SIDELANE_MFD_CLOEXEC | SIDELANE_MFD_ALLOW_SEALING);
	void *memory;

	if (fd < 0)
		return 0;
	/* The file descriptor stays open, because readers find the file among the process's open
	 * files. */
	if (ftruncate(fd, (off_t)bytes) || syscall(SYS_fcntl, fd, SIDELANE_F_ADD_SEALS, SIDELANE_F_SEALS)) {
		close(fd);
		return 0;
	}
	memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		close(fd);
		return 0;
	}
	return memory;
}

/* Returns the memory of the process's shared file at `place`; the first call makes it with
 * `make`. Returns 0 if it cannot be made, or while another thread makes it. */
static inline void *sidelane_file_at(struct sidelane_process **place, void *(*make)(void))
{
	struct sidelane_process *process = sidelane_process_at(place);
	void *file;

	if (!process)
		return 0;
	file = __atomic_load_n(&process->file, __ATOMIC_ACQUIRE);
	if (file || __atomic_load_n(&process->failed, __ATOMIC_RELAXED))
		return file;
	if (__atomic_exchange_n(&process->busy, 1, __ATOMIC_ACQ_REL))
		return 0;
	file = make();
	if (!file)
		__atomic_store_n(&process->failed, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&process->file, file, __ATOMIC_RELEASE);
	return file;
}

#ifdef __cplusplus
}
#endif

#endif
