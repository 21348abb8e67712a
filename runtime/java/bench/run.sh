#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the cost of the agent's checks for real Java programs while the service is idle. A pair
# is two fresh JVMs, without and with the agent, that run the same fixed work in turns after the
# same warm-up. The program waits for the JIT (-Xbatch), so that both are equally compiled after the
# same work, also on a busy machine. Prints one JSON line for each program: the ratio of the working
# thread's CPU time.
#
#   run.sh [--pairs N] [--rounds N] [--warm-up N] [--options AGENT-OPTIONS] [lucene] [h2] [jython]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=programs.sh
. "$here/programs.sh"

prepare
for program in "${programs[@]}"; do
	command=$(command_of "$program")
	"$java" -cp "$cache/classes" Pairs "$program" "$pairs" "$rounds" \
		"$java -Xbatch -cp $cache/classes:$cache/* $command" \
		"env SIDELANE_GATE=1 LD_PRELOAD=$cache/libgate_stub.so $java -javaagent:$target/sidelane-agent.jar=$options -Xbatch -cp $cache/classes:$cache/* $command"
done
