"""Lanes by the device plugin."""

import contextlib
import json
import os
import signal
import subprocess
import time

from cluster import NODE, Failure, is_listening, node_groups, wait_until
from node import (
    LANE, RESOURCE, SERVICE_CPU, audited, batch_pod, binaries, check_runs_on, cluster, container, cpu_ns, cpus_of,
    group_of, lane_times, loaded, offer, read, saturated, seconds_until, share_for_batch, shares_since,
    shares_text, start_agent, start_batch, start_redis, status,
)

# How long batch beside a loaded service is measured, and what it had in a pod.
MEASURED_S = 15
of_pod = {}


def node_offers_the_lane_of_a_guaranteed_pod():
    start_redis()
    start_agent()
    cluster.start("sidelane-kube", f"{binaries}/sidelane-kube")
    wait_until("the agent offers the lane", lambda: offer()["lent"], 40)
    took = seconds_until("the node has a lane", lambda: cluster.allocatable(RESOURCE) == 1, 20)
    return f"{took:.1f} s after the agent's offer"


def pod_that_asks_for_a_lane_runs():
    cluster.create(batch_pod("batch"))
    took = seconds_until("batch runs", lambda: cluster.phase("batch") == "Running", 30)
    return f"after {took:.1f} s, on CPUs {cpus_of('batch')}"


def placement_follows_what_is_free():
    """The second node is an object of the API: pods are placed there, and nothing runs."""
    cluster.delete_pod("batch")
    with second_node() as second:
        full = batch_pod("full")
        full["spec"]["nodeName"] = second
        cluster.create(full, batch_pod("batch"))
        wait_until("batch runs beside the full node", lambda: cluster.phase("batch") == "Running", 30)
        first = cluster.pod("batch")["spec"]["nodeName"]
        cluster.create(batch_pod("next"))
        wait_until("no node is free", lambda: has_event("next", "FailedScheduling"), 30)
        cluster.kubectl("delete", "pod", "full", "--force", "--grace-period=0")
        wait_until("the next pod is placed", lambda: cluster.pod("next")["spec"].get("nodeName"), 30)
        then = cluster.pod("next")["spec"]["nodeName"]
        cluster.kubectl("delete", "pod", "next", "--force", "--grace-period=0")
    if [first, then] != [NODE, second]:
        raise Failure(f"beside the full node batch is placed on {first}, and then on {then}")
    return "on the node with a free lane, and then on the other"


@contextlib.contextmanager
def second_node():
    name = "second"
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    resources = {"cpu": "4", "memory": "4Gi", "pods": "110", RESOURCE: "1"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastHeartbeatTime": None}
    state = json.dumps({"status": {"capacity": resources, "allocatable": resources, "conditions": [ready]}})
    cluster.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", state)
    wait_until("it is ready", lambda: not cluster.get(f"/api/v1/nodes/{name}")["spec"].get("taints"), 30)
    yield name
    cluster.kubectl("delete", "node", name)


def saturated_service_takes_no_new_batch():
    cluster.delete_pod("batch")
    with saturated():
        withdrawn = seconds_until("the lane is withdrawn", lambda: not offer()["lent"], 10)
        node = seconds_until("the node has no lane", lambda: cluster.allocatable(RESOURCE) == 0, 10)
        cluster.create(batch_pod("batch"))
        wait_until("it is not scheduled", lambda: has_event("batch", "FailedScheduling"), 30)
        if cluster.phase("batch") != "Pending":
            raise Failure(f"the pod is {cluster.phase('batch')}")
    lent = seconds_until("the lane is lent again", lambda: offer()["lent"], 30)
    runs = seconds_until("batch runs", lambda: cluster.phase("batch") == "Running", 30)
    return f"withdrawn after {withdrawn:.1f} s, at the node {node:.1f} s later; lent {lent:.1f} s after, " \
           f"batch runs {runs:.1f} s later"


def batch_is_confined_to_its_lane():
    wait_until("the agent has the pod", lambda: container("batch") and container("batch")["cpus"] == LANE, 10)
    services = [service["name"] for service in status()["services"]]
    if services != ["default/redis"]:
        raise Failure(f"services are {services}")
    slo = status()["services"][0]["requests"]["slo"]
    if slo.replace(" ", "") != "p99=10ms":
        raise Failure(f"the objective of redis is {slo}, not that of its annotation")
    before = cpu_ns("batch")
    wait_until("batch gets CPU time", lambda: cpu_ns("batch") > before + 100_000_000, 30)
    return f"wants {container('batch')['wanted_cpus']} CPU by {container('batch')['wanted_from']}"


def burstable_pod_with_a_lane_is_batch():
    cluster.delete_pod("batch")
    drops = audited("drop")
    cluster.create(batch_pod("batch", memory="32Mi"))
    wait_until("batch runs", lambda: cluster.phase("batch") == "Running", 30)
    qos = cluster.pod("batch")["status"]["qosClass"]
    wait_until("the agent has the pod", lambda: container("batch") and container("batch")["cpus"] == LANE, 10)
    if any(service["name"] == "default/batch" for service in status()["services"]):
        raise Failure("it is a service, too")
    if audited("drop") != drops:
        raise Failure("the pod was taken for a service at first, and the lane was dropped")
    return f"class {qos}"


def batch_is_held_while_the_service_is_saturated_and_may_be_deleted():
    with saturated():
        wait_until("batch is held", lambda: container("batch")["state"] == "paused", 10)
        before = cpu_ns("batch")
        time.sleep(1)
        got = (cpu_ns("batch") - before) / 1e9
        cluster.delete_pod("batch")
    if frozen_groups():
        raise Failure(f"frozen: {frozen_groups()}")
    return f"it got {100 * got:.1f} % of a second beside the saturated service"


def pods_run_on_when_the_agent_is_killed():
    start_batch()
    wait_until("batch is confined", lambda: container("batch") and container("batch")["cpus"] == LANE, 30)
    cluster.end("sidelane", signal.SIGKILL)
    check_runs_on("batch", "redis")
    gone = seconds_until("the node has no lane", lambda: cluster.allocatable(RESOURCE) == 0, 20)
    wait_until("the guardian has undone all", lambda: cpus_of("batch") == LANE and not frozen_groups(), 10)
    start_agent()
    wait_until("the agent offers the lane", lambda: offer()["lent"], 40)
    wait_until("the node has a lane", lambda: cluster.allocatable(RESOURCE) == 1, 20)
    wait_until("the agent has the pod", lambda: container("batch")["wanted_from"] == "its lanes", 10)
    return f"no lane on offer {gone:.1f} s after"


def lanes_are_registered_again_when_the_kubelet_restarts():
    count = cluster.log("sidelane-kube").count("is registered")
    cluster.end("kubelet")
    check_runs_on("batch", "redis")
    cluster.start("kubelet")
    listens = "/var/lib/kubelet/device-plugins/kubelet.sock"
    wait_until("the kubelet listens", lambda: is_listening(listens))
    took = seconds_until("it is registered", lambda: cluster.log("sidelane-kube").count("is registered") > count, 10)
    wait_until("the node has a lane", lambda: cluster.allocatable(RESOURCE) == 1, 30)
    check_runs_on("batch", "redis")
    return f"after {took:.1f} s"


def pods_run_on_when_containerd_restarts():
    cluster.end("containerd", signal.SIGKILL)
    check_runs_on("batch", "redis")
    cluster.start("containerd")
    wait_until("containerd is ready", lambda: cluster.ctr("version").returncode == 0)
    wait_until("the node is ready", cluster.is_node_ready)
    check_runs_on("batch", "redis")
    wait_until("the agent has the pod", lambda: container("batch")["cpus"] == LANE, 10)
    cluster.delete_pod("batch")
    took = start_batch()
    return f"a new pod runs after {took:.1f} s"


def batch_has_the_idle_time_of_a_loaded_service():
    with loaded():
        before = lane_times()
        time.sleep(MEASURED_S)
        of_pod.update(shares_since(before))
    return shares_text(of_pod)


def run_gives_batch_as_much():
    """The same batch beside the same redis and load, by `sidelane run` instead of the agent."""
    cluster.delete_pod("batch")
    redis_pid = read(group_of("redis", "cpuset") + "/cgroup.procs").split()[0]
    file = f"{cluster.dir}/run.json"
    run = [f"{binaries}/sidelane", "run", "--service", f"pid:{redis_pid}", "--lanes", f"{SERVICE_CPU}:{LANE}", "--json", file]
    with loaded():
        batch = ["timeout", str(MEASURED_S), "sh", "-c", "while :; do :; done"]
        ended = subprocess.run([*run, "--", *batch], capture_output=True, text=True)
    if not os.path.exists(file):
        raise Failure(ended.stderr)
    figures = json.loads(read(file))["rows"][0]
    parts = [key for key in figures if key.startswith("idle_") and key not in ["idle_percent", "idle_used_percent"]]
    idle = {key.split("_")[1]: figures[key] or 0 for key in parts}
    of_run = {"idle": share_for_batch(idle), "overlap": figures["overlap_percent"]}
    text = f"{shares_text(of_run)}; in the pod {shares_text(of_pod)}"
    if of_pod["idle"] < of_run["idle"] - 5 or of_pod["overlap"] > of_run["overlap"] + 1:
        raise Failure(text)
    return text


def nothing_stays_when_all_have_ended():
    cluster.end("sidelane-kube")
    cluster.end("sidelane")
    check_runs_on("batch", "redis")
    if frozen_groups():
        raise Failure(f"frozen: {frozen_groups()}")
    # The kubelet does not write a list again that it has written before.
    if cpus_of("batch") != LANE:
        raise Failure(f"batch has CPUs {cpus_of('batch')}, not those that the kubelet gives it")
    return "none is frozen, and batch has the kubelet's CPUs"


def frozen_groups():
    """Returns the pods' cgroups that are frozen."""
    shown = subprocess.run(
        ["grep", "-rlE", "FROZEN|FREEZING", "--include=freezer.state", *node_groups()], capture_output=True, text=True)
    return shown.stdout.split()


def has_event(name, reason):
    events = cluster.get("/api/v1/namespaces/default/events")["items"]
    return any(event["involvedObject"]["name"] == name and event["reason"] == reason for event in events)
