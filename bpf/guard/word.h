/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The interference with a service on one CPU, as the kernel program counts it: one word a CPU, shared with user
 * space.
 */
#ifndef SIDELANE_GUARD_WORD_H
#define SIDELANE_GUARD_WORD_H

/* The most events of a formula. */
#define SIDELANE_GUARD_EVENTS 4
/* Bits behind the point in values, which are fixed-point numbers. */
#define SIDELANE_GUARD_SHIFT 24
/* A threshold that no value reaches. */
#define SIDELANE_GUARD_NO_THRESHOLD 0xffffffffffffffffULL

struct sidelane_guard_word {
	/* Written by user space. */
	uint64_t threshold;     /*   0: values from here on are above it */
	uint64_t window_ns;     /*   8: a window ends when the service has run for this time in it */
	uint64_t window_max_ns; /*  16: or when it is this old */
	uint64_t tick_ns;       /*  24: time between two ticks; 0: the counters are read at switches only */
	uint64_t activity_min;  /*  32: less than this on both sides of the formula's line is no activity */
	uint32_t event_count;   /*  40: 0: nothing is counted on this CPU */
	uint32_t numerator;     /*  44: bit i: event i is above the formula's line */
	uint32_t denominator;   /*  48: bit i: it is below */
	uint32_t reserved0;     /*  52 */
	uint64_t reserved1;     /*  56 */

	/* Written here, except that user space takes `peak` and clears `rung`. */
	uint64_t value;         /*  64: the formula's value in the last window with activity */
	uint64_t value_ns;      /*  72: when that window ended; 0: there was none */
	uint64_t peak;          /*  80: the highest value since user space took it, plus one; 0: none */
	uint64_t crossed_ns;    /*  88: when the threshold was last crossed */
	uint64_t crossings;     /*  96: times that it was crossed */
	uint32_t above;         /* 104: 1: the last crossing was upwards */
	uint32_t rung;          /* 108: 1: user space was rung for, and has not looked since */
	uint64_t windows;       /* 112: windows with a value */
	uint64_t empty_windows; /* 120: windows without activity */

	/* The counters, and the counts of the side that ran. */
	uint64_t read_ns;       /* 128: the last read; 0: the next one only finds where the counters stand */
	uint64_t reads;         /* 136 */
	uint64_t failed_reads;  /* 144: an event was not there, as on a CPU that was offline */
	uint64_t ticks;         /* 152: reads at ticks */
	uint64_t service_ns;    /* 160: time the service ran between reads */
	uint64_t away_ns;       /* 168: enabled time in which the counters did not count */
	uint64_t away_seen_ns;  /* 176 */
	uint64_t opened_ns;     /* 184: start of the window */
	uint64_t window_service_ns; /* 192: service_ns at that time */
	uint64_t turn_since_ns; /* 200: start of the service's last turn */
	uint32_t paid_ticks;    /* 208: ticks in vain that are still paid for */
	uint32_t ticking;       /* 212: 1: a tick is set */
	uint64_t vain_ticks;    /* 216: ticks that found nothing new */
	uint64_t seen[SIDELANE_GUARD_EVENTS];    /* 224: the counters at the last read */
	uint64_t service[SIDELANE_GUARD_EVENTS]; /* 256: counted while the service ran */
	uint64_t others[SIDELANE_GUARD_EVENTS];  /* 288: counted while it did not */
	uint64_t window[SIDELANE_GUARD_EVENTS];  /* 320: `service` at the start of the window */
	uint32_t spared;        /* 352: 1: a turn since the last read is not counted */
	uint32_t was_brief;     /* 356: 1: the last turn was shorter than a window */
	uint64_t reserved3[3];  /* 360 */
};

#endif
