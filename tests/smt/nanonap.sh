# shellcheck shell=sh
# The tests of kmod/nanonap. The emulator implements MWAIT as a short pause, so a nap here tests the
# path into the kernel and back, not the depth of the sleep.

# shellcheck disable=SC2034 # init.sh uses it
NANONAP_TESTS="nanonap_device nanonap_run nanonap_absent"

MODULE=/nanonap.ko

need_module() {
	[ -e $MODULE ] || skip "no modules can be built for this kernel"
}

load_module() {
	need_module
	insmod $MODULE || fail "insmod: $(dmesg | tail -n 2)"
	[ -c /dev/nanonap ] || fail "the module is loaded, and there is no /dev/nanonap"
}

# The device by itself: refusals, the end of naps, no starvation, and removal.
test_nanonap_device() {
	load_module
	[ "$(stat -c %a /dev/nanonap)" = 600 ] || fail "it may be opened by others: $(stat -c %a /dev/nanonap)"
	nanonap-test 0 1 >/tmp/nanonap 2>&1 || fail "nanonap-test: $(tail -n 1 /tmp/nanonap)"
	exec 3</dev/nanonap
	! rmmod nanonap 2>/dev/null || fail "the module could be unloaded while the device was open"
	exec 3<&-
	rmmod nanonap || fail "the module cannot be unloaded, although it is not in use"
	[ ! -e /dev/nanonap ] || fail "/dev/nanonap is still there"
	! dmesg | grep -Eq 'BUG:|WARNING:|Oops' || fail "$(dmesg | grep -E 'BUG:|WARNING:|Oops' | head -n 1)"
	grep -q '^kernel array: ok' /tmp/nanonap || fail "$(cat /tmp/nanonap)"
	grep '^write: ok' /tmp/nanonap | cut -d ' ' -f 3-
}

# A holder that naps through the device.
test_nanonap_run() {
	load_module
	with_cpuset yes
	start_pulse 0 100 150
	# shellcheck disable=SC2154 # start_pulse has set it
	run_to_end --service "pid:$service" -- sidelane-lab batch loop --counter /tmp/counter --seconds 6
	grep -q '"nap: nanonap' /tmp/run.json || fail "another nap was used: $(grep 'nap: ' /tmp/run.json)"
	figures="overlap $(rounded overlap_percent) %, $(rounded batch_share_of_idle_percent) % of idle, $(figure holds_count) holds"
	must_hold "$(figure holds_count) >= 10" "$figures"
	# Where MWAIT returns at once, a napping lane takes the emulator's time from the other lanes.
	must_hold "$(figure overlap_percent) <= 40" "$figures"
	must_hold "$(figure batch_share_of_idle_percent) > 30" "$figures"
	rmmod nanonap || fail "the module is in use after the run"
	echo "$figures"
}

# Without the device holders use the CPU's own nap, and the doctor reports what is missing.
test_nanonap_absent() {
	[ ! -e /dev/nanonap ] || fail "the device is there"
	# Else the doctor does not end with 0.
	needs 'lane tracker'
	sidelane doctor --quick -v >/tmp/doctor || fail "doctor ended with $?"
	grep -A 2 ' nap ' /tmp/doctor | grep -q 'PAUSE loop' || fail "doctor does not say 'PAUSE loop': $(grep -A 2 ' nap ' /tmp/doctor)"
	grep -q 'kmod/nanonap' /tmp/doctor || fail "doctor does not say how to get it: $(grep -A 2 ' nap ' /tmp/doctor)"
	echo "PAUSE loop; doctor names kmod/nanonap"
}
