/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A trace: records of what happens on the way of services' requests. Tailor's kernel events (thesis "SHIM and Its
 * Applications", Table 4.1), and what else explains a slow request.
 *
 * Compiled with SIDELANE_TRACE, lanes.bpf.c is an object of its own that also holds these programs; whoever only runs
 * batch loads nothing of them. Request tracking says what it sees of sockets and requests (sockets.h) from its own
 * programs, so that no tracepoint has two. User space loads each program where the kernel has its tracepoint, and a
 * trace asked for (src/trace/programs.rs), and without those of lanes, if nobody is on lanes.
 *
 * Cost is what everything here is built for, since all of it is the service's own time. A CPU knows in one word
 * whether the thread that runs there is on the way of requests; whoever is not costs a look at it. The clock is read
 * once a record.
 */
#ifndef SIDELANE_TRACE_PROGRAMS_H
#define SIDELANE_TRACE_PROGRAMS_H

#include "trace/cpus.h"
#include "trace/disks.h"
#include "trace/network.h"
#include "trace/sched.h"
#include "trace/waits.h"

#endif
