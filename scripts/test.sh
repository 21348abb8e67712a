#!/bin/sh
# Runs every test that needs no emulated machine: those of the workspace, the model checks, and
# those of runtime/java. All run even if some fail. At the end it lists the failed tests and the
# skipped tests with the reason, and prints one line with the number passed, failed and skipped.
#
# Exit code: 0 if no test failed, 1 if one did.
set -eu

# Converts the output of cargo and Rust's test harness to lines of three fields: verdict, program,
# test or reason; and one line `passed N`. A program that ends without a result has failed as a
# whole.
read_rust_tests() {
	awk '
	function end_program() {
		if (program != "" && !ended)
			print "failed\t" program "\t(the program ended before its tests did)"
		program = ""
	}
	/^ +Running .*\(.*\)$/ || /^ +Doc-tests / {
		end_program()
		program = $0
		sub(/.*\//, "", program)
		sub(/\)$/, "", program)
		sub(/^ +Doc-tests /, "doc ", program)
		ended = 0
	}
	/^test .* \.\.\. FAILED$/ || /^test .* \.\.\. ignored/ {
		line = $0
		sub(/^test /, "", line)
		place = index(line, " ... ")
		test = substr(line, 1, place - 1)
		said = substr(line, place + 5)
		sub(/^ignored,? ?/, "", said)
		if (line ~ /FAILED$/)
			print "failed\t" program "\t" test
		else
			print "skipped\t" program "\t" test "\t" (said == "" ? "ignored" : said)
	}
	/^test result: / {
		ended = 1
		passed += $4
	}
	END {
		end_program()
		print "passed\t" passed + 0
	}' "$1"
}

# rust_tests NAME COMMAND...: runs the command, shows its output, and records the results of its
# tests.
rust_tests() {
	name=$1
	shift
	echo 0 >"$scratch/code"
	: >"$scratch/skips"
	{ SIDELANE_TEST_SKIPS="$scratch/skips" "$@" 2>&1 || echo $? >"$scratch/code"; } | tee "$scratch/said"
	read_rust_tests "$scratch/said" >"$scratch/read"
	# A test that reported why it does not run has returned early, which the harness counts as passed.
	sort -u -k 1,2 "$scratch/skips" | sed 's/^/skipped\t/' >>"$scratch/read"
	if [ "$(cat "$scratch/code")" -ne 0 ] && ! grep -q '^failed' "$scratch/read"; then
		printf 'failed\t%s\t(not one of its tests: the command ended with %s)\n' "$name" "$(cat "$scratch/code")" >>"$scratch/read"
	fi
	sort_out
}

# Adds the verdicts of one command to the total.
sort_out() {
	awk -F '\t' -v skips="$scratch/skips" '
	$1 == "failed" { failed[$2 FS $3] = 1; print; next }
	$1 == "passed" { passed += $2; next }
	{ skipped[$2 FS $3] = $4 }
	END {
		while ((getline line < skips) > 0) {
			split(line, part, FS)
			early[part[1] FS part[2]] = 1
		}
		for (test in skipped)
			if (!(test in failed))
				print "skipped" FS test FS skipped[test]
		for (test in early)
			if (!(test in failed))
				passed--
		print "passed" FS passed
	}' "$scratch/read" >>"$scratch/verdicts"
}

# JUnit leaves its counts in files; with this property Maven goes on after a failed test.
java_tests() {
	if ! command -v mvn >/dev/null || ! command -v javac >/dev/null; then
		printf 'skipped\truntime/java\tall\tneeds a JDK (javac) and Maven (mvn)\n' >>"$scratch/verdicts"
		return
	fi
	rm -rf "$root"/runtime/java/target/*-reports
	code=0
	make --no-print-directory -C "$root/runtime/java" test MVN_FLAGS=-Dmaven.test.failure.ignore=true || code=$?
	reports=$(find "$root/runtime/java/target" -path '*-reports/TEST-*.xml')
	# shellcheck disable=SC2086 # a list of files whose names have no spaces
	[ -z "$reports" ] || awk '
	function attribute(name) {
		return match($0, " " name "=\"[^\"]*\"") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4) : ""
	}
	/<testcase / { test = attribute("classname") "." attribute("name"); count++ }
	/<skipped/ { print "skipped\truntime/java\t" test "\t" attribute("message"); others++ }
	/<(failure|error)[ >]/ { print "failed\truntime/java\t" test; others++ }
	END { print "passed\t" count - others }' $reports >>"$scratch/verdicts"
	if [ $code -ne 0 ] || [ -z "$reports" ]; then
		printf 'failed\truntime/java\t(not one of its tests: make ended with %s)\n' $code >>"$scratch/verdicts"
	fi
}

# Prints the counts on the last line, and exits with 1 if a test failed.
conclude() {
	awk -F '\t' '
	$1 == "passed" { passed += $2; next }
	{ sub(/-[0-9a-f]+$/, "", $2); lines[$1] = lines[$1] sprintf("%s: %s: %s%s\n", $1, $2, $3, $4 == "" ? "" : ": " $4); count[$1]++ }
	END {
		printf "\n%s%s%d passed, %d failed, %d skipped\n", lines["skipped"], lines["failed"], passed, count["failed"], count["skipped"]
		exit count["failed"] > 0
	}' "$scratch/verdicts"
}

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP
: >"$scratch/verdicts"
# `cargo test` builds no library that a program can load, and tests load this one into batch.
cargo build -p sidelane-gate
# Processes whose parents were killed are buried at once. The init of some containers does that once a second, and many
# tests wait for it.
reaper=
! command -v tini >/dev/null || reaper="tini -s --"
# shellcheck disable=SC2086 # a command and its options
rust_tests workspace $reaper cargo test --workspace --no-fail-fast
# Model checking of the lock-free protocols, as in `make loom`.
rust_tests loom env RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom cargo test -p sidelane-formats --release --test loom
java_tests
conclude
