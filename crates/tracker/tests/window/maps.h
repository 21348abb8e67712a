/* SPDX-License-Identifier: GPL-2.0-only
 *
 * In place of bpf/maps.h, so that bpf/guard/window.h compiles as an ordinary program.
 */
#ifndef SIDELANE_MAPS_H
#define SIDELANE_MAPS_H

#include <stdbool.h>
#include <stdint.h>

#define __always_inline inline
#define __uint(name, value) int (*name)[value]
#define SEC(name)
#define BPF_MAP_TYPE_RINGBUF 1
#define BPF_RB_FORCE_WAKEUP 1
#define load_once(x) (*(volatile typeof(x) *)&(x))
#define store_once(x, v) (*(volatile typeof(x) *)&(x) = (v))

static inline long bpf_ringbuf_output(void *ring, void *data, uint64_t size, uint64_t flags)
{
	(void)ring, (void)data, (void)size, (void)flags;
	return 0;
}

#endif
