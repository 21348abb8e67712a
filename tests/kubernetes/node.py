"""The node of the tests, its service, batch and agent.

The command line is that of run.py.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

from cluster import Cluster, Failure, free_port, node_groups, wait_until

RESOURCE = "sidelane.dev/lane"
# The kubelet gives the service a CPU of its own; the other CPU is the lane beside it.
SERVICE_CPU, LANE = "1", "0"

binaries, cache, only = sys.argv[1], sys.argv[2], sys.argv[3:]
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
cluster = Cluster(binaries, cache)
# Other tests with an agent wait for this lock.
lanes_lock = open(os.path.join(tempfile.gettempdir(), "sidelane-tests-lanes.lock"), "w")


def pod(name, image, command, resources, annotations=None):
    container = {
        "name": "main", "image": image, "command": command, "resources": {"limits": resources, "requests": resources},
    }
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {
            "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1, "containers": [container],
        },
    }


def redis_pod():
    """A service of the class Guaranteed: the kubelet gives it a CPU of its own."""
    return pod("redis", "redis:8", None, {"cpu": "1", "memory": "64Mi"}, {"sidelane.dev/slo": "p99=10ms"})


def start_redis():
    cluster.create(redis_pod())
    wait_until("redis answers", lambda: redis("ping") == "PONG")
    wait_until("the kubelet gives redis a CPU", lambda: cpus_of("redis") == SERVICE_CPU)


def batch_pod(name, **resources):
    return pod(name, "busybox:1", ["/bin/sh", "-c", "while :; do :; done"], {RESOURCE: "1", **resources})


def redis_cli(*command):
    return ["redis-cli", "-h", cluster.pod("redis")["status"]["podIP"], *command]


def redis(*command):
    return subprocess.run(redis_cli(*command), capture_output=True, text=True, timeout=30).stdout.strip()


def status():
    shown = subprocess.run([f"{binaries}/sidelane", "status", "--json"], capture_output=True, text=True)
    return json.loads(shown.stdout) if shown.returncode == 0 else {}


def offer():
    lanes = [lane for lane in status().get("lanes", []) if lane["cpu"] == int(LANE)]
    return lanes[0].get("offer") if lanes else None


def container_id(name):
    return cluster.pod(name)["status"]["containerStatuses"][0]["containerID"].split("//")[1]


def group_of(name, controller):
    """Returns the folder of the container's cgroup."""
    found = subprocess.run(
        ["find", *[group for group in node_groups() if f"/{controller}/" in group], "-name", container_id(name)],
        capture_output=True, text=True,
    )
    return found.stdout.split("\n")[0]


def read(path):
    with open(path) as file:
        return file.read().strip()


def cpus_of(name):
    return read(group_of(name, "cpuset") + "/cpuset.cpus")


def cpu_ns(name):
    return int(read(group_of(name, "cpuacct") + "/cpuacct.usage"))


def start_agent():
    global metrics_port
    fcntl.flock(lanes_lock, fcntl.LOCK_EX)
    metrics_port = free_port()
    file = cluster.write("sidelane.toml", f"""
        kubernetes = true
        [policy]
        kind = "unmanaged"
        siblings = ["0,1"]
        [lanes]
        [metrics]
        listen = "127.0.0.1:{metrics_port}"
        [audit]
        file = "{cluster.dir}/audit.jsonl"
        """)
    agent = cluster.start("sidelane", f"{binaries}/sidelane", "agent", "--config", file)

    def answers():
        if agent.poll() is not None:
            raise Failure(f"the agent has ended: {cluster.log('sidelane')}")
        return status()["agent"]["pid"] == agent.pid

    wait_until("the agent answers", answers)


@contextlib.contextmanager
def saturated():
    """While redis computes, all of its CPU is busy."""
    busy = subprocess.Popen(redis_cli("eval", "while true do end", "0"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        wait_until("redis is idle", lambda: redis("script", "kill") == "OK" or redis("ping") == "PONG")
        busy.wait(30)


def seconds_until(what, condition, limit):
    began = time.monotonic()
    wait_until(what, condition, limit)
    return time.monotonic() - began


@contextlib.contextmanager
def loaded():
    """While redis has requests that take a tenth of its CPU."""
    client = redis_cli("-r", "-1", "-i", "0.002", "eval", "for i = 1, 50000 do end", "0")
    client = subprocess.Popen(client, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        client.terminate()
        client.wait(10)


def lane_times():
    """Returns the seconds of each account of the lane, and of its overlap, since the agent's start."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().split("\n")
    times = {}
    for line in lines:
        name, _, rest = line.partition("{")
        labels, _, value = rest.partition("} ")
        labels = dict(label.split("=") for label in labels.replace('"', "").split(",") if label)
        if name == "sidelane_lane_time_seconds_total" and labels["cpu"] == LANE:
            times[(labels["beside"], labels["kind"])] = float(value)
        elif name == "sidelane_lane_overlap_seconds_total" and labels["cpu"] == LANE:
            times[("overlap", "")] = float(value)
    return times


def share_for_batch(idle):
    """Returns the percentage that batch had of a service's idle time, without what others had on the lane."""
    others = ["programs", "kernel", "interrupts", "stolen"]
    return 100 * idle["batch"] / sum(part for kind, part in idle.items() if kind not in others)


def shares_since(before):
    """Returns what batch had of the lane's time since the accounts `before`, in percent and in seconds."""
    passed = {account: after - before.get(account, 0) for account, after in lane_times().items()}
    idle = {kind: seconds for (beside, kind), seconds in passed.items() if beside == "idle"}
    busy = sum(seconds for (beside, _), seconds in passed.items() if beside == "busy")
    return {"idle": share_for_batch(idle), "overlap": 100 * passed[("overlap", "")] / busy, "batch_s": idle["batch"]}


def shares_text(shares):
    return f"{shares['idle']:.1f} % of the idle time that others left, overlap {shares['overlap']:.2f} %"


def container(name):
    """Returns what the agent says of the only container of a pod."""
    found = [one for one in status().get("containers", []) if one["name"].startswith(f"default/{name}:")]
    return found[0] if found else None


def start_batch():
    """Starts batch when a lane is offered. Returns for how long it did not run. A pod that was placed when the lane was
    just being withdrawn fails, and is created again, as a job does."""
    wait_until("the node has a lane", lambda: offer()["lent"] and cluster.allocatable(RESOURCE) == 1, 60)
    cluster.create(batch_pod("batch"))

    def runs():
        if cluster.pod("batch")["status"].get("reason") == "UnexpectedAdmissionError":
            cluster.delete_pod("batch")
            cluster.create(batch_pod("batch"))
        return cluster.phase("batch") == "Running"

    return seconds_until("batch runs", runs, 60)


def check_runs_on(*names):
    for name in names:
        if name == "redis":
            wait_until("redis answers", lambda: redis("ping") == "PONG", 10)
            continue
        before = wait_until(f"{name} has a group", lambda: cpu_ns(name), 10)
        wait_until(f"{name} gets CPU time", lambda: cpu_ns(name) > before + 10_000_000, 30)


def audited(action):
    lines = [json.loads(line) for line in read(f"{cluster.dir}/audit.jsonl").split("\n")]
    return "\n".join(line.get("why", "") for line in lines if line.get("action") == action)
