/* SPDX-License-Identifier: GPL-2.0-only
 *
 * How much a service is disturbed on one CPU, as the kernel program counts it: one word a CPU, shared with user
 * space. src/interference mirrors it, and a test compares the layout.
 */
#ifndef SIDELANE_GUARD_WORD_H
#define SIDELANE_GUARD_WORD_H

/* Events of a formula, at most. */
#define SIDELANE_GUARD_EVENTS 4
/* Values are fixed-point numbers with so many bits behind the point. */
#define SIDELANE_GUARD_SHIFT 24
/* A threshold that no value reaches. */
#define SIDELANE_GUARD_NO_THRESHOLD 0xffffffffffffffffULL

struct sidelane_guard_word {
	/* Written by user space. */
	uint64_t threshold;     /*   0: a value from here on is a crossing upwards */
	uint64_t window_ns;     /*   8: a window ends when the service has run for so long in it */
	uint64_t window_max_ns; /*  16: or when it is so old */
	uint64_t tick_ns;       /*  24: the counters are read so often while the service runs on; 0: at switches only */
	uint64_t activity_min;  /*  32: on both sides of the formula's line, less than this is no activity */
	uint32_t event_count;   /*  40: 0: nothing is counted on this CPU */
	uint32_t numerator;     /*  44: bit i: event i is above the formula's line */
	uint32_t denominator;   /*  48: bit i: it is below */
	uint32_t reserved0;     /*  52 */
	uint64_t reserved1;     /*  56 */

	/* Written here, except that user space takes `peak` and clears `rung`. */
	uint64_t value;         /*  64: the formula's, of the last window with activity */
	uint64_t value_ns;      /*  72: when that window ended; 0: there was none */
	uint64_t peak;          /*  80: the highest value plus one since user space took it, 0: none */
	uint64_t crossed_ns;    /*  88: when the threshold was last crossed */
	uint64_t crossings;     /*  96: how often it was */
	uint32_t above;         /* 104: 1: the last crossing was upwards */
	uint32_t rung;          /* 108: 1: user space has been rung for and has not looked since */
	uint64_t windows;       /* 112: that had a value */
	uint64_t empty_windows; /* 120: that had no activity */

	/* The counters, read and given to whoever ran. */
	uint64_t read_ns;       /* 128: the last read; 0: the next one only finds where the counters stand */
	uint64_t reads;         /* 136 */
	uint64_t failed_reads;  /* 144: an event was not there, as on a CPU that was offline */
	uint64_t ticks;         /* 152: of the reads, at ticks */
	uint64_t service_ns;    /* 160: time the service ran between reads */
	uint64_t away_ns;       /* 168: of all time, the counters were given to somebody else */
	uint64_t away_seen_ns;  /* 176 */
	uint64_t opened_ns;     /* 184: start of the window */
	uint64_t window_service_ns; /* 192: service_ns at that time */
	uint64_t turn_since_ns; /* 200: start of the service's last turn */
	uint32_t paid_ticks;    /* 208: so many may yet come that find nothing new */
	uint32_t ticking;       /* 212: 1: a tick will come */
	uint64_t vain_ticks;    /* 216: ticks that found nothing new */
	uint64_t seen[SIDELANE_GUARD_EVENTS];    /* 224: the counters at the last read */
	uint64_t service[SIDELANE_GUARD_EVENTS]; /* 256: counted while the service ran */
	uint64_t others[SIDELANE_GUARD_EVENTS];  /* 288: and while it did not */
	uint64_t window[SIDELANE_GUARD_EVENTS];  /* 320: `service` at the start of the window */
	uint32_t spared;        /* 352: 1: a turn since the last read is not counted */
	uint32_t was_brief;     /* 356: 1: the last turn was shorter than a window */
	uint64_t reserved3[3];  /* 360 */
};

#endif
