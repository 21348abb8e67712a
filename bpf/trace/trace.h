/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A trace: records of what happens on the way of services' requests. Tailor's kernel events (thesis "SHIM and Its
 * Applications", Table 4.1), and what else explains a slow request.
 *
 * Compiled with SIDELANE_TRACE, lanes.bpf.c is an object of its own that also holds these programs; a run without a
 * trace loads none of them. Request tracking records what it sees of sockets and requests (sockets.h) from its own
 * programs, so that no tracepoint has two. User space loads a program if the kernel has its tracepoint and a trace
 * was asked for (src/trace/programs.rs). It leaves out the programs of lanes if there are no lanes.
 *
 * Low cost is the aim of everything here, since all of it is the service's own time. One word of a CPU says whether
 * the thread that runs there is on the way of requests; any other thread costs one read of it. The clock is read
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
