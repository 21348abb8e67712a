/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Emitted signals: tags and counters that a program keeps in memory, one store for each change, for
 * an observer on another lane (thesis "SHIM and Its Applications", section 3.3: software channels).
 * runtime/c/sidelane.h writes this format, crates/observe/src reads it,
 * crates/formats/src/emit_signal.rs mirrors it and asserts every offset. Any language can write it.
 *
 * A process that emits has one memfd, named SIDELANE_SIGNALS_NAME, among its open files. Readers
 * map it only if it is sealed against shrinking (F_SEAL_SHRINK). It holds
 *
 *   struct sidelane_signals_head
 *   SIDELANE_SIGNALS times: struct sidelane_signal
 *   SIDELANE_SIGNAL_NAMES bytes: what the values of tags mean, see names_end
 *
 * A signal's value has a cache line of its own, so that reading one signal does not slow the writer
 * of another; its name has a second line. A place is claimed by exchanging kind 0 for
 * SIDELANE_SIGNAL_TAKEN, writing the name, and then storing the kind (release).
 *
 * The includer provides the fixed-width types (<stdint.h> or the kernel's own).
 */
#ifndef SIDELANE_ABI_SIGNAL_H
#define SIDELANE_ABI_SIGNAL_H

#define SIDELANE_SIGNALS_NAME "sidelane-signals"
#define SIDELANE_SIGNALS_MAGIC 0x736c616e67697364ull /* "dsignals", little-endian */
#define SIDELANE_SIGNALS_VERSION 1
#define SIDELANE_SIGNALS 128
#define SIDELANE_SIGNAL_NAME_BYTES 48
#define SIDELANE_SIGNAL_NAMES (8u << 20)

enum sidelane_signal_kind {
	SIDELANE_SIGNAL_FREE = 0,
	SIDELANE_SIGNAL_TAG = 1,     /* the signal's value names the program's current activity */
	SIDELANE_SIGNAL_COUNTER = 2, /* the signal's value counts up */
	SIDELANE_SIGNAL_TAKEN = 3,   /* the place is claimed, and its name is being written */
};

struct sidelane_signals_head {
	uint64_t magic;     /*  0: constant that identifies the format; written last, with release */
	uint32_t version;   /*  8: version of this format */
	uint32_t pid;       /* 12: process id of the emitter; the file may be inherited from another process */
	uint32_t signals;   /* 16: number of places for signals */
	uint32_t names;     /* 20: number of bytes for names */
	/* 24: bytes of names in use (release). Each name of a tag's value is a line
	 * "SIGNAL\tVALUE\tNAME\n", with VALUE in decimal. */
	uint64_t names_end;
	uint64_t reserved[4];
};

struct sidelane_signal {
	uint64_t value;                        /*  0: current value of the tag or counter */
	uint64_t unused[7];
	uint32_t kind;                         /* 64: kind of the signal, enum sidelane_signal_kind */
	uint32_t tid;                          /* 68: thread id of the signal's thread; 0: the whole process */
	char name[SIDELANE_SIGNAL_NAME_BYTES]; /* 72: name of the signal, ended by a 0 */
	uint64_t reserved;
};

#endif
