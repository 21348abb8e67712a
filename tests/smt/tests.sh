# shellcheck shell=sh
# The tests, in their order. Times in an emulated machine have no meaning, so every limit here is
# wide: unmanaged batch would overlap all of the service's time.

# shellcheck disable=SC2034 # init.sh uses it
TESTS="topology borrow_idle two_cores long_hold killed_agent strays_in_cpuset strays_without_cpuset"

# The siblings of the emulated cores are found, and the kernel's features work.
test_topology() {
	needs 'lane tracker'
	with_cpuset yes
	sidelane doctor --quick -v >/tmp/doctor || fail "doctor ended with $?: $(grep '✗' /tmp/doctor | head -n 3)"
	for wanted in '4 CPUs: 2 cores with 2 lanes' 'lane pairs 0:1 2:3' 'cgroup cpuset .*v2' 'cgroup freezer .*v2'; do
		grep -q "$wanted" /tmp/doctor || fail "doctor does not say '$wanted': $(grep -E 'CPUs|SMT|cgroup' /tmp/doctor)"
	done
	echo "lane pairs 0:1 2:3; cpuset and freezer v2"
}

# Batch gets the sibling of the service's CPU by default, while the service is idle.
test_borrow_idle() {
	with_cpuset yes
	start_pulse 0 100 150
	run_to_end --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter --seconds 8
	[ "$(figure pair)" = smt ] || fail "the pair is '$(figure pair)'"
	[ "$(figure batch_lanes)" = 1 ] || fail "batch ran on lanes $(figure batch_lanes)"
	figures="overlap $(rounded overlap_percent) %, $(rounded batch_share_of_idle_percent) % of idle, $(figure holds_count) holds"
	must_hold "$(figure holds_count) >= 10" "$figures"
	must_hold "$(figure overlap_percent) <= 20" "$figures"
	must_hold "$(figure batch_share_of_idle_percent) > 30" "$figures"
	wait_until nothing_is_left
	echo "$figures"
}

# A service on two cores, with batch on the siblings of both.
test_two_cores() {
	with_cpuset yes
	start_service_on_two_cores
	start_run --service "pid:$service" --lanes 0:1,2:3 -- sidelane-lab batch loop --counter /tmp/counter --threads 2 --seconds 6
	wait_until has_batch_threads 2
	tids=$(batch_tids)
	for _ in $(seq 40); do
		must_be_on_batch_lanes "$tids"
		sleep 0.05
	done
	run_ends_with 0
	figures="overlap $(rounded overlap_percent) %, $(rounded batch_share_of_idle_percent) % of idle"
	figures="$figures, holds $(audited 1 hold) on lane 1 and $(audited 3 hold) on lane 3"
	must_hold "$(audited 1 hold) >= 10 && $(audited 3 hold) >= 10" "$figures"
	must_hold "$(figure overlap_percent) <= 20" "$figures"
	must_hold "$(figure batch_share_of_idle_percent) > 30" "$figures"
	! grep -q 'outside its lanes' /tmp/run.err || fail "batch left its lanes: $(grep 'outside' /tmp/run.err)"
	echo "$figures"
}

# A service whose two processes run on CPUs 0 and 2, without other processes.
start_service_on_two_cores() {
	# The service is a shell of its own, with its children.
	taskset -c 0,2 sh -c '
		sidelane-lab pulse --cpu 0 --busy-us 100000 --idle-us 150000 --count 100000 >/tmp/pulse-0 &
		sidelane-lab pulse --cpu 2 --busy-us 150000 --idle-us 250000 --count 100000 >/tmp/pulse-2 &
		wait' &
	service=$!
	wait_until grep -q ready /tmp/pulse-0 /tmp/pulse-2
}

must_be_on_batch_lanes() {
	for tid in $1; do
		case $(last_cpu "$tid") in
		0 | 2) fail "thread $tid of batch ran on request lane $(last_cpu "$tid")" ;;
		esac
	done
}

# A hold that the kernel would interrupt after a second: batch is evicted before that.
test_long_hold() {
	with_cpuset yes
	start_pulse 0 3000 1500
	run_to_end --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter --seconds 9
	figures="overlap $(rounded overlap_percent) %, $(figure evictions_count) evictions"
	figures="$figures, $(rounded wall_s) s, $(rounded batch_share_of_idle_percent) % of idle"
	must_hold "$(figure evictions_count) >= 1" "$figures"
	must_hold "$(figure overlap_percent) <= 0.5" "$figures"
	# After an eviction batch comes back.
	must_hold "$(figure batch_share_of_idle_percent) > 30" "$figures"
	# Freezing does not end batch.
	must_hold "$(figure wall_s) > 8" "$figures"
	echo "$figures"
}

# When Sidelane is killed while it holds a lane, no trace of it remains, and the service is not
# disturbed.
test_killed_agent() {
	with_cpuset yes
	# Too short for an eviction.
	start_pulse 0 150 200
	start_run --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter
	wait_until has_batch_threads 1
	[ -n "$(groups)" ] || fail "batch has no control group"
	wait_until is_held
	# shellcheck disable=SC2154 # start_run has set it
	kill -9 "$agent"
	wait_until nothing_is_left
	kill -0 "$service" || fail "the service is gone"
	[ "$(allowed "$service")" = 0 ] || fail "the service may run on $(allowed "$service")"
	echo "batch, groups and claims are gone; the service runs on"
}

# Batch that moves its own threads cannot leave a cpuset.
test_strays_in_cpuset() {
	with_cpuset yes
	start_stray_run
	[ -e "$(groups)/cpuset.cpus" ] || fail "the group of batch has no cpuset"
	[ "$(cat "$(groups)/cpuset.cpus.effective")" = 1,3 ] || fail "it has $(cat "$(groups)/cpuset.cpus.effective")"
	stray must_be_on_batch_lanes
	end_stray_run
	! grep -q 'outside its lanes' /tmp/run.err || fail "batch left its lanes: $(grep 'outside' /tmp/run.err)"
	echo "$moves moves, $refused refused, overlap $(rounded overlap_percent) %"
}

# Without a cpuset, batch that left its lanes is put back.
test_strays_without_cpuset() {
	with_cpuset no
	start_stray_run
	[ ! -e "$(groups)/cpuset.cpus" ] || fail "the group of batch has a cpuset all the same"
	stray must_be_put_back
	end_stray_run
	grep -q 'outside its lanes' /tmp/run.err || fail "no stray was noted: $(cat /tmp/run.err)"
	echo "$moves moves, $refused refused, overlap $(rounded overlap_percent) %"
}

start_stray_run() {
	start_service_on_two_cores
	start_run --service "pid:$service" --lanes 0:1,2:3 -- sidelane-lab batch loop --counter /tmp/counter --threads 2
	wait_until has_batch_threads 2
}

# Moves threads of batch to random CPUs and calls `$1 THREADS` after each move. Counts the `moves`,
# and those that the kernel `refused`.
stray() {
	moves=0
	refused=0
	tids=$(batch_tids)
	for cpu in 0 2 1 $(random_cpus 17); do
		for tid in $tids; do
			moves=$((moves + 1))
			taskset -p -c "$cpu" "$tid" >/dev/null 2>&1 || refused=$((refused + 1))
		done
		sleep 0.1
		$1 "$tids"
	done
}

random_cpus() {
	awk -v count="$1" 'BEGIN { srand(); while (count--) print int(rand() * 4) }'
}

must_be_put_back() {
	wait_until are_on_batch_lanes "$1"
}

# Checks the CPUs where they ran last and those where they may run.
are_on_batch_lanes() {
	for tid in $1; do
		case $(last_cpu "$tid") in
		0 | 2) return 1 ;;
		esac
		case $(allowed "$tid") in
		1 | 3 | 1,3) ;;
		*) return 1 ;;
		esac
	done
}

end_stray_run() {
	kill "$agent"
	# The lab's batch exits with 0 when it is asked to end.
	run_ends_with 0
	wait_until nothing_is_left
}
