/* SPDX-License-Identifier: Apache-2.0
 *
 * A service that emits requests when it is told to: for each line it reads, AT_ONCE come together. All
 * but the last take no time; the last is worked on until there is a file of the line's name.
 */
#include "../sidelane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	uint64_t id, first = 1, end;
	char name[4096];

	if (argc != 2)
		return 2;
	/* Whoever looks for services that emit finds this one before its first turn. */
	sidelane_request_receive(first);
	sidelane_request_start(first);
	sidelane_request_finish(first++);
	for (; fgets(name, sizeof(name), stdin); first = end) {
		name[strcspn(name, "\n")] = 0;
		end = first + strtoul(argv[1], 0, 10);
		for (id = first; id < end; id++)
			sidelane_request_receive(id);
		for (id = first; id < end; id++) {
			sidelane_request_start(id);
			while (id + 1 == end && access(name, F_OK))
				;
			sidelane_request_finish(id);
		}
	}
	return 0;
}
