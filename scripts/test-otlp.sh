#!/bin/sh
# Exports slow requests to a real OpenTelemetry collector (tests/otlp/run.py). Usage: test-otlp.sh
#
# The collector is built into a folder of the cache, once: about 3 CPU-minutes. If it cannot be had, or without root, the
# test is skipped with the reason. Exit code: 0 if no check failed, 1 if one did.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
source=$root/tests/otlp
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sidelane/otlp
mkdir -p "$cache"

skip() {
	echo "0 passed, 0 failed, 4 skipped ($1)"
	exit 0
}

[ "$(id -u)" -eq 0 ] || skip "needs root"
command -v python3 >/dev/null || skip "needs python3"
version=$(cd "$source" && cat go.mod go.sum collector.go | sha256sum)
if [ "$(cat "$cache/done" 2>/dev/null)" != "$version" ]; then
	command -v go >/dev/null || skip "needs go"
	echo "test-otlp: building the collector" >&2
	rm -f "$cache/done"
	(cd "$source" && nice go build -trimpath -ldflags='-s -w' -o "$cache/collector" .) >"$cache/log" 2>&1 ||
		skip "the collector cannot be built: see $cache/log"
	echo "$version" >"$cache/done"
fi
exec python3 "$source/run.py" "$root/target/debug/sidelane" "$cache/collector"
