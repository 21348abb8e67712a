# shellcheck shell=sh
# The common part of the guest's tests. Plain busybox sh.

CGROUPS=/sys/fs/cgroup

# ---- Verdicts ----

# Exit code of a test that this kernel cannot run.
SKIPPED=77

# Runs the function test_NAME in a shell of its own and prints its line. A test passes if it reaches
# its end; its last output line is the detail.
run_test() {
	name=$1
	began_s=$(uptime_s)
	(set -eux; "test_$name") >/tmp/said 2>/tmp/errors
	code=$?
	end_all
	case $code in
	0) verdict=ok ;;
	"$SKIPPED") verdict=skipped: ;;
	*)
		verdict=FAILED
		tail -n 40 /tmp/errors
		cat /tmp/run.err /tmp/said 2>/dev/null
		;;
	esac
	echo "SMT-TEST $name $verdict $(tail -n 1 /tmp/said) ($(($(uptime_s) - began_s)) s)"
	rm -rf /tmp/*
}

# Ends the test that calls it.
fail() {
	echo "$*"
	exit 1
}

# Ends the test that calls it as skipped: this kernel lacks something, which is not a failure.
skip() {
	echo "$*"
	exit $SKIPPED
}

# must_hold CONDITION: arithmetic with fractions, e.g. must_hold "0.5 <= 1".
must_hold() {
	awk "BEGIN { exit !($1) }" || fail "does not hold: $1${2:+ ($2)}"
}

# Waits until a command succeeds, for a minute at most: the emulator may share its CPUs with others.
wait_until() {
	succeeds_within 60 "$@" || fail "waited in vain: $*"
}

# succeeds_within SECONDS COMMAND...
succeeds_within() {
	deadline_s=$(($(uptime_s) + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$(uptime_s)" -lt $deadline_s ] || return 1
		sleep 0.05
	done
}

uptime_s() {
	cut -d . -f 1 /proc/uptime
}

# ---- What the doctor says ----

# Its findings, for all tests.
DOCTOR=/doctor.json

# Asks it once, and prints a line for each finding about the kernel that does not work here.
ask_doctor() {
	with_cpuset yes
	for _ in 1 2 3; do
		sidelane doctor --quick -v --json $DOCTOR >/tmp/doctor 2>&1
		code=$?
		# A gate that is measured fails if the host takes the CPUs away meanwhile.
		[ $code -ne 0 ] && works 'lane tracker' || break
	done
	cat /tmp/doctor
	echo "SMT-DOCTOR exit code $code"
	for name in 'BTF' 'lane tracepoints' 'request tracepoints' 'sched_ext' 'core scheduling' 'lane tracker' \
		'cgroup freezer' 'cgroup kill' 'cgroup cpuset' 'PREEMPT_RT'; do
		works "$name" || echo "SMT-DOCTOR $name: $(detail_of "$name")$(said_of "$name" fix | sed 's/^\(.\)/; \1/')"
	done
}

# said_of NAME FIELD: what the doctor's finding has there.
said_of() {
	sed -n "/^      \"$1\": {/,/^      }/s/^ *\"$2\": \(.*[^,]\),\{0,1\}$/\1/p" $DOCTOR | sed 's/^"\(.*\)"$/\1/; s/^null$//'
}

detail_of() {
	said_of "$1" detail
}

works() {
	[ "$(said_of "$1" state)" = works ]
}

# needs NAME...: ends the test that calls it as skipped, in the doctor's words, unless all of that works here.
needs() {
	for name; do
		works "$name" || skip "doctor: $name: $(detail_of "$name")"
	done
}

# ---- Services and batch ----

# start_pulse CPU BUSY_MS IDLE_MS: a service with these busy and idle times; sets `service`.
start_pulse() {
	sidelane-lab pulse --cpu "$1" --busy-us $(($2 * 1000)) --idle-us $(($3 * 1000)) --count 100000 >"/tmp/pulse-$1" &
	# shellcheck disable=SC2034 # the tests use it
	service=$!
	wait_until grep -q ready "/tmp/pulse-$1"
}

# Starts `sidelane run` with these arguments in the background; sets `agent`.
start_run() {
	needs 'lane tracker'
	sidelane run --json /tmp/run.json --audit /tmp/audit "$@" >/tmp/run.out 2>/tmp/run.err &
	agent=$!
}

# Waits for the end of the run, which must have the exit code $1.
run_ends_with() {
	code=0
	wait "$agent" || code=$?
	[ $code -eq "$1" ] || fail "sidelane run ended with $code, not $1: $(tail -n 3 /tmp/run.err)"
}

# Runs `sidelane run` with these arguments; it must end with success.
run_to_end() {
	start_run "$@"
	run_ends_with 0
}

# The value of a figure in the run's result.
figure() {
	sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" /tmp/run.json | head -n 1
}

# The value of a figure, rounded for users.
rounded() {
	printf '%.2f' "$(figure "$1")"
}

# How often the audit log has an action of a lane's holder: audited LANE ACTION.
audited() {
	grep "\"lane\":$1[,}]" /tmp/audit | grep -c "\"action\":\"$2\"" || true
}

is_held() {
	tail -n 1 /tmp/audit | grep -q '"action":"hold"'
}

# The processes of batch.
batch_pids() {
	for pid in $(pidof sidelane-lab); do
		! grep -q '^sidelane-lab.batch' "/proc/$pid/cmdline" 2>/dev/null || echo "$pid"
	done
}

# The threads of batch that compute.
batch_tids() {
	for pid in $(batch_pids); do
		grep -l '^batch-' "/proc/$pid/task"/*/comm 2>/dev/null | cut -d / -f 5
	done
}

has_batch_threads() {
	[ "$(batch_tids | wc -l)" -eq "$1" ]
}

# The CPUs that a thread may run on.
allowed() {
	sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null
}

# The CPU that a thread ran on last.
last_cpu() {
	sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 37
}

# ---- Restoring the machine ----

groups() {
	find $CGROUPS -mindepth 1 -type d -name 'sidelane-*'
}

no_batch() {
	[ -z "$(batch_pids)" ]
}

nothing_is_left() {
	no_batch && [ -z "$(groups)" ] && [ -z "$(ls /run)" ]
}

# Whether control groups made below the root can confine to CPUs: with_cpuset yes|no.
with_cpuset() {
	case $1 in
	yes) echo +cpuset >$CGROUPS/cgroup.subtree_control ;;
	no) echo -cpuset >$CGROUPS/cgroup.subtree_control ;;
	esac
}

# Ends the processes that a test has left running, and brings all CPUs back.
end_all() {
	killall -q sidelane
	killall -q -9 sidelane-lab
	rmmod nanonap 2>/dev/null
	for cpu in 1 2 3; do
		echo 1 >"/sys/devices/system/cpu/cpu$cpu/online"
	done
	succeeds_within 5 nothing_is_left || echo "left behind: batch $(batch_pids), groups $(groups), claims $(ls /run)"
}
