#!/bin/sh
# Tests lanes as a node of Slurm (tests/slurm/run.py) with a controller and a node that run here, on loopback.
# Usage: test-slurm.sh [TEST...]
#
# Exit code: 0 if no test failed, 1 if one did, 77 skipped: something that is needed is not available here.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
# Only `say` and `skip` are used of it.
# shellcheck source=scripts/smt-packages.sh
. "$root/scripts/smt-packages.sh"

[ "$(id -u)" -eq 0 ] || skip "needs root: slurmd makes cgroups, and the agent holds lanes"
"$root/scripts/deps.sh" slurm || skip "Slurm cannot be installed here"
for command in slurmctld slurmd munged redis-server redis-cli python3 taskset; do
	command -v $command >/dev/null || skip "needs $command"
done
for controller in freezer cpuset; do
	[ -w /sys/fs/cgroup/$controller/cgroup.procs ] ||
		skip "needs $controller of cgroup version 1: Slurm makes groups of version 2 by systemd alone"
done
slurmd -C >/dev/null || skip "slurmd does not run here"
[ "$(nproc)" -ge 2 ] || skip "needs two CPUs, one for the service and one for batch"
exec python3 "$root/tests/slurm/run.py" "$root/target/debug" "$@"
