# shellcheck shell=sh
# shellcheck disable=SC2154 # tests.sh and lib.sh set service and agent
# Several services with cores of their own, and batch that somebody else has started.

# shellcheck disable=SC2034 # init.sh uses it
SERVICE_TESTS="two_services adopted_group"

# A figure of one service, rounded for users: figure_of TARGET NAME.
figure_of() {
	printf '%.2f' "$(sed -n "/\"setting\": \"$1\"/,/}/s/^ *\"$2\": \([^,]*\),\{0,1\}$/\1/p" /tmp/run.json)"
}

# Two services, each on a core of its own: batch uses the siblings of both, and each has its own holds and figures.
test_two_services() {
	with_cpuset yes
	start_pulse 0 100 150
	first=$service
	start_pulse 2 150 250
	second=$service
	run_to_end --service "pid:$first" --lanes 0:1 --service "pid:$second" --lanes 2:3 -- \
		sidelane-lab batch loop --counter /tmp/counter --threads 2 --seconds 8
	figures="holds $(audited 1 hold) on lane 1 and $(audited 3 hold) on lane 3"
	must_hold "$(audited 1 hold) >= 10 && $(audited 3 hold) >= 10" "$figures"
	for target in "pid:$first" "pid:$second"; do
		figures="$figures; overlap $(figure_of "$target" overlap_percent) %"
		figures="$figures, $(figure_of "$target" batch_share_of_idle_percent) % of idle"
		must_hold "$(figure_of "$target" service_cpu_s) > 1" "$figures"
		must_hold "$(figure_of "$target" overlap_percent) <= 20" "$figures"
		must_hold "$(figure_of "$target" batch_share_of_idle_percent) > 30" "$figures"
	done
	wait_until nothing_is_left
	echo "$figures"
}

# A group with a cpuset is confined by it while it is adopted, and gets its CPUs back, also from an agent that is killed.
test_adopted_group() {
	with_cpuset yes
	mkdir "$CGROUPS/job"
	echo 0-3 >"$CGROUPS/job/cpuset.cpus"
	sh -c "echo \$\$ >$CGROUPS/job/cgroup.procs && exec sidelane-lab batch loop --counter /tmp/counter --threads 2" &
	start_pulse 0 100 150
	for signal in TERM KILL; do
		: >/tmp/audit
		start_run --service "pid:$service" --lanes 0:1 --adopt cgroup:/job
		wait_until is_held
		[ "$(cat "$CGROUPS/job/cpuset.cpus")" = 1 ] || fail "the group has $(cat "$CGROUPS/job/cpuset.cpus")"
		kill -s $signal "$agent"
		wait "$agent" || [ $signal = KILL ] || fail "the run ended with $?: $(tail -n 3 /tmp/run.err)"
		wait_until is_given_back
		[ -n "$(batch_tids)" ] || fail "batch has ended"
	done
	killall -9 sidelane-lab
	wait_until rmdir "$CGROUPS/job"
	echo "CPUs and freezer as they were, after a signal and after a kill"
}

is_given_back() {
	[ "$(cat "$CGROUPS/job/cpuset.cpus")" = 0-3 ] && [ "$(cat "$CGROUPS/job/cgroup.freeze")" = 0 ] && [ -z "$(ls /run)" ]
}
