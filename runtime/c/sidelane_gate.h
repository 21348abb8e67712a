/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks for batch programs. A program that calls sidelane_check() often can run under `sidelane
 * run --gate instrumented`, and the service never waits for it.
 *
 *     #include "sidelane_gate.h"
 *
 *     for (i = 0; i < n; i++) {
 *             sidelane_check();
 *             work(i);
 *     }
 *
 * A check is a load, a compare and a branch, and takes less than a nanosecond. It should be at
 * places that the program reaches every few hundred nanoseconds: at the head of inner loops, at the
 * entry of small functions. The time between two checks is batch's reaction time. (Elfen, ATC'16
 * §3.3, Fig. 9(a).)
 *
 * There is no library to link. Under Sidelane the library libsidelane_gate.so is preloaded, and
 * finds this file's page; otherwise the page stays zero and checks do nothing. C99 and C++; GCC or
 * Clang, Linux, x86-64. On other platforms, and in statically linked programs, the check exists and
 * does nothing.
 *
 * Programs that are built with `gcc -pg -mfentry`, `gcc -pg` or `gcc -finstrument-functions` need
 * no change: the library has the functions that these options call.
 */
#ifndef SIDELANE_GATE_RUNTIME_H
#define SIDELANE_GATE_RUNTIME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)

#define SIDELANE_CHECK_PAGE_WORDS 1024
/* Index of the field busy_lanes in struct sidelane_service_word. */
#define SIDELANE_CHECK_WORD 1

/* Page of this program or library with the word that checks read. Sidelane's library maps the
 * service's word over it. */
__attribute__((weak, visibility("hidden"), aligned(4096)))
volatile uint32_t sidelane_check_page[SIDELANE_CHECK_PAGE_WORDS];

/* Function to call when the check word is set; null without Sidelane's library. */
__attribute__((weak, visibility("hidden")))
void (*sidelane_check_slow_path)(void);

/* Function of Sidelane's library that maps the check word; null in programs that run without the
 * library. */
extern void (*sidelane_gate_join(volatile uint32_t *page))(void) __attribute__((weak));

__attribute__((constructor)) static void sidelane_check_join(void)
{
	if (sidelane_gate_join && !sidelane_check_slow_path)
		sidelane_check_slow_path = sidelane_gate_join(sidelane_check_page);
}

/* Checks whether the service needs this core, and if so naps until it does not. Safe in POSIX
 * signal handlers; keeps errno. */
static inline void sidelane_check(void)
{
	if (__builtin_expect(sidelane_check_page[SIDELANE_CHECK_WORD] != 0, 0))
		sidelane_check_slow_path();
}

#else

static inline void sidelane_check(void)
{
}

#endif

/* Functions for programs that generate code, and link or look up the library themselves. */

/* Returns the address of the word that checks read, constant until exec; null without Sidelane. */
uint32_t *sidelane_check_address(void);

/* Naps while the check word is not 0, and returns when the thread may go on. Each thread that is
 * going to check calls it once: Sidelane then relies on that thread's checks. */
void sidelane_gate_slow_path(void);

#ifdef __cplusplus
}
#endif

#endif
