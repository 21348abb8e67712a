#!/bin/sh
# Feeds mutated inputs to every parser of foreign bytes (crates/testing), each in a thread of its own test.
set -eu

INPUTS=10000000

usage() {
	cat <<-END
	usage: scripts/fuzz.sh [--inputs N] [--seconds S] [--seed N] [PARSER]

	Tries $INPUTS mutated inputs for every parser, or for one (a folder of tests/fuzz).
	  --inputs N    number of inputs for each parser
	  --seconds S   time for each parser, with as many inputs as fit
	  --seed N      seed of the inputs
	What makes a parser fail is printed, and put into the parser's corpus, tests/fuzz/PARSER.
	END
}

inputs=
seconds=
seed=
only=
while [ $# -gt 0 ]; do
	case $1 in
	--inputs | --seconds | --seed)
		[ $# -ge 2 ] || { usage >&2; exit 2; }
		case $1 in
		--inputs) inputs=$2 ;;
		--seconds) seconds=$2 ;;
		--seed) seed=$2 ;;
		esac
		shift
		;;
	-h | --help) usage; exit 0 ;;
	-*) usage >&2; exit 2 ;;
	*) only=$1 ;;
	esac
	shift
done
[ -n "$inputs$seconds" ] || inputs=$INPUTS
export SIDELANE_FUZZ_PARSER="$only" SIDELANE_FUZZ_INPUTS="$inputs" SIDELANE_FUZZ_SECONDS="$seconds" SIDELANE_FUZZ_SEED="$seed"
cd "$(dirname "$0")/.."
# The tests with this word in their names.
packages="agent channels diagnostics formats hazards host kube observe proxy report requests rollback sim stats timeline top trace"
# shellcheck disable=SC2046 # a list of options
exec cargo test --profile fuzz --no-fail-fast $(printf -- '-p sidelane-%s ' $packages) --lib --test fuzz --test properties \
	-- fuzzed --nocapture
