# shellcheck shell=sh
# The tests of core scheduling.

# shellcheck disable=SC2034 # init.sh uses it
COOKIE_TESTS="core_scheduling"

# Batch with a cookie and another thread on the sibling never run at the same time; without a cookie
# they do.
test_core_scheduling() {
	needs 'core scheduling'
	with_cpuset yes
	sidelane doctor --quick >/tmp/doctor || fail "doctor ended with $?"
	said=$(grep ' core scheduling ' /tmp/doctor) || fail "doctor does not say"
	with=$(echo "$said" | sed 's/.*with a cookie overlaps \([0-9.]*\) %.*/\1/')
	without=$(echo "$said" | sed 's/.*without one \([0-9.]*\) %.*/\1/')
	# An emulator with few CPUs runs the lanes in turns, so the overlap without a cookie is seldom 100
	# %.
	must_hold "$without >= 5 && $with <= $without / 5" "overlap $with % with a cookie, $without % without"
	echo "overlap $with % with a cookie, $without % without"
}
