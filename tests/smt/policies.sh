# shellcheck shell=sh
# shellcheck disable=SC2154 # tests.sh and lib.sh set service
# The four policies on SMT siblings, beside a service whose requests are tracked.

# shellcheck disable=SC2034 # init.sh uses it
POLICY_TESTS="policies ext_policies"

# An event loop on CPU 0 that works 20 ms for each request, and a client on CPU 2 that sends 15
# requests a second.
start_asked_service() {
	ifconfig lo 127.0.0.1 up
	tail -f /dev/null | sidelane-lab echo-server --design event-loop --service-us 20000 --cpu 0 --log /tmp/echo >/tmp/echo.out &
	wait_until grep -q ready /tmp/echo.out
	service=$(sed -n 's/.*pid=\([0-9]*\).*/\1/p' /tmp/echo.out)
	port=$(sed -n 's/.*port=\([0-9]*\).*/\1/p' /tmp/echo.out)
	sidelane-lab echo-client --target "127.0.0.1:$port" --rate 15 --seconds 600 --habits 0 --cpu 2 --log /tmp/asked >/dev/null &
}

# Runs batch under each policy through the gate $1. Policies with a budget lend the lane,
# borrow-idle does not.
each_policy() {
	needs 'lane tracker' 'request tracepoints'
	with_cpuset yes
	start_asked_service
	said=
	for policy in borrow-idle fixed-budget refresh-budget dynamic-refresh; do
		budget='--budget 15ms'
		[ $policy != borrow-idle ] || budget=
		# shellcheck disable=SC2086 # two words or none
		run_to_end --gate "$1" --policy $policy $budget --service "pid:$service" -- \
			sidelane-lab batch loop --counter /tmp/counter --seconds 5
		figures="$policy: overlap $(rounded overlap_percent) %, on budget $(rounded lent_overlap_percent) %"
		must_hold "$(figure overlap_percent) <= 20" "$figures"
		if [ $policy = borrow-idle ]; then
			must_hold "$(figure lent_overlap_percent) == 0" "$figures"
		else
			must_hold "$(figure lent_overlap_percent) > 1" "$figures"
		fi
		said="$said$figures; "
		wait_until nothing_is_left
	done
	echo "$said"
}

test_policies() {
	each_policy holder
}

test_ext_policies() {
	needs_sched_ext
	each_policy sched-ext
}
