/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Interference with a service on one CPU, as the kernel program counts it: one word for each CPU, shared with user
 * space.
 */
#ifndef SIDELANE_GUARD_WORD_H
#define SIDELANE_GUARD_WORD_H

/* The most events in the formula that measures interference. */
#define SIDELANE_GUARD_EVENTS 4
/* Number of fraction bits of values, which are fixed-point numbers. */
#define SIDELANE_GUARD_SHIFT 24
/* Threshold that no value of interference reaches. */
#define SIDELANE_GUARD_NO_THRESHOLD 0xffffffffffffffffULL

struct sidelane_guard_word {
	/* Settings, written by user space. */
	uint64_t threshold;     /*   0: values from this one on count as interference */
	uint64_t window_ns;     /*   8: run time of the service after which a window ends */
	uint64_t window_max_ns; /*  16: age at which a window ends in any case */
	uint64_t tick_ns;       /*  24: time between two ticks; 0: the counters are read at switches only */
	uint64_t activity_min;  /*  32: counts below this on both sides of the formula's line are no activity */
	uint32_t event_count;   /*  40: number of counted events; 0: nothing is counted on this CPU */
	uint32_t numerator;     /*  44: bit i: event i is above the formula's line (numerator) */
	uint32_t denominator;   /*  48: bit i: event i is below the formula's line (denominator) */
	uint32_t reserved0;     /*  52 */
	uint64_t reserved1;     /*  56 */

	/* Results, written by the kernel program. User space resets `peak` and clears `rung`. */
	uint64_t value;         /*  64: the formula's value in the last window with activity */
	uint64_t value_ns;      /*  72: when the last window with activity ended; 0: there was none */
	uint64_t peak;          /*  80: the highest value since user space last reset it, plus one; 0: none */
	uint64_t crossed_ns;    /*  88: when the value last crossed the threshold */
	uint64_t crossings;     /*  96: number of times that the value crossed the threshold */
	uint32_t above;         /* 104: 1 if the last crossing of the threshold was upwards */
	uint32_t rung;          /* 108: 1 if user space was woken, and has not read the state since */
	uint64_t windows;       /* 112: number of windows with a value */
	uint64_t empty_windows; /* 120: number of windows without activity */

	/* State of the counters, and the counts while the service ran and while other threads ran. */
	uint64_t read_ns;       /* 128: time of the last read; 0: the next read only finds where the counters stand */
	uint64_t reads;         /* 136: number of reads of the counters */
	uint64_t failed_reads;  /* 144: number of failed reads: an event was not there, as on a CPU that was offline */
	uint64_t ticks;         /* 152: number of reads at ticks */
	uint64_t service_ns;    /* 160: time that the service ran between reads */
	uint64_t away_ns;       /* 168: enabled time in which the counters did not count */
	uint64_t away_seen_ns;  /* 176: value of away_ns at the last read */
	uint64_t opened_ns;     /* 184: start of the present window */
	uint64_t window_service_ns; /* 192: value of service_ns at the start of the window */
	uint64_t turn_since_ns; /* 200: start of the service's last turn */
	uint32_t paid_ticks;    /* 208: number of useless ticks that are still allowed */
	uint32_t ticking;       /* 212: 1 if a tick is set */
	uint64_t vain_ticks;    /* 216: number of ticks that found nothing new */
	uint64_t seen[SIDELANE_GUARD_EVENTS];    /* 224: values of the counters at the last read */
	uint64_t service[SIDELANE_GUARD_EVENTS]; /* 256: events counted while the service ran */
	uint64_t others[SIDELANE_GUARD_EVENTS];  /* 288: events counted while the service did not run */
	uint64_t window[SIDELANE_GUARD_EVENTS];  /* 320: value of `service` at the start of the window */
	uint32_t spared;        /* 352: 1 if a short turn since the last read is not counted */
	uint32_t was_brief;     /* 356: 1 if the service's last turn was shorter than a window */
	uint64_t reserved3[3];  /* 360 */
};

#endif
