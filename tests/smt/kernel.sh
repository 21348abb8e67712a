# shellcheck shell=sh
# shellcheck disable=SC2154 # lib.sh sets service
# What this kernel can do, in the doctor's words, and that it is so: what fails here is what the doctor says.

# shellcheck disable=SC2034 # init.sh uses it
KERNEL_TESTS="doctor_holds requests requests_refused"

# Where the doctor is right about lanes: with all that a run needs, a run ends well; else it is refused before batch
# starts, whatever the doctor blames.
test_doctor_holds() {
	start_pulse 0 100 150
	code=0
	sidelane run --service "pid:$service" -- touch /tmp/batch-ran >/tmp/run.out 2>/tmp/run.err || code=$?
	if grep -q '"run_works": true' "$DOCTOR"; then
		[ $code -eq 0 ] && [ -e /tmp/batch-ran ] || fail "a run ended with $code, though the doctor says that it works"
		echo "a run works, as the doctor says"
	else
		[ $code -ne 0 ] && [ ! -e /tmp/batch-ran ] || fail "a run started batch, though the doctor says that it cannot"
		echo "a run is refused, as the doctor says: $(tail -n 1 /tmp/run.err)"
	fi
}

# Requests that are asked one at a time are counted, every one.
test_requests() {
	needs 'lane tracker' 'request tracepoints'
	start_plant
	start_requests
	wait_until grep -q 'watching the requests' /tmp/requests.err
	sidelane-lab ask --target "127.0.0.1:$port" --requests 200 --every 100 --truth /tmp/truth >/tmp/asked || fail "$(cat /tmp/asked)"
	kill -INT "$watcher"
	wait "$watcher" || fail "it ended with $?: $(tail -n 3 /tmp/requests.err)"
	seen=$(wc -l </tmp/requests.log)
	[ "$seen" -eq 200 ] || fail "it saw $seen requests of 200"
	echo "200 requests of 200"
}

# Without the tracepoints nothing is counted, and the message has the first that is missing.
test_requests_refused() {
	! works 'request tracepoints' || skip "this kernel has the tracepoints of requests"
	start_plant
	start_requests
	! wait "$watcher" || fail "it ended well, though the doctor says: $(detail_of 'request tracepoints')"
	missing=$(detail_of 'request tracepoints' | sed 's/^lacking: //; s/[; ].*//')
	grep -q "$missing" /tmp/requests.err || fail "it does not name $missing: $(cat /tmp/requests.err)"
	[ ! -s /tmp/requests.log ] || fail "it counted requests: $(head -n 1 /tmp/requests.log)"
	echo "refused: $(tail -n 1 /tmp/requests.err)"
}

# A service that answers HTTP; sets `service` and `port`.
start_plant() {
	sidelane-lab plant faults --delay-ms 1 --dir /tmp >/tmp/plant &
	service=$!
	wait_until grep -q '^ready port=' /tmp/plant
	port=$(sed -n 's/^ready port=\([0-9]*\) .*/\1/p' /tmp/plant)
}

start_requests() {
	sidelane requests --service "pid:$service" --for 120s --log /tmp/requests.log >/tmp/requests.out 2>/tmp/requests.err &
	watcher=$!
}
