/* SPDX-License-Identifier: Apache-2.0
 *
 * A service that emits requests on command: for each line that it reads, AT_ONCE requests arrive
 * together. All but the last take no time; the last takes until a file with the line's name exists.
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
	/* Creates the file of events now, so that an observer finds this process before the first
	 * line of input. */
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
