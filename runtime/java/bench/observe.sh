#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures, for real Java programs, the cost of tags for methods and loops, and the cost of being
# observed from another CPU at the highest rate and about every 1200 cycles (thesis "SHIM and Its
# Applications", section 3.6.1 and Figure 3.7(a)). Prints one JSON line for each program, with
# ratios of the working thread's CPU time; then the hottest methods, if possible only from moments
# in which the program ran.
#
#   observe.sh [--pairs N] [--rounds N] [--warm-up N] [--options AGENT-OPTIONS] [--cpu N]
#              [--observer-cpu N] [lucene] [h2] [jython]
#
# $SIDELANE is the path of sidelane; by default it is looked up in PATH and in the tree.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=programs.sh
. "$here/programs.sh"

sidelane=${SIDELANE:-$(command -v sidelane || echo "$here/../../../target/release/sidelane")}
[ -x "$sidelane" ] || fail "there is no sidelane in PATH and none in target/release: run make build, or set SIDELANE"
cpu=${cpu:-0} observer_cpu=${observer_cpu:-1}
observed_s=3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The JVM is told of two CPUs although taskset leaves it one: it then uses the same collector as
# without taskset.
run="taskset -c $cpu $java -XX:ActiveProcessorCount=2 -XX:+UseG1GC -Xbatch -cp $cache/classes:$cache/*"
observer="$sidelane observe --service pid:PID --signal tag:java.method --observer-cpu $observer_cpu --for ${observed_s}s"

# As root, samples are only taken from moments in which the program's thread ran.
attributed=
[ "$(id -u)" -ne 0 ] || attributed="--signal lane --cpu $cpu"

hottest() {
	local command answers pid
	command=$(command_of "$1")
	mkfifo "$work/requests"
	$run -javaagent:"$target/sidelane-agent.jar=tag=java.method;$options" $command \
		<"$work/requests" >"$work/answers" &
	pid=$!
	exec 3>"$work/requests"
	until grep -q ready "$work/answers"; do
		kill -0 "$pid" 2>/dev/null || fail "$1 ended before it was ready"
		sleep 0.1
	done
	yes '' 2>/dev/null | head -10000 >&3 &
	# shellcheck disable=SC2086
	${observer//PID/$pid} --period 1200cycles $attributed >"$work/hottest" 2>&1 || fail "$(cat "$work/hottest")"
	exec 3>&-
	kill "$pid" && wait "$pid" 2>/dev/null || true
	rm "$work/requests"
	grep -A1 '^java.method: ' "$work/hottest" | awk '/^java.method: / { name = substr($0, 14) }
		$1 == "share" { printf "%6.2f %%  %s\n", $2, name }' | sort -rn | head -8
}

prepare
for program in "${programs[@]}"; do
	command=$(command_of "$program")
	"$java" -cp "$cache/classes" Observed "$program" "$pairs" "$rounds" "$work" \
		"$run $command" \
		"$run -javaagent:$target/sidelane-agent.jar=tag=java.method;$options $command" \
		"$observer --period PERIOD --json RESULT" max 1200cycles
	hottest "$program"
done
