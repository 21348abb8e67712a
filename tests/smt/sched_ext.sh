# shellcheck shell=sh
# shellcheck disable=SC2154 # tests.sh and lib.sh set service and agent
# The gate `sched-ext`, and a stress test of both gates.

# shellcheck disable=SC2034 # init.sh uses it
SCHED_EXT_TESTS="ext_doctor ext_borrow_idle ext_two_lanes ext_many_threads ext_long_hold ext_put_out ext_put_out_on_two_lanes ext_killed_agent ext_class ext_busy_end ext_stress holder_stress"

EXT=/sys/kernel/sched_ext

needs_sched_ext() {
	[ -e $EXT/state ] || skip "this kernel has no sched_ext"
}

# Waits for $1 threads of batch. The kernel verifies the program first, which takes a second for
# each hundred thousand instructions here.
wait_for_batch() {
	succeeds_within 60 has_batch_threads "$1" || fail "no $1 threads of batch: $(cat /tmp/run.err)"
}

ext_state() {
	cat $EXT/state
}

ext_is() {
	[ "$(ext_state)" = "$1" ]
}

# The number of a thread's scheduling policy.
policy() {
	sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 39
}

ext_figures() {
	echo "overlap $(rounded overlap_percent) %, $(rounded batch_share_of_idle_percent) % of idle, off p50 $(figure reaction_off_p50_ns) p99 $(figure reaction_off_p99_ns) max $(figure reaction_off_max_ns) ns of $(figure reactions_off_count), on p99 $(figure reaction_on_p99_ns) ns"
}

# In an undisturbed run the scheduler is never ejected, and batch is never found outside its lanes
# or its class.
must_be_undisturbed() {
	! grep -E 'put out|outside its lanes|left the class|in a lane that was held' /tmp/run.err || fail "$(grep note /tmp/run.err | head -n 1)"
}

test_ext_doctor() {
	needs_sched_ext
	sidelane doctor --quick -v >/tmp/doctor || fail "doctor ended with $?: $(grep '✗' /tmp/doctor | head -n 3)"
	grep -q 'sched_ext scheduler .*[0-9]' /tmp/doctor || fail "doctor measures none: $(grep sched_ext /tmp/doctor)"
	ext_is disabled || fail "sched_ext is $(ext_state) after the doctor"
	grep 'sched_ext scheduler' /tmp/doctor
}

# Only batch is scheduled by our scheduler, and batch runs while the service does not.
test_ext_borrow_idle() {
	needs_sched_ext
	with_cpuset yes
	start_pulse 0 100 150
	start_run --gate sched-ext --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter --seconds 8
	wait_for_batch 1
	[ "$(policy "$(batch_tids)")" = 7 ] || fail "batch has the policy $(policy "$(batch_tids)")"
	[ "$(policy "$service")" = 0 ] || fail "the service has the policy $(policy "$service")"
	[ "$(cat $EXT/root/ops)" = sidelane ] || fail "the scheduler is $(cat $EXT/root/ops)"
	run_ends_with 0
	must_hold "$(figure overlap_percent) <= 20" "$(ext_figures)"
	must_hold "$(figure batch_share_of_idle_percent) > 30" "$(ext_figures)"
	must_hold "$(figure reactions_off_count) >= 10" "$(ext_figures)"
	must_be_undisturbed
	wait_until ext_is disabled
	wait_until nothing_is_left
	ext_figures
}

# Two lanes, three threads: each lane is used according to its own request lane.
test_ext_two_lanes() {
	needs_sched_ext
	with_cpuset yes
	start_service_on_two_cores
	run_to_end --gate sched-ext --service "pid:$service" --lanes 0:1,2:3 -- sidelane-lab batch loop --counter /tmp/counter --threads 3 --seconds 6
	must_hold "$(figure overlap_percent) <= 20" "$(ext_figures)"
	must_hold "$(figure batch_share_of_idle_percent) > 30" "$(ext_figures)"
	must_be_undisturbed
	ext_figures
}

# Threads of one lane run in turns.
test_ext_many_threads() {
	needs_sched_ext
	with_cpuset yes
	start_pulse 0 20 30
	run_to_end --gate sched-ext --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter --threads 8 --seconds 6
	least=$(counters 8 | sort -n | head -n 1)
	most=$(counters 8 | sort -n | tail -n 1)
	must_hold "$least > 0 && $most < 3 * $least" "units of work $least to $most"
	must_be_undisturbed
	echo "units of work $least to $most; $(ext_figures)"
}

# The first $1 counters of batch, one on each line.
counters() {
	od -A n -t u8 -w64 -N "$((64 * $1))" /tmp/counter | awk '{ print $1 }'
}

# A busy period longer than the kernel's watchdog allows a scheduler: batch is frozen before, and
# comes back after it.
test_ext_long_hold() {
	needs_sched_ext
	with_cpuset yes
	start_pulse 0 40000 3000
	run_to_end --gate sched-ext --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter --seconds 45
	figures="$(figure evictions_count) evictions, $(ext_figures)"
	must_hold "$(figure evictions_count) >= 1" "$figures"
	must_hold "$(figure overlap_percent) <= 1" "$figures"
	must_hold "$(figure batch_share_of_idle_percent) > 30" "$figures"
	must_be_undisturbed
	echo "$figures"
}

put_out() {
	echo S >/proc/sysrq-trigger
}

# When the kernel ejects the scheduler, a holder replaces it, and a message says so.
test_ext_put_out() {
	needs_sched_ext
	with_cpuset yes
	start_pulse 0 100 150
	put_out_in_the_middle "$service" 0:1 1
	must_hold "$(figure overlap_percent) <= 20" "$(ext_figures)"
	must_hold "$(audited 1 hold) >= 10" "$(audited 1 hold) holds"
	must_hold "$(figure batch_share_of_idle_percent) > 30" "$(ext_figures)"
	echo "$(audited 1 hold) holds afterwards; $(ext_figures)"
}

test_ext_put_out_on_two_lanes() {
	needs_sched_ext
	with_cpuset yes
	start_service_on_two_cores
	put_out_in_the_middle "$service" 0:1,2:3 2
	must_hold "$(figure overlap_percent) <= 20" "$(ext_figures)"
	must_hold "$(audited 1 hold) >= 5 && $(audited 3 hold) >= 5" "$(audited 1 hold) and $(audited 3 hold) holds"
	echo "$(audited 1 hold) and $(audited 3 hold) holds afterwards; $(ext_figures)"
}

# put_out_in_the_middle SERVICE LANES THREADS
put_out_in_the_middle() {
	[ -e /proc/sysrq-trigger ] || skip "this kernel has no SysRq to put a scheduler out with"
	start_run --gate sched-ext --service "pid:$1" --lanes "$2" -- \
		sidelane-lab batch loop --counter /tmp/counter --threads "$3" --seconds 8
	wait_for_batch "$3"
	sleep 2
	ext_is enabled || fail "sched_ext is $(ext_state)"
	put_out
	wait_until ext_is disabled
	wait_until is_held_in_person "$3"
	for tid in $(batch_tids); do
		[ "$(policy "$tid")" = 5 ] || fail "thread $tid of batch has the policy $(policy "$tid")"
	done
	run_ends_with 0
	grep -q 'put batch.s scheduler out (.*sysrq' /tmp/run.err || fail "the message is missing: $(cat /tmp/run.err)"
	grep -q 'put batch.s scheduler out' /tmp/audit || fail "the audit log does not have it"
}

is_held_in_person() {
	[ "$(grep -l '^holder-' "/proc/$agent/task"/*/comm | wc -l)" -eq "$1" ]
}

# When Sidelane is killed, no scheduler and no batch remain, and the service is not disturbed.
test_ext_killed_agent() {
	needs_sched_ext
	with_cpuset yes
	start_pulse 0 150 200
	start_run --gate sched-ext --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter
	wait_for_batch 1
	wait_until ext_is enabled
	sleep 1
	kill -9 "$agent"
	wait_until ext_is disabled
	wait_until nothing_is_left
	kill -0 "$service" || fail "the service is gone"
	echo "sched_ext is disabled; batch, groups and claims are gone; the service runs on"
}

# Batch that leaves the scheduling class is put back.
test_ext_class() {
	needs_sched_ext
	with_cpuset yes
	start_pulse 0 100 150
	# `sidelane` with another gate changes the class, and then executes the command.
	start_run --gate sched-ext --service "pid:$service" -- sh -c '
		exec sidelane __batch 3 idle -- sidelane-lab batch loop --counter /tmp/counter --seconds 4 3</dev/zero'
	wait_for_batch 1
	wait_until has_policy "$(batch_tids)" 7
	run_ends_with 0
	grep -q 'left the class' /tmp/run.err || fail "the message is missing: $(cat /tmp/run.err)"
	echo "put back; $(ext_figures)"
}

has_policy() {
	[ "$(policy "$1")" = "$2" ]
}

# Batch can be ended while a long busy period of the service keeps it off its lane.
test_ext_busy_end() {
	needs_sched_ext
	with_cpuset yes
	start_pulse 0 60000 1000
	start_run --gate sched-ext --grace 1s --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter
	# Batch waits for its lane then: the service leaves it no time to start.
	succeeds_within 60 ext_is enabled || fail "sched_ext is $(ext_state): $(cat /tmp/run.err)"
	sleep 1
	began_s=$(uptime_s)
	kill "$agent"
	code=0
	wait "$agent" || code=$?
	took_s=$(($(uptime_s) - began_s))
	must_hold "$took_s <= 5" "it took $took_s s"
	wait_until nothing_is_left
	echo "ended within $took_s s with $code"
}

# ---- Stress ----

# The limit of a reaction. Between the service's start and batch off there are two interrupts, one
# on each lane: microseconds on real CPUs. Here the CPUs are threads of a host with fewer CPUs, and
# any of them may have to wait for the host: 30 ms at times, even on an idle host. So the limit only
# distinguishes reactions that happen from those that never do: batch would then run on to the end
# of a pulse, and half of the pulses are longer than this.
REACTION_MAX_NS=100000000

# Passes, fails, or skips if the host took the CPUs away for too long. The service, which spins on
# the clock half of the time, has measured for how long.
judge_reactions() {
	worst=$(figure reaction_off_max_ns)
	[ "$worst" -gt $REACTION_MAX_NS ] || return 0
	[ "$worst" -gt $((REACTION_MAX_NS / 5 + $(longest_stall_ns))) ] || skip "the host left lanes out for $(longest_stall_ns) ns; $1"
	fail "a reaction took $worst ns; $1"
}

longest_stall_ns() {
	sed -n 's/^stalled_ns=//p' /tmp/pulse-0 /tmp/pulse-2 | sort -n | tail -n 1
}

test_ext_stress() {
	needs_sched_ext
	stress sched-ext
}

test_holder_stress() {
	stress holder
}

# Services with pulses of random length on two cores, and batch whose threads move: to one lane, to
# the other, or to both. SMT_STRESS_SECONDS is the duration.
stress() {
	with_cpuset yes
	seconds=$(cat /stress-seconds 2>/dev/null || echo 10)
	taskset -c 0,2 sh -c '
		sidelane-lab pulse --cpu 0 --busy-us 100000 --idle-us 60000 --vary 1 --stalls --count 1000000 >/tmp/pulse-0 &
		sidelane-lab pulse --cpu 2 --busy-us 100000 --idle-us 100000 --vary 2 --stalls --count 1000000 >/tmp/pulse-2 &
		wait' &
	service=$!
	wait_until grep -q ready /tmp/pulse-0 /tmp/pulse-2
	start_run --gate "$1" --service "pid:$service" --lanes 0:1,2:3 -- \
		sidelane-lab batch loop --counter /tmp/counter --threads 4 --seconds "$seconds"
	wait_for_batch 4
	moves=0
	tids=$(batch_tids)
	while kill -0 "$agent" 2>/dev/null; do
		for lanes in $(random_lanes 20); do
			for tid in $tids; do
				! taskset -p -c "$lanes" "$tid" >/dev/null 2>&1 || moves=$((moves + 1))
				lanes=$(another "$lanes")
			done
		done
	done
	run_ends_with 0
	least=$(counters 4 | sort -n | head -n 1)
	figures="$moves moves, least $least units, $(ext_figures)"
	must_hold "$least > 0" "$figures"
	must_hold "$(figure reactions_off_count) > 3 * $seconds" "$figures"
	! grep -E 'put out|outside its lanes' /tmp/run.err || fail "$(grep note /tmp/run.err | head -n 1)"
	judge_reactions "$figures"
	echo "$seconds s, $figures, 0 above $REACTION_MAX_NS ns; longest stall $(longest_stall_ns) ns"
}

random_lanes() {
	awk -v count="$1" 'BEGIN { srand(); while (count--) print substr("1  3  1,3", 1 + 3 * int(rand() * 3), 3) }'
}

another() {
	case $1 in
	1) echo 3 ;;
	3) echo 1,3 ;;
	*) echo 1 ;;
	esac
}

