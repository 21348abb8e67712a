"""Lanes as a node of Slurm, with a real controller, a real node and a real agent.

    run.py BINARIES [TEST...]

BINARIES has sidelane and sidelane-slurm. All tests use one node, in their order here. One line for each test, and a last
line with counts. All files are in one scratch folder, which is removed.
"""

import contextlib
import fcntl
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

NODE = "web1-lanes"
# As in packaging/slurm: the service has CPU 1, and CPU 0 is the lane beside it.
SERVICE_CPU = "1"
# Two hyperthreads of one core, for slurmd: so the node is defined as on a machine with SMT.
TOPOLOGY = {"HWLOC_SYNTHETIC": "pack:1 core:1 pu:2", "HWLOC_THISSYSTEM": "1"}
# Until a step counts as failed.
DEADLINE_S = 120
# After a requeue, a job waits until its old credential has expired.
CREDENTIAL_S = 5

binaries, only = sys.argv[1], sys.argv[2:]
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
scratch = tempfile.mkdtemp(prefix="sidelane-slurm-")
processes = {}
environment = {**os.environ, "SLURM_CONF": f"{scratch}/slurm.conf", "PATH": f"{binaries}:{os.environ['PATH']}"}
# Other tests with an agent wait for this lock.
lanes_lock = open(os.path.join(tempfile.gettempdir(), "sidelane-tests-lanes.lock"), "w")

JOB = f"""#!/bin/sh
# Counts to $2, and says in the file $1 when it begins and ends.
echo "begin $SLURM_RESTART_COUNT" >>{scratch}/jobs/$1
i=0
while [ $i -lt $2 ]; do i=$((i + 1)); done
echo end >>{scratch}/jobs/$1
"""
# About half a second of a CPU, and ten seconds.
SHORT, LONG = 500_000, 8_000_000


class Failure(Exception):
    """A test that failed, with the reason."""


def wait_until(what, condition, seconds=DEADLINE_S):
    """Waits until `condition` returns something true. Returns the seconds that it took."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if condition():
            return time.monotonic() - began
        for name, process in processes.items():
            if process.poll() is not None:
                raise Failure(f"{what}: {name} has ended: {read_log(name)[-500:]}")
        time.sleep(0.05)
    raise Failure(f"{what}: not within {seconds} s")


# ---- Processes ----


def start(name, *command, env=None):
    log = open(f"{scratch}/logs/{name}", "ab")
    processes[name] = subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        env={**environment, **(env or {})}, start_new_session=True,
    )
    return processes[name]


def end(name, how=signal.SIGTERM):
    process = processes.pop(name)
    process.send_signal(how)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def read_log(name):
    with open(f"{scratch}/logs/{name}") as file:
        return file.read()


def output(*command, check=True):
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    if check and ended.returncode != 0:
        raise Failure(f"{' '.join(command)}: {ended.stdout}{ended.stderr}")
    return ended.stdout.strip()


def write(name, text, mode=0o644):
    path = f"{scratch}/{name}"
    with open(path, "w", opener=lambda path, flags: os.open(path, flags, mode)) as file:
        file.write(text)
    return path


def packaged(name, *replacements):
    """Returns a file of packaging/slurm, for this machine."""
    with open(f"{root}/packaging/slurm/{name}") as file:
        text = file.read()
    for old, new in replacements:
        if old not in text:
            raise Failure(f"packaging/slurm/{name} has no '{old}'")
        text = text.replace(old, new)
    return text


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


# ---- Slurm ----


def start_slurm():
    for folder in ["jobs", "state", "spool"]:
        os.makedirs(f"{scratch}/{folder}")
    key = f"{scratch}/munge.key"
    with open(key, "wb", opener=lambda path, flags: os.open(path, flags, 0o400)) as file:
        file.write(os.urandom(128))
    write("job", JOB, 0o755)
    write("cgroup.conf", "CgroupAutomount=no\nConstrainCores=yes\n")
    write("lanes.conf", packaged("slurm.conf", ("NodeHostname=web1 ", "NodeHostname=localhost NodeAddr=127.0.0.1 "),
                                 ("Port=6820", f"Port={free_port()}")))
    write("slurm.conf", f"""
ClusterName=sidelane
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={free_port()}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={scratch}/munge.socket,cred_expire={CREDENTIAL_S}
StateSaveLocation={scratch}/state
SlurmdSpoolDir={scratch}/spool
SlurmctldPidFile={scratch}/slurmctld.pid
SlurmdPidFile={scratch}/slurmd.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
MailProg=/bin/true
MpiDefault=none
KillWait=5
SlurmdLogFile={scratch}/logs/slurmd.log
Include {scratch}/lanes.conf
""")
    start("munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={scratch}/munge.socket",
          f"--pid-file={scratch}/munged.pid", f"--log-file={scratch}/logs/munge", f"--seed-file={scratch}/munge.seed")
    wait_until("munged listens", lambda: os.path.exists(f"{scratch}/munge.socket"))
    start("slurmctld", "slurmctld", "-D")
    start("slurmd", "slurmd", "-D", "-N", NODE, env=TOPOLOGY)
    wait_until("the node is drained, as slurm.conf says", lambda: node_state() == "drained")


def node_state():
    return output("sinfo", "-h", "-n", NODE, "-o", "%T", check=False)


def node_reason():
    return output("sinfo", "-h", "-n", NODE, "-o", "%E")


def submit(name, count, *options):
    return output("sbatch", "--parsable", "--partition=idle", "--gres=lane:1", "--output=/dev/null", "--chdir=/", *options,
                  f"{scratch}/job", name, str(count))


def job_states():
    """Returns the states of all jobs, by job."""
    shown = output("squeue", "-h", "-t", "all", "-o", "%A %T")
    return dict(line.split() for line in shown.splitlines())


def restarts(job):
    shown = output("scontrol", "--oneliner", "show", "job", job)
    return int(shown.split("Restarts=")[1].split()[0])


def lines(name):
    try:
        with open(f"{scratch}/jobs/{name}") as file:
            return file.read().split("\n")[:-1]
    except FileNotFoundError:
        return []


def cgroups():
    return glob.glob(f"/sys/fs/cgroup/*/slurm_{NODE}")


def step_pids():
    found = []
    for path in glob.glob(f"/sys/fs/cgroup/freezer/slurm_{NODE}/uid_*/job_*/step_*/cgroup.procs"):
        with contextlib.suppress(OSError), open(path) as file:
            found += file.read().split()
    return found


def frozen():
    shown = subprocess.run(["grep", "-rlE", "FROZEN|FREEZING", "--include=freezer.state", *cgroups()],
                           capture_output=True, text=True)
    return shown.stdout.split()


def cpu_ticks():
    """Returns the CPU time of all jobs on the node."""
    sum_ticks = 0
    for pid in step_pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            sum_ticks += sum(map(int, file.read().rsplit(")")[1].split()[11:13]))
    return sum_ticks


# ---- The service and the agent ----


def start_redis():
    global redis_port
    redis_port = free_port()
    start("redis", "taskset", "-c", SERVICE_CPU, "redis-server", "--bind", "127.0.0.1", "--port", redis_port, "--save", "",
          "--dir", scratch)
    wait_until("redis answers", lambda: redis("ping") == "PONG")


def redis_cli(*command):
    return ["redis-cli", "-h", "127.0.0.1", "-p", str(redis_port), *command]


def redis(*command):
    return output(*redis_cli(*command), check=False)


def start_agent():
    file = write("sidelane.toml", packaged("sidelane.toml", ("port = 6379", f"port = {redis_port}"),
                                           ("[policy]\n", '[policy]\nsiblings = ["0,1"]\n')))
    wait_until("no other agent runs", lambda: not status())
    start("sidelane", "sidelane", "agent", "--config", file)
    wait_until("the agent answers", status, 60)


def status():
    return output("sidelane", "status", check=False)


def is_lent():
    return "lane 0 offered" in status()


@contextlib.contextmanager
def saturated():
    """While redis computes, all of its CPU is busy."""
    busy = subprocess.Popen(redis_cli("eval", "while true do end", "0"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        wait_until("redis is idle", lambda: redis("script", "kill") == "OK" or redis("ping") == "PONG")
        busy.wait(30)


@contextlib.contextmanager
def requests():
    """While clients send some hundred requests a second."""
    ended = threading.Event()

    def send():
        with socket.create_connection(("127.0.0.1", redis_port)) as client:
            while not ended.wait(0.005):
                client.sendall(b"PING\r\n")
                client.recv(100)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# ---- Tests, in their order ----


def no_job_starts_before_a_lane_is_lent():
    start_redis()
    first = submit("first", SHORT)
    start("sidelane-slurm", "sidelane-slurm", NODE)
    start_agent()
    lent = wait_until("the agent lends the lane", is_lent, 60)
    if lines("first"):
        raise Failure("a job ran before")
    resumed = wait_until("the node is resumed", lambda: node_state() in ["idle", "allocated"], 20)
    wait_until("the job ends", lambda: job_states()[first] == "COMPLETED")
    return f"lent {lent:.1f} s after the agent's start, resumed {resumed:.1f} s later"


def ten_jobs_finish_beside_redis():
    with requests():
        jobs = [submit(f"ten-{i}", SHORT) for i in range(10)]
        took = wait_until("all jobs are completed", lambda: {job_states()[job] for job in jobs} == {"COMPLETED"})
    for i in range(10):
        if lines(f"ten-{i}")[-1:] != ["end"]:
            raise Failure(f"job {i} has written {lines(f'ten-{i}')}")
    return f"in {took:.1f} s"


def no_job_runs_beside_a_saturated_redis_and_none_is_lost():
    jobs = {f"sat-{i}": submit(f"sat-{i}", LONG if i == 0 else SHORT) for i in range(10)}
    wait_until("the first runs", lambda: lines("sat-0") and step_pids())
    with saturated():
        withdrawn = wait_until("the lane is withdrawn", lambda: not is_lent(), 20)
        drained = wait_until("the node is drained", lambda: node_state().startswith("drain"), 20)
        gone = wait_until("no job runs", lambda: not step_pids() and "RUNNING" not in job_states().values(), 60)
        pending = wait_until("all are pending", lambda: {job_states()[job] for job in jobs.values()} == {"PENDING"}, 60)
        # As long as a requeued job waits anyway, and longer: nothing starts.
        began = time.monotonic()
        while time.monotonic() - began < CREDENTIAL_S + 5:
            if step_pids():
                raise Failure("a job runs beside the saturated service")
            time.sleep(0.1)
        reason = node_reason()
    lent = wait_until("the lane is lent again", is_lent, 60)
    resumed = wait_until("a job runs", step_pids, 60)
    wait_until("all are completed", lambda: {job_states()[job] for job in jobs.values()} == {"COMPLETED"}, 240)
    for name, job in jobs.items():
        if lines(name)[-1:] != ["end"]:
            raise Failure(f"job {name} has written {lines(name)}")
    if restarts(jobs["sat-0"]) < 1:
        raise Failure("the running job was not requeued")
    return f"withdrawn {withdrawn:.1f} s after the load began ({reason}), drained {drained:.1f} s later, jobs gone " \
           f"{gone:.1f} s later, pending {pending:.1f} s later; lent {lent:.1f} s after the load, a job ran {resumed:.1f} s later"


def job_that_may_not_be_requeued_is_held():
    job = submit("kept", LONG, "--no-requeue")
    wait_until("it runs", lambda: lines("kept") and step_pids())
    with saturated():
        wait_until("it is refused", lambda: f"cannot requeue job {job}" in read_log("sidelane-slurm"), 30)
        before, began = cpu_ticks(), time.monotonic()
        time.sleep(2)
        share = (cpu_ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
        output("scancel", job)
        gone = wait_until("it is gone", lambda: not step_pids(), 60)
    wait_until("nothing is frozen", lambda: not frozen(), 10)
    return f"it got {100 * share:.1f} % of a CPU beside the saturated service; cancelled within {gone:.1f} s"


def jobs_run_on_when_the_agent_is_killed():
    wait_until("the node is resumed", lambda: node_state() == "idle", 90)
    job = submit("killed", LONG)
    wait_until("it runs", lambda: lines("killed") and step_pids())
    end("sidelane", signal.SIGKILL)
    drained = wait_until("the node is drained", lambda: node_state() == "draining", 20)
    wait_until("nothing is frozen", lambda: not frozen(), 10)
    before = cpu_ticks()
    wait_until("the job gets CPU time", lambda: cpu_ticks() > before + 10, 30)
    start_agent()
    resumed = wait_until("the node is resumed", lambda: not node_state().startswith("drain"), 60)
    wait_until("it is completed", lambda: job_states()[job] == "COMPLETED", 240)
    if restarts(job) or lines("killed") != ["begin ", "end"]:
        raise Failure(f"it was requeued: {lines('killed')}")
    return f"drained {drained:.1f} s after, resumed {resumed:.1f} s after the next agent began"


def commands_of_the_guide_work():
    """The blocks of docs/guides/slurm.md, as printed."""
    with open(f"{root}/docs/guides/slurm.md") as file:
        blocks = file.read().split("<!-- run by make test-slurm -->\n```sh\n")[1:]
    commands = [line for block in blocks for line in block.split("```")[0].splitlines()]
    for line in commands:
        ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=scratch, env=environment, timeout=120)
        if ended.returncode != 0:
            raise Failure(f"{line}: {ended.stdout}{ended.stderr}")
    return f"{len(commands)} commands"


TESTS = [
    no_job_starts_before_a_lane_is_lent,
    ten_jobs_finish_beside_redis,
    no_job_runs_beside_a_saturated_redis_and_none_is_lost,
    job_that_may_not_be_requeued_is_held,
    jobs_run_on_when_the_agent_is_killed,
    commands_of_the_guide_work,
]


def stop():
    """Ends all that was started. Returns what is left."""
    with contextlib.suppress(Exception):
        if "slurmctld" in processes:
            output("scancel", "--user=root", "--partition=idle")
            wait_until("the jobs are gone", lambda: not step_pids(), 30)
    for name in reversed(list(processes)):
        end(name)
    for pid in step_pids():
        os.kill(int(pid), signal.SIGKILL)
    for group in cgroups():
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    shutil.rmtree(scratch)
    return cgroups()


def main():
    failed = passed = 0
    left = []
    try:
        os.makedirs(f"{scratch}/logs")
        fcntl.flock(lanes_lock, fcntl.LOCK_EX)
        start_slurm()
        for test in TESTS:
            if only and test.__name__ not in only:
                continue
            print(f"{test.__name__}: passed, {test()}", flush=True)
            passed += 1
    except Exception as error:
        failed += 1
        print(f"FAILED after {passed} tests: {type(error).__name__}: {error}")
        logs = f"{tempfile.gettempdir()}/sidelane-slurm-logs"
        shutil.rmtree(logs, ignore_errors=True)
        shutil.copytree(f"{scratch}/logs", logs)
        print(f"the logs of all programs are in {logs}")
    finally:
        left = stop()
    if left:
        print(f"left behind: FAILED: {left}")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    # An interrupt ends the programs, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    sys.exit(main())
