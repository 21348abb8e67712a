#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures how soon a Java program that indexes text reaches the gate after it was closed:
# reaction.sh [TIMES]. Run run.sh once before: it downloads and builds what this script uses. Prints
# one JSON line.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
target=${SIDELANE_AGENT:-$(cd "$here/.." && pwd)/target}
cache=${SIDELANE_CACHE:-$HOME/.cache/sidelane}/java-bench
text=${SIDELANE_BENCH_TEXT:-/usr/share/doc/linux-doc-6.1}
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
work=$(mktemp -d)
trap 'exec 3>&-; [ -z "${program:-}" ] || kill "$program" 2>/dev/null || true; rm -rf "$work"' EXIT

cc -O2 -Wall -o "$work/reaction" "$here/native/reaction.c" -lm
head -c 4096 /dev/zero >"$work/word"
mkfifo "$work/requests" "$work/answers"

SIDELANE_GATE=1 SIDELANE_STUB_WORD=$work/word LD_PRELOAD=$cache/libgate_stub.so \
	"$java" -javaagent:"$target/sidelane-agent.jar=${SIDELANE_AGENT_OPTIONS:-}" -cp "$cache/classes:$cache/*" \
	LuceneIndex "$text" 1 40 <"$work/requests" >"$work/answers" &
program=$!
exec 3>"$work/requests" 4<"$work/answers"
read -r _ <&4 # ready
yes '' 2>/dev/null | head -100000 >&3 &
cat <&4 >/dev/null &
# A thread that waits for a CPU cannot reach the gate. So as root, the program's main thread gets a
# real-time priority during the measurement of a second or two. The JVM creates that thread first.
main=$(find "/proc/$program/task" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -n | sed -n 2p)
if chrt -f -p 1 "$main" 2>/dev/null; then first="chrt -f 2"; else first=; fi
$first "$work/reaction" "$work/word" "${1:-500}" 100 1000
[ -z "$first" ] || chrt -o -p 0 "$main"
