#!/bin/sh
# Causes several hundred faults over all verbs of Sidelane on this machine, one in each round, and checks after each
# that the service was not disturbed and that the machine is as it was found. Needs root. The output is kept in
# out/test-faults/log; the last line counts faults and broken invariants.
#
# Exit code: 0 if no invariant was broken, 1 if one was, 2 if the command line is wrong.
set -eu

usage() {
	cat <<-END
	usage: scripts/test-faults.sh [--seed N] [--minutes N] [--round N]

	  --seed N      which faults, and in which order [default: 1]
	  --minutes N   how long [default: 15]
	  --round N     only this round of the seed
	END
}

while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage; exit 0 ;;
	--seed | --minutes | --round) ;;
	*) usage >&2; exit 2 ;;
	esac
	case ${2-} in
	'' | *[!0-9]*) usage >&2; exit 2 ;;
	esac
	case $1 in
	--seed) export SIDELANE_FAULTS_SEED="$2" ;;
	--minutes) export SIDELANE_FAULTS_MINUTES="$2" ;;
	--round) export SIDELANE_FAULTS_ROUND="$2" ;;
	esac
	shift 2
done
cd "$(dirname "$0")/.."
out=out/test-faults
mkdir -p "$out"
# `cargo test` builds no library that a program can load, and batch that lies about its lane has this one loaded. It
# builds no other program either, and the service is one of the lab.
cargo build --quiet -p sidelane-gate -p sidelane-lab
{ cargo test --quiet -p sidelane --test campaign -- --ignored --nocapture 2>&1 || true; } | tee "$out/log"
# Without this line the campaign has not come to its end.
last=$(grep -E '^[0-9]+ faults, [0-9]+ invariants broken, seed [0-9]+$' "$out/log" || echo 'the campaign has not ended')
echo "$last"
case $last in
*' 0 invariants broken'*) ;;
*) exit 1 ;;
esac
