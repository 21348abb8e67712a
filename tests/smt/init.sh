#!/bin/busybox sh
# shellcheck shell=dash
# The guest's first process: sets the machine up, runs the tests, switches it off. Started by
# scripts/smt-guest.sh, which reads the lines that begin with SMT-TEST.

/bin/busybox mkdir -p /proc /sys /dev /run /tmp
/bin/busybox --install -s /bin
export PATH=/bin

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tracefs trace /sys/kernel/tracing
ip link set lo up
exec </dev/null >/dev/console 2>&1
# The kernel's messages go to its log only, not between the tests' lines.
dmesg -n 1

echo "SMT-TEST booted after $(cut -d ' ' -f 1 /proc/uptime) s, kernel $(uname -r)"
# shellcheck source=tests/smt/lib.sh
. /lib.sh
# shellcheck source=tests/smt/kernel.sh
. /kernel.sh
# shellcheck source=tests/smt/tests.sh
. /tests.sh
# shellcheck source=tests/smt/nanonap.sh
. /nanonap.sh
# shellcheck source=tests/smt/cookie.sh
. /cookie.sh
# shellcheck source=tests/smt/sched_ext.sh
. /sched_ext.sh
# shellcheck source=tests/smt/policies.sh
. /policies.sh
# shellcheck source=tests/smt/observe.sh
. /observe.sh
# shellcheck source=tests/smt/services.sh
. /services.sh
# shellcheck source=tests/smt/offline.sh
. /offline.sh
# shellcheck source=tests/smt/hurry.sh
. /hurry.sh
# shellcheck source=tests/smt/agent.sh
. /agent.sh
# shellcheck source=tests/smt/trace.sh
. /trace.sh

ask_doctor
wanted=$(cat /wanted)
all="$KERNEL_TESTS $TESTS $COOKIE_TESTS $NANONAP_TESTS $SCHED_EXT_TESTS $POLICY_TESTS $OBSERVE_TESTS $SERVICE_TESTS"
all="$all $OFFLINE_TESTS $HURRY_TESTS $TRACE_TESTS"
for test in ${wanted:-$all}; do
	run_test "$test"
done
echo "SMT-TEST done after $(cut -d ' ' -f 1 /proc/uptime) s"
poweroff -f
