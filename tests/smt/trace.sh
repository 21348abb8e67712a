# shellcheck shell=sh
# shellcheck disable=SC2154 # kernel.sh sets service and port
# Traces of requests that are slow for a known reason, or that end without a response: the reason is named on every
# kernel that can tell it. Times in the emulator have no meaning, so a planted delay is 100 ms.

# shellcheck disable=SC2034 # init.sh uses it
TRACE_TESTS="trace_causes trace_abandoned"

# start_plant_of CAUSE: a service in which planted requests are slow for that cause; sets `service` and `port`.
start_plant_of() {
	sidelane-lab plant "$1" --delay-ms 100 --dir /tmp >"/tmp/plant-$1" &
	service=$!
	wait_until grep -q '^ready port=' "/tmp/plant-$1"
	port=$(sed -n 's/^ready port=\([0-9]*\) .*/\1/p' "/tmp/plant-$1")
}

# start_trace ARGUMENT...: traces the service until trace_ends; its result is in /tmp/trace.json.
start_trace() {
	sidelane trace --service "pid:$service" --for 300s --json /tmp/trace.json "$@" >/tmp/trace.out 2>/tmp/trace.err &
	tracer=$!
	wait_until grep -q 'the requests of' /tmp/trace.err
}

trace_ends() {
	kill -INT "$tracer"
	wait "$tracer" || fail "the trace ended with $?: $(tail -n 3 /tmp/trace.err)"
}

# The key of the largest cause.
largest_cause() {
	sed -n '/"found": \[/,/^    \]/s/^ *"cause": "\(.*\)",$/\1/p' /tmp/trace.json | head -n 1
}

# The key of the cause that should be told of a planted one.
cause_of() {
	case $1 in
	stop) echo frozen ;;
	condition) echo hand-over ;;
	file-lock) echo lock ;;
	full-pipe) echo full ;;
	*) echo "$1" ;;
	esac
}

# A lock, waits for another thread, for another process, for a timer and for a service that does not answer, and a stop are
# told apart. Causes that depend on what woke a thread are not claimed where interrupts are taken for threads.
test_trace_causes() {
	needs 'lane tracker' 'request tracepoints'
	told=
	for cause in lock file-lock hand-over condition full-pipe no-answer stop; do
		start_plant_of "$cause"
		start_trace --slo 50ms
		sidelane-lab ask --target "127.0.0.1:$port" --requests 60 --every 10 --truth /tmp/truth >/tmp/asked || fail "$(cat /tmp/asked)"
		trace_ends
		kill -9 "$service"
		found=$(largest_cause)
		[ "$found" = "$(cause_of "$cause")" ] || fail "planted $cause, told '$found': $(head -n 3 /tmp/trace.out)"
		told="$told $cause"
	done
	echo "named:$told"
}

# A client that closes before a response came has abandoned its request, which waits no more.
test_trace_abandoned() {
	needs 'lane tracker' 'request tracepoints'
	start_plant_of stop
	start_trace --slo 20ms
	# The client gives up while the service is stopped.
	kill -STOP "$service"
	for _ in 1 2 3; do
		printf 'GET /plain HTTP/1.1\r\n\r\n' | timeout 1 nc 127.0.0.1 "$port" >/dev/null || true
	done
	kill -CONT "$service"
	wait_until is_answered
	trace_ends
	grep -q 'abandoned by the client without a response' /tmp/trace.out || fail "$(cat /tmp/trace.out)"
	! grep -q 'had no response at the end' /tmp/trace.out || fail "$(cat /tmp/trace.out)"
	grep -o '[0-9]* requests\{0,1\} w[a-z]* abandoned by the client[^.;]*' /tmp/trace.out | head -n 1
}

# The service has seen all that came before.
is_answered() {
	sidelane-lab ask --target "127.0.0.1:$port" --requests 1 --every 100 --truth /tmp/truth-of-one
}
