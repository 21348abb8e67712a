# shellcheck shell=sh
# The tests of observing: the choice of lanes on cores with two lanes, and a lane that goes offline.

# shellcheck disable=SC2034 # init.sh uses it
OBSERVE_TESTS="observe_places observe_offline"

# start_observe ARGUMENT...: runs in the background; its output goes to files.
start_observe() {
	sidelane observe --json /tmp/observe.json "$@" >/tmp/observe.out 2>/tmp/observe.err &
	observer=$!
}

# A setting of the last result.
placed() {
	sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" /tmp/observe.json | head -n 1
}

# Words in memory are read from another core, so the service's sibling lane stays free.
test_observe_places() {
	needs 'lane tracker'
	start_pulse 0 20 20
	start_observe --service "pid:$service" --signal lane --period 1ms --for 3s
	wait $observer || fail "it ended with $?: $(cat /tmp/observe.err)"
	must_hold "$(placed observed_lane) == 0 && $(placed observer_lane) >= 2"
	grep -q 'lane: sidelane-lab' /tmp/observe.json || fail "the service was not seen: $(cat /tmp/observe.out)"
	grep -q 'lane: idle' /tmp/observe.json || fail "the lane was never idle: $(cat /tmp/observe.out)"
	echo "observed from lane $(placed observer_lane)"
}

# The samples taken before that are kept.
test_observe_offline() {
	[ -w /sys/devices/system/cpu/cpu3/online ] || skip "this kernel takes no lane offline"
	start_pulse 0 20 20
	start_observe --service "pid:$service" --signal "counter:file:/proc/$service/schedstat#1" --period 1ms --cpu 0 \
		--observer-cpu 3 --for 60s
	wait_until grep -q 'observing' /tmp/observe.err
	sleep 1
	echo 0 >/sys/devices/system/cpu/cpu3/online
	code=0
	wait $observer || code=$?
	echo 1 >/sys/devices/system/cpu/cpu3/online
	[ $code -eq 0 ] || fail "it ended with $code: $(cat /tmp/observe.err)"
	grep -q 'CPU 3 went offline' /tmp/observe.json || fail "the message is missing: $(cat /tmp/observe.json)"
	grep -q '"samples_count": [1-9]' /tmp/observe.json || fail "no sample was kept"
	echo "said, with what was sampled before"
}
