/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Kernel side of a trace: records of the events in the life of services' requests. They are Tailor's kernel events
 * (thesis "SHIM and Its Applications", Table 4.1), and further ones that explain a slow request.
 *
 * Compiled with SIDELANE_TRACE, lanes.bpf.c is an object of its own that also holds these programs; a run without a
 * trace loads none of them. Request tracking records events of sockets and requests (sockets.h) from its own programs,
 * so that no tracepoint has two. User space loads a program if the kernel has its tracepoint and a trace was asked for
 * (src/trace/programs.rs). It leaves out the programs of lanes if there are no lanes.
 *
 * All of this runs in the service's own time, so it has to be cheap. One word of a CPU says whether the running thread
 * serves requests; any other thread costs one read of it. The clock is read once a record.
 */
#ifndef SIDELANE_TRACE_PROGRAMS_H
#define SIDELANE_TRACE_PROGRAMS_H

#include "trace/cpus.h"
#include "trace/disks.h"
#include "trace/network.h"
#include "trace/sched.h"
#include "trace/waits.h"

#endif
