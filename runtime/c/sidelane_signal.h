/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals of programs that can be observed: tags and counters that cost one store for each change.
 * Header only, for Linux, C99 or C++ with GCC or Clang; no library to link.
 *
 *   static uint64_t *phase;
 *   phase = sidelane_tag("myapp.phase");        once; never 0
 *   sidelane_name("myapp.phase", 2, "flush");   once for each value, if you like
 *   sidelane_set(phase, 2);                     one store, whenever it changes
 *
 *   sidelane observe --service pid:1234 --signal tag:myapp.phase
 *
 * A word has one cache line, and must have one writer at a time for its values to be meaningful:
 * threads with phases of their own take a word each (sidelane_thread_tag). Without Sidelane on the
 * machine it costs the same. If no memory can be had, the words are written and cannot be observed.
 *
 * abi/ must be on the include path, or be beside runtime/ as in Sidelane's own tree.
 */
#ifndef SIDELANE_SIGNAL_H
#define SIDELANE_SIGNAL_H

#include "sidelane_file.h"

#include <stdio.h>
#include <string.h>

#include "../../abi/signal.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sidelane_signals_file {
	struct sidelane_signals_head head;
	struct sidelane_signal signals[SIDELANE_SIGNALS];
	char names[SIDELANE_SIGNAL_NAMES];
};

SIDELANE_ONE_DEFINITION struct sidelane_process *sidelane_signals_process_;
/* Word for signals that found no place in the file; no observer reads it. */
SIDELANE_ONE_DEFINITION uint64_t sidelane_signal_nowhere_;

static inline void *sidelane_make_signals(void)
{
	struct sidelane_signals_file *file =
		(struct sidelane_signals_file *)sidelane_make_file(SIDELANE_SIGNALS_NAME, sizeof(*file));

	if (!file)
		return 0;
	file->head.version = SIDELANE_SIGNALS_VERSION;
	file->head.pid = (uint32_t)getpid();
	file->head.signals = SIDELANE_SIGNALS;
	file->head.names = SIDELANE_SIGNAL_NAMES;
	__atomic_store_n(&file->head.magic, SIDELANE_SIGNALS_MAGIC, __ATOMIC_RELEASE);
	return file;
}

static inline struct sidelane_signals_file *sidelane_signals(void)
{
	return (struct sidelane_signals_file *)sidelane_file_at(&sidelane_signals_process_, sidelane_make_signals);
}

static inline int sidelane_signal_is(struct sidelane_signal *signal, const char *name, uint32_t kind, uint32_t tid)
{
	return __atomic_load_n(&signal->kind, __ATOMIC_ACQUIRE) == kind && signal->tid == tid &&
	       !strncmp(signal->name, name, SIDELANE_SIGNAL_NAME_BYTES - 1);
}

/* Returns the word with the value of the signal of that name, kind and thread; further calls
 * return the same word. */
static inline uint64_t *sidelane_signal_word(const char *name, uint32_t kind, uint32_t tid)
{
	struct sidelane_signals_file *file = sidelane_signals();
	int i;

	for (i = 0; file && i < SIDELANE_SIGNALS; i++) {
		struct sidelane_signal *signal = &file->signals[i];
		uint32_t is_free = SIDELANE_SIGNAL_FREE;

		if (sidelane_signal_is(signal, name, kind, tid))
			return &signal->value;
		if (!__atomic_compare_exchange_n(&signal->kind, &is_free, SIDELANE_SIGNAL_TAKEN, 0,
						 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		strncpy(signal->name, name, SIDELANE_SIGNAL_NAME_BYTES - 1);
		signal->tid = tid;
		__atomic_store_n(&signal->kind, kind, __ATOMIC_RELEASE);
		return &signal->value;
	}
	return &sidelane_signal_nowhere_;
}

/* Returns the word of a tag, whose value names the current activity. Names longer than 47 bytes
 * are cut. */
static inline uint64_t *sidelane_tag(const char *name)
{
	return sidelane_signal_word(name, SIDELANE_SIGNAL_TAG, 0);
}

/* Returns the word of a counter, whose value increases. */
static inline uint64_t *sidelane_counter(const char *name)
{
	return sidelane_signal_word(name, SIDELANE_SIGNAL_COUNTER, 0);
}

/* Returns the word of a tag of the calling thread. */
static inline uint64_t *sidelane_thread_tag(const char *name)
{
	return sidelane_signal_word(name, SIDELANE_SIGNAL_TAG, (uint32_t)syscall(SYS_gettid));
}

/* Returns the word of a counter of the calling thread. */
static inline uint64_t *sidelane_thread_counter(const char *name)
{
	return sidelane_signal_word(name, SIDELANE_SIGNAL_COUNTER, (uint32_t)syscall(SYS_gettid));
}

/* Sets a tag to `value`. */
static inline void sidelane_set(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Adds `count` to a counter that no other thread writes. */
static inline void sidelane_add(uint64_t *word, uint64_t count)
{
	__atomic_store_n(word, *word + count, __ATOMIC_RELAXED);
}

/* Sets the name of a tag's value in results. Only one thread at a time may call it. */
static inline void sidelane_name(const char *tag, uint64_t value, const char *name)
{
	struct sidelane_signals_file *file = sidelane_signals();
	uint64_t end = file ? file->head.names_end : 0;
	int bytes;

	if (!file)
		return;
	bytes = snprintf(file->names + end, SIDELANE_SIGNAL_NAMES - end, "%s\t%llu\t%s\n", tag,
			 (unsigned long long)value, name);
	if (bytes > 0 && (uint64_t)bytes < SIDELANE_SIGNAL_NAMES - end)
		__atomic_store_n(&file->head.names_end, end + (uint64_t)bytes, __ATOMIC_RELEASE);
}

#ifdef __cplusplus
}
#endif

#endif
