/* SPDX-License-Identifier: Apache-2.0
 *
 * A service without clients that emits requests: AT_ONCE requests arrive together, each takes
 * WORK_MS, and then there are none for REST_MS, repeatedly. With a fourth argument it also listens
 * on a TCP port.
 */
#include "../sidelane.h"

#include <stdlib.h>
#include <sys/socket.h>

static void work_for(uint64_t length_ns)
{
	uint64_t end_ns = sidelane_now_ns() + length_ns;

	while (sidelane_now_ns() < end_ns)
		;
}

int main(int argc, char **argv)
{
	uint64_t id, first = 1, end, work_ns, rest_ms;
	struct timespec rest;

	if (argc < 4 || (argc > 4 && listen(socket(AF_INET, SOCK_STREAM, 0), 1)))
		return 2;
	work_ns = strtoul(argv[1], 0, 10) * 1000000;
	rest_ms = strtoul(argv[2], 0, 10);
	rest.tv_sec = rest_ms / 1000;
	rest.tv_nsec = rest_ms % 1000 * 1000000;
	for (;; first = end) {
		end = first + strtoul(argv[3], 0, 10);
		for (id = first; id < end; id++)
			sidelane_request_receive(id);
		for (id = first; id < end; id++) {
			sidelane_request_start(id);
			work_for(work_ns);
			sidelane_request_finish(id);
		}
		nanosleep(&rest, 0);
	}
}
