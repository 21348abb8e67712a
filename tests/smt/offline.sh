# shellcheck shell=sh
# shellcheck disable=SC2154 # tests.sh and lib.sh set service and agent
# A batch lane goes offline while batch borrows it.

# shellcheck disable=SC2034 # init.sh uses it
OFFLINE_TESTS="offline_while_released offline_while_held offline_while_lent offline_one_of_two offline_adopted"

TRACE=/sys/kernel/tracing
# In the kernel's trace real-time threads have priorities below this one.
FAIR_PRIORITY=100

# The service rests, and the lane is batch's: only the kernel program can wake the holder.
test_offline_while_released() {
	needs_hotplug
	start_pulse 0 100 600000
	start_run --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter
	wait_until has_batch_threads 1
	wait_until batch_has_lane 1
	take_lane_away 1
	run_must_have_ended 1
	must_have_been_sent_away 1
	must_be_as_found 0
	echo "the holder was woken and sent batch away; $said"
}

# The kernel takes the CPU away once its holder sleeps again.
test_offline_while_held() {
	needs_hotplug
	start_pulse 0 500 500
	start_run --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter
	wait_until is_held
	take_lane_away 1
	run_must_have_ended 1
	must_be_as_found 0
	echo "$said"
}

# Batch runs beside requests, on their budget.
test_offline_while_lent() {
	needs 'request tracepoints'
	needs_hotplug
	start_asked_service
	start_run --policy fixed-budget --budget 15ms --service "pid:$service" -- \
		sidelane-lab batch loop --counter /tmp/counter
	wait_until is_lent
	take_lane_away 1
	run_must_have_ended 1
	must_be_as_found 0
	echo "$said"
}

# Of two batch lanes one goes: batch was on the other one until the run ended.
test_offline_one_of_two() {
	needs_hotplug
	start_service_on_two_cores
	start_run --service "pid:$service" --lanes 0:1,2:3 -- sidelane-lab batch loop --counter /tmp/counter --threads 2
	wait_until has_batch_threads 2
	take_lane_away 3
	run_must_have_ended 3
	! grep -q 'outside its lanes' /tmp/run.err || fail "batch left its lanes: $(grep 'outside' /tmp/run.err)"
	must_be_as_found 0,2
	echo "$said"
}

# Batch that the user has started goes on where it may run.
test_offline_adopted() {
	needs_hotplug
	mkdir "$CGROUPS/job"
	echo 0-3 >"$CGROUPS/job/cpuset.cpus"
	sh -c "echo \$\$ >$CGROUPS/job/cgroup.procs && exec sidelane-lab batch loop --counter /tmp/counter --threads 2" &
	wait_until has_batch_threads 2
	start_pulse 0 100 600000
	start_run --service "pid:$service" --lanes 0:1 --adopt cgroup:/job
	wait_until batch_has_lane 1
	take_lane_away 1
	run_must_have_ended 1
	must_have_been_sent_away 1
	wait_until is_given_back
	for tid in $(batch_tids); do
		[ "$(allowed "$tid")" = 0,2-3 ] || fail "thread $tid of batch may run on $(allowed "$tid")"
	done
	bring_lane_back 1
	for tid in $(batch_tids); do
		[ "$(allowed "$tid")" = 0-3 ] || fail "thread $tid of batch may run on $(allowed "$tid")"
	done
	killall -9 sidelane-lab
	wait_until rmdir "$CGROUPS/job"
	echo "the group has its CPUs back; $said"
}

needs_hotplug() {
	needs 'lane tracker'
	[ -w /sys/devices/system/cpu/cpu1/online ] || skip "this kernel takes no lane offline"
	with_cpuset yes
}

is_lent() {
	tail -n 1 /tmp/audit | grep -q '"action":"lend"'
}

batch_has_lane() {
	for tid in $(batch_tids); do
		[ "$(last_cpu "$tid")" = "$1" ] || return 1
	done
}

# From now on the kernel writes down where the holder of this lane comes to run, and the lane goes offline.
take_lane_away() {
	echo 0 >$TRACE/tracing_on
	echo >$TRACE/trace
	echo "next_comm == \"holder-$1\"" >$TRACE/events/sched/sched_switch/filter
	echo 1 >$TRACE/events/sched/sched_switch/enable
	echo 1 >$TRACE/tracing_on
	echo 0 >"/sys/devices/system/cpu/cpu$1/online"
}

bring_lane_back() {
	echo 1 >"/sys/devices/system/cpu/cpu$1/online"
}

# The run has ended for the lane $1, and said so. Its holder may have come to a request lane as the real-time thread that
# it was, for it has to notice; then it was one no more. Sets `said`.
run_must_have_ended() {
	run_ends_with 125
	echo 0 >$TRACE/tracing_on
	echo 0 >$TRACE/events/sched/sched_switch/enable
	grep "next_comm=holder-$1" $TRACE/trace >/tmp/holder || true
	grep -q "batch lane $1 went offline" /tmp/run.err ||
		fail "it is not said why the run has ended: $(tail -n 3 /tmp/run.err)"
	grep -q 'choose other lanes with --lanes' /tmp/run.err || fail "it is not said what to do: $(cat /tmp/run.err)"
	comings=$(comings_in_real_time "$1")
	[ "$comings" -le 1 ] || fail "the holder came to other CPUs as a real-time thread $comings times: $(cat /tmp/holder)"
	said="the holder came to another CPU as a real-time thread $comings times"
}

# How often the holder of lane $1 came to another CPU as a real-time thread.
comings_in_real_time() {
	awk -v lane="$1" -v fair=$FAIR_PRIORITY '{
		cpu = $0; sub(/^[^[]*\[/, "", cpu); sub(/\].*/, "", cpu)
		prio = $0; sub(/.*next_prio=/, "", prio)
		if (cpu + 0 != lane && prio + 0 < fair) comings++
	} END { print comings + 0 }' /tmp/holder
}

must_have_been_sent_away() {
	[ "$(audited "$1" evict)" -ge 1 ] || fail "batch was not sent away: $(tail -n 3 /tmp/audit)"
}

# While the lane is away, and when it is back; the service may run on CPUs $1.
must_be_as_found() {
	wait_until nothing_is_left
	kill -0 "$service" || fail "the service is gone"
	[ "$(allowed "$service")" = "$1" ] || fail "the service may run on $(allowed "$service")"
	for lane in 1 3; do
		bring_lane_back $lane
	done
	wait_until nothing_is_left
	[ "$(cat $CGROUPS/cpuset.cpus.effective)" = 0-3 ] || fail "the machine has $(cat $CGROUPS/cpuset.cpus.effective)"
}
