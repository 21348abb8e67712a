# shellcheck shell=sh
# shellcheck disable=SC2154 # lib.sh sets service
# The agent on two cores of two lanes: real groups with lists of CPUs, and interference from a recording. Run by name
# alone so far.

# shellcheck disable=SC2034 # init.sh uses it
AGENT_TESTS="agent_shares_cores"

# When the recording begins to tell interference, and when it ends. The emulator takes seconds to start the agent.
DISTURBED_S=40
CALM_S=46

# One service, two containers: what is decided is what crates/policy/tests/cpus/holmes.rs has for this machine
# (`on_two_cores_batch_leaves_the_sibling_and_comes_back`), and all is given back after a signal and after a kill.
test_agent_shares_cores() {
	with_cpuset yes
	# This shell asks often, and would be put on the CPU with the least work.
	taskset -p e $$ >/dev/null
	start_service_in_a_group
	start_container a ''
	start_container b 0-3
	write_agent_file
	start_agent
	wait_until have_cpus 1-3
	wait_until have_cpus 2-3
	wait_until have_cpus 1-3
	kill "$agent"
	wait "$agent" || fail "the agent ended with $?: $(tail -n 3 /tmp/run.err)"
	must_have_been_decided a
	must_have_been_decided b
	wait_until are_given_back
	start_agent
	wait_until have_cpus 2-3
	kill -9 "$agent"
	wait_until are_given_back
	kill -0 "$service" || fail "the service is gone"
	end_containers
	echo "CPUs 1-3, 2-3 while the service was disturbed, 1-3; given back after a signal and after a kill"
}

# It works for a hundredth of the time. With that, with looks of a second and with t = 99 %, the reserved CPU never counts
# as busy, if no other thread works there.
start_service_in_a_group() {
	mkdir "$CGROUPS/service"
	sh -c "echo \$\$ >$CGROUPS/service/cgroup.procs &&
		exec sidelane-lab pulse --cpu 0 --busy-us 1000 --idle-us 99000 --count 100000" >/tmp/pulse-0 &
	service=$!
	wait_until grep -q ready /tmp/pulse-0
}

# start_container NAME LIST: computes on all CPUs of its group, whose list is LIST.
start_container() {
	[ -d "$CGROUPS/batch" ] || mkdir "$CGROUPS/batch"
	echo +cpuset >"$CGROUPS/batch/cgroup.subtree_control"
	mkdir "$CGROUPS/batch/$1"
	echo "$2" >"$CGROUPS/batch/$1/cpuset.cpus"
	sh -c "echo \$\$ >$CGROUPS/batch/$1/cgroup.procs && exec sidelane-lab batch loop --counter /tmp/counter-$1" &
}

write_agent_file() {
	awk -v from=$DISTURBED_S -v to=$CALM_S 'BEGIN {
		line = "{\"at_ns\":%.0f,\"cpu\":0,\"value\":%s}\n"
		printf line, 0, "1.0"
		for (ms = from * 1000; ms < to * 1000; ms += 5)
			printf line, ms * 1000000, "50.0"
	}' >/tmp/recording
	cat >/tmp/agent.toml <<-END
		[[service]]
		name = "service"
		cgroup = "/service"
		[[batch]]
		cgroup = "/batch"
		[policy]
		kind = "holmes"
		interference_threshold = 40
		reserved_busy = "99%"
		reserved = "0"
		[intervals]
		look = "1s"
		[metric]
		source = "replay"
		replay = "/tmp/recording"
		[audit]
		file = "/tmp/decisions"
	END
}

start_agent() {
	rm -f /tmp/decisions
	sidelane agent --config /tmp/agent.toml >/tmp/run.out 2>/tmp/run.err &
	agent=$!
}

# Whether both containers may run on these CPUs, by their groups and by their threads.
have_cpus() {
	for container in a b; do
		[ "$(cat "$CGROUPS/batch/$container/cpuset.cpus.effective")" = "$1" ] || return 1
		for tid in $(cat "$CGROUPS/batch/$container/cgroup.threads"); do
			[ "$(allowed "$tid")" = "$1" ] || return 1
		done
	done
}

# A container was told these CPUs, in this order. In between it may have had fewer: where the emulator is slow, the agent
# itself keeps the reserved CPU busy, and another one is reserved for a while.
must_have_been_decided() {
	told=$(grep "\"container\":\"/batch/$1\"" /tmp/decisions | sed -n 's/.*"cpus":"\([^"]*\)".*/\1/p' | tr '\n' ' ')
	case $told in
	'1-3 2-3 '*'1-3 ') ;;
	*) fail "container $1 was told '$told': $(tail -n 3 /tmp/decisions)" ;;
	esac
}

are_given_back() {
	[ "$(cat "$CGROUPS/batch/a/cpuset.cpus")" = 0-3 ] && [ "$(cat "$CGROUPS/batch/b/cpuset.cpus")" = 0-3 ] &&
		have_cpus 0-3 && ! grep -q 1 "$CGROUPS"/batch/[ab]/cgroup.freeze && [ -z "$(ls /run)" ]
}

end_containers() {
	killall -9 sidelane-lab
	for group in batch/a batch/b batch service; do
		wait_until rmdir "$CGROUPS/$group"
	done
}
