#!/bin/sh
# Boots the emulated machine of smt-guest.sh with each kernel that can be had, and runs its tests there. What came of it
# stays in tests/smt/results, a file for each kernel, and docs/reference/kernels.md gets a table of these files. What a kernel cannot
# do is told in the words of `sidelane doctor` there; the tests check that it is so.
set -eu

SERIES='5.10 6.1 6.12 6.18 built'

usage() {
	cat <<-END
	usage: scripts/test-kernels.sh [--binaries DIR] [--cache DIR] [--timeout SECONDS] [--tests 'TEST...'] [SERIES...]

	Tests Sidelane on these kernels: $SERIES (our own), or on those that are named.
	  --tests 'TEST...'   only these tests
	The other options are those of smt-guest.sh.
	A test that fails is tried once more: the host may have taken the emulator's CPUs away. A kernel that cannot be had
	is left out, with the reason; what was found with it before stays.
	Exit code: 0 all tests of all booted kernels passed, 1 one failed, 2 wrong arguments, $SKIPPED no kernel was booted.
	END
}

parse_arguments() {
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/sidelane/smt-guest
	wanted=
	passed_on=
	tests=
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage; exit 0 ;;
		--cache | --binaries | --timeout | --tests)
			[ $# -ge 2 ] || { usage >&2; exit 2; }
			case $1 in
			--tests) tests=$2 ;;
			--cache) cache=$2 ;;
			esac
			[ "$1" = --tests ] || passed_on="$passed_on $1 $2"
			shift
			;;
		-*) usage >&2; exit 2 ;;
		*) wanted="$wanted $1" ;;
		esac
		shift
	done
	wanted=${wanted:-$SERIES}
	mkdir -p "$cache"
}

# guest KERNEL [TEST...]: its lines go to a file; returns smt-guest.sh's exit code.
guest() {
	kernel=$1
	shift
	code=0
	# shellcheck disable=SC2086 # a list of arguments
	"$root/scripts/smt-guest.sh" --kernel "$kernel" $passed_on "$@" >"$scratch/lines" 2>"$scratch/errors" || code=$?
	cat "$scratch/lines" "$scratch/errors" >&2
	cp "$cache/console.log" "$cache/console-$kernel.log" 2>/dev/null || true
	return $code
}

# The names of tests with this verdict.
tests_that() {
	awk -v verdict="$1" '$1 == "SMT-TEST" && $3 == verdict { print $2 }' "$said"
}

# Tests one kernel; its lines stay in the file `said`.
try_kernel() {
	said=$scratch/said-$1
	code=0
	# shellcheck disable=SC2086 # a list of tests
	guest "$1" $tests || code=$?
	cp "$scratch/lines" "$said"
	failed=$(tests_that FAILED)
	[ $code -eq 1 ] && [ -n "$failed" ] || return $code
	say "$1: once more: $(echo "$failed" | tr '\n' ' ')"
	code=0
	# shellcheck disable=SC2086 # a list of tests
	guest "$1" $failed || code=$?
	grep -v '^SMT-TEST [^ ]* FAILED' "$said" >"$scratch/kept" || true
	grep -E '^SMT-TEST [^ ]+ (ok|skipped:|FAILED)' "$scratch/lines" >>"$scratch/kept" || true
	mv "$scratch/kept" "$said"
	return $code
}

# ---- The table ----

# of_part PART: the lines of the tests of one column. A test belongs to the column that its name begins with.
of_part() {
	awk -v part="$1" '
	function part_of(test) {
		if (test ~ /^requests/) return "requests"
		if (test ~ /^observe_/) return "observe"
		if (test ~ /^trace_/) return "trace"
		if (test ~ /^ext_/) return "sched-ext"
		if (test == "core_scheduling") return "cookie"
		if (test ~ /^nanonap_/) return "nanonap"
		if (test ~ /^hurry_/) return "hurry"
		return "run"
	}
	$1 == "SMT-TEST" && $3 ~ /^(ok|skipped:|FAILED)$/ && part_of($2) == part' "$said"
}

# What came of the tests of a column.
cell() {
	of_part "$1" | awk '
	$3 == "ok" && $2 ~ /_refused$/ { refused = 1; next }
	$3 == "ok" { passed++; next }
	$3 == "FAILED" { failed = failed " " $2; next }
	/skipped: doctor: / { lacking = $0; sub(/.*skipped: doctor: /, "", lacking); sub(/:.*/, "", lacking) }
	END {
		if (failed) print "fails:" failed
		else if (refused) print "refused"
		else if (!passed) print "–"
		else print passed (passed == 1 ? " test" : " tests") (lacking ? ", without what needs the " lacking : "")
	}'
}

# The doctor says whether a run works; a test has tried whether that is true.
run_cell() {
	if of_part run | grep -q ' doctor_holds ok a run is refused'; then echo refused; else cell run; fi
}

release() {
	sed -n 's/^SMT-TEST booted after .* kernel //p' "$said" | head -n 1
}

row() {
	own=
	[ "$1" != built ] || own=', our own'
	echo "| $(release)$own | $(run_cell) | $(cell requests) | $(cell trace) | $(cell observe) | $(cell sched-ext) | $(cell cookie) |"
}

# What the doctor says is missing, a line for each.
missing() {
	echo
	echo "\`sidelane doctor\` on $(release):"
	echo
	sed -n '/^SMT-DOCTOR exit code/d; s/^SMT-DOCTOR /- /p' "$said" | grep . || echo "- nothing is missing"
}

# Of every kernel that has a result, the oldest first.
block() {
	echo '| kernel | `sidelane run` | requests at sockets | `sidelane trace` | `sidelane observe` | `--gate sched-ext` | core scheduling |'
	echo '|---|---|---|---|---|---|---|'
	for kernel in $SERIES; do
		said=$results/$kernel
		[ ! -e "$said" ] || row "$kernel"
	done
	for kernel in $SERIES; do
		said=$results/$kernel
		[ ! -e "$said" ] || missing
	done
}

# Puts the block between its marks.
write_document() {
	block >"$scratch/block"
	awk -v block="$scratch/block" '
	/^<!-- end of what/ { skips = 0 }
	!skips { print }
	/^<!-- what .make test-kernels. wrote -->/ {
		while ((getline line <block) > 0) print line
		skips = 1
	}' "$document" >"$scratch/document"
	grep -q '^<!-- end of what' "$scratch/document" || fail "$document has no marks for the table"
	cp "$scratch/document" "$document"
}

root=$(cd "$(dirname "$0")/.." && pwd)
document=$root/docs/reference/kernels.md
results=$root/tests/smt/results
# shellcheck source=scripts/smt-packages.sh
. "$root/scripts/smt-packages.sh"
parse_arguments "$@"
scratch=$(mktemp -d "$cache/kernels.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP
result=$SKIPPED
for kernel in $wanted; do
	code=0
	try_kernel "$kernel" || code=$?
	if ! grep -q '^SMT-TEST done' "$said"; then
		say "$kernel is left out: $(tail -n 1 "$scratch/errors")"
		[ $code -eq $SKIPPED ] || result=1
		continue
	fi
	[ $code -eq 0 ] || result=1
	[ "$result" -eq 1 ] || result=0
	mkdir -p "$results"
	cp "$said" "$results/$kernel"
	write_document
done
exit "$result"
