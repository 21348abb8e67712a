#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the agent's checks cost real Java programs while the service is idle. A pair is two fresh
# JVMs, without and with the agent, that take turns at the same fixed work after the same warm-up.
# The program waits for the JIT (-Xbatch), so that both are as far compiled after the same work on
# a busy machine too. One JSON line a program: the ratio of CPU time of the thread that works.
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
