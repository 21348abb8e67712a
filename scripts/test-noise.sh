#!/bin/sh
# Runs the whole test suite on a machine that is made noisy (`sidelane-lab noise`), with late
# summonses, three times. Prints one line for each round and a last line with the total. The output
# of each round is kept in out/test-noise.
#
# usage: scripts/test-noise.sh [ROUNDS [SEED]]
# Exit code: 0 if no test failed in any round, 1 if one did.
set -eu

end_noise() {
	[ -n "$noise" ] || return 0
	kill "$noise" 2>/dev/null || true
	wait "$noise" || true
	noise=
}

# round NUMBER SEED: one run of the suite. The same seed gives the same gaps and delays.
round() {
	log=$out/round-$1
	"$lab" noise --seed "$2" >"$log.noise" 2>"$log.noise-errors" &
	noise=$!
	code=0
	SIDELANE_DELAY_SUMMONS=$2 scripts/test.sh >"$log" 2>&1 || code=$?
	end_noise
	counts=$(tail -n 1 "$log")
	echo "round $1 of $rounds: $counts (seed $2; $(tail -n 1 "$log.noise"))"
	grep -E '^failed: ' "$log" || true
	[ ! -s "$log.noise-errors" ] || cat "$log.noise-errors"
	echo "$counts" >>"$out/counts"
	[ $code -eq 0 ] || failed=1
}

rounds=${1:-3}
seed=${2:-$(date +%s)}
cd "$(dirname "$0")/.."
lab=target/debug/sidelane-lab
out=out/test-noise
noise=
failed=0
trap end_noise EXIT
trap 'exit 130' INT TERM HUP
rm -rf "$out"
mkdir -p "$out"
number=1
while [ "$number" -le "$rounds" ]; do
	round "$number" $((seed + number))
	number=$((number + 1))
done
awk '{ passed += $1; failed += $3; skipped += $5 }
END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$out/counts"
exit $failed
