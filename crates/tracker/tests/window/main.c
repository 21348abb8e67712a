/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Prints what one window comes to: STALLS ACCESSES RAN_NS LEAST on the command line, `ended value windows empty` as the
 * answer. The value is in thousandths. The threshold is 40, the window 50 us.
 */
#include <stdio.h>
#include <stdlib.h>

#include "maps.h"

#include "guard/window.h"

int main(int argc, char **argv)
{
	struct sidelane_guard_word word = {
		.threshold = 40ULL << SIDELANE_GUARD_SHIFT,
		.window_ns = 50000,
		.window_max_ns = 10000000,
		.numerator = 1,
		.denominator = 2,
	};

	if (argc != 5)
		return 2;
	word.service[0] = strtoull(argv[1], 0, 10);
	word.service[1] = strtoull(argv[2], 0, 10);
	word.service_ns = strtoull(argv[3], 0, 10);
	word.activity_min = strtoull(argv[4], 0, 10);
	look_at_window(&word, 0, word.service_ns);
	printf("%d %llu %llu %llu\n", word.windows + word.empty_windows > 0,
	       (unsigned long long)((unsigned __int128)word.value * 1000 >> SIDELANE_GUARD_SHIFT),
	       (unsigned long long)word.windows, (unsigned long long)word.empty_windows);
	return 0;
}
