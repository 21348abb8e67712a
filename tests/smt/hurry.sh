# shellcheck shell=sh
# `sidelane hurry` where all cores are alike: a lane is big while its sibling is idle.

# shellcheck disable=SC2034 # init.sh uses it
HURRY_TESTS="hurry_siblings hurry_sockets"

# Requests are seen at the sockets of a service, by a tracker that knows no lanes.
test_hurry_sockets() {
	needs 'lane tracker' 'request tracepoints'
	start_plant
	sidelane hurry --service "pid:$service" --big 0,1 --little 2,3 >/tmp/hurry.out 2>/tmp/hurry.err &
	agent=$!
	wait_until grep -q 'mapping threads' /tmp/hurry.err
	sidelane-lab ask --target "127.0.0.1:$port" --requests 200 --every 100 --truth /tmp/truth >/tmp/asked || fail "$(cat /tmp/asked)"
	kill -INT "$agent"
	wait "$agent" || fail "hurry ended with $?: $(tail -n 3 /tmp/hurry.err)"
	# What is answered after its last look is not counted.
	seen=$(sed -n 's/.* of \([0-9]*\) requests of .*/\1/p' /tmp/hurry.out)
	{ [ "$seen" -gt 150 ] && [ "$seen" -le 200 ]; } || fail "it saw $seen requests of 200: $(head -n 1 /tmp/hurry.out)"
	head -n 1 /tmp/hurry.out
}

# Of four threads of a service, each on a lane of its own, two work, on one core. One of them gets the other core, whose
# lanes are idle, and the other one stays: it has its core for itself then.
test_hurry_siblings() {
	needs 'lane tracker'
	sidelane-lab batch loop --counter /tmp/counter --threads 4 &
	service=$!
	wait_until has_batch_threads 4
	tids=$(batch_tids)
	taskset -p -c 0-2 "$(echo "$tids" | head -n 1)" >/dev/null
	before=$(places)
	sidelane hurry --service "pid:$service" --siblings --threshold 200ms --stats pipe:/tmp/pipe --log /tmp/moves \
		>/tmp/hurry.out 2>/tmp/run.err &
	agent=$!
	wait_until test -p /tmp/pipe
	exec 3>/tmp/pipe
	for tid in $tids; do
		tell "$tid" "first-$tid"
		tell "$tid" "first-$tid"
		wait_until is_bound "$tid"
	done
	one=$(thread_on 0) other=$(thread_on 1)
	# Both are long at the same moment.
	tell "$one" one "$other" other
	wait_until have_a_core_each "$one" "$other"
	wait_until grep -q 'long requests moved to big cores' /tmp/moves
	exec 3>&-
	kill "$agent"
	wait "$agent" || fail "hurry ended with $?: $(cat /tmp/run.err)"
	grep -q 'lanes of the cores {0-1} {2-3}' /tmp/run.err || fail "it is not said who is big: $(cat /tmp/run.err)"
	grep -q '^sidelane: 1 of ' /tmp/hurry.out || fail "more than one has moved: $(head -n 1 /tmp/hurry.out)"
	[ "$(places)" = "$before" ] || fail "the threads may run on $(places)"
	echo "$(head -n 1 /tmp/hurry.out); the threads have the CPUs that they had"
}

# tell THREAD REQUEST...: the begin of each, or its end the second time, in one write.
tell() {
	now_ms=$(awk '{ printf "%.0f", $1 * 1000 }' /proc/uptime)
	lines=
	while [ $# -gt 0 ]; do
		lines="$lines$1;$2;$now_ms\n"
		shift 2
	done
	printf '%b' "$lines" >&3
}

places() {
	for tid in $tids; do
		echo "$tid $(allowed "$tid")"
	done
}

is_bound() {
	case $(allowed "$1") in
	[0-3]) ;;
	*) return 1 ;;
	esac
}

thread_on() {
	places | awk -v cpu="$1" '$2 == cpu { print $1 }'
}

have_a_core_each() {
	[ $(($(allowed "$1") / 2)) -ne $(($(allowed "$2") / 2)) ]
}
