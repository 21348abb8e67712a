"""Lanes as a resource of Kubernetes, on a real control plane and a real node.

    run.py BINARIES CACHE [TEST...]

BINARIES has sidelane and sidelane-kube; CACHE is what scripts/test-kubernetes.sh has made. All tests use one node, in
their order here. One line for each test, and a last line with counts. Needs namespaces of its own for mounts and
the network.
"""

import contextlib
import fcntl
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request

import yaml

from cluster import API_SERVICE, NODE, Cluster, Failure, free_port, node_groups, wait_until

RESOURCE = "sidelane.dev/lane"
# The kubelet gives the service a CPU of its own; the other CPU is the lane beside it.
SERVICE_CPU, LANE = "1", "0"
# The driver of dynamic resource allocation, its class of devices, and the socket at which the kubelet finds it.
DRIVER = "sidelane.dev"
DRIVER_SOCKET = f"/var/lib/kubelet/plugins_registry/{DRIVER}@kubelet.sock"

binaries, cache, only = sys.argv[1], sys.argv[2], sys.argv[3:]
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
cluster = Cluster(binaries, cache)
HELM = [f"{cluster.bin}/helm"]
CHART = f"{root}/packaging/kubernetes/chart"
# How long batch beside a loaded service is measured, and what it had in a pod.
MEASURED_S = 15
of_pod = {}
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


def batch_pod(name, **resources):
    return pod(name, "busybox:1", ["/bin/sh", "-c", "while :; do :; done"], {RESOURCE: "1", **resources})


def claim_pod(name, **resources):
    """Batch with a claim for a lane, by the template that `start_driver` makes."""
    claimed = batch_pod(name)
    claimed["spec"]["resourceClaims"] = [{"name": "lane", "resourceClaimTemplateName": "lane"}]
    claimed["spec"]["containers"][0]["resources"] = {
        "claims": [{"name": "lane"}], "limits": resources, "requests": resources,
    }
    return claimed


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


# ---- Tests, in their order ----


def node_offers_the_lane_of_a_guaranteed_pod():
    cluster.create(redis_pod())
    wait_until("redis answers", lambda: redis("ping") == "PONG")
    wait_until("the kubelet gives redis a CPU", lambda: cpus_of("redis") == SERVICE_CPU)
    fcntl.flock(lanes_lock, fcntl.LOCK_EX)
    start_agent()
    cluster.start("sidelane-kube", f"{binaries}/sidelane-kube")
    wait_until("the agent offers the lane", lambda: offer()["lent"], 40)
    took = seconds_until("the node has a lane", lambda: cluster.allocatable(RESOURCE) == 1, 20)
    return f"{took:.1f} s after the agent's offer"


def pod_that_asks_for_a_lane_runs():
    cluster.create(batch_pod("batch"))
    took = seconds_until("batch runs", lambda: cluster.phase("batch") == "Running", 30)
    return f"after {took:.1f} s, on CPUs {cpus_of('batch')}"


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
        passed = {account: after - before.get(account, 0) for account, after in lane_times().items()}
    idle = {kind: seconds for (beside, kind), seconds in passed.items() if beside == "idle"}
    busy = sum(seconds for (beside, _), seconds in passed.items() if beside == "busy")
    of_pod["idle"] = share_for_batch(idle)
    of_pod["overlap"] = 100 * passed[("overlap", "")] / busy
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


def shares_text(shares):
    return f"{shares['idle']:.1f} % of the idle time that others left, overlap {shares['overlap']:.2f} %"


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


def chart_has_the_objects_of_the_base():
    """What Helm renders is what kustomize does, but for the names of the release and the comments of the agent's file."""
    for mode, values in [("observe", "mode=observe"), ("lend", "mode=lend"), ("dra", "mode=lend,dra=true")]:
        base = objects_of([f"{cluster.bin}/kubectl", "kustomize", f"{root}/packaging/kubernetes/{mode}"])
        chart = objects_of(HELM + ["template", "sidelane", CHART, "--namespace", "sidelane", "--set", values])
        # Helm makes the namespace itself.
        del base["Namespace"]
        if base != chart:
            raise Failure(f"{mode}: the base has {json.dumps(base)}, the chart {json.dumps(chart)}")
    for wrong, wanted in [("mode=hold", "write observe or lend"), ("metrics.podMonitor=true", "write 0.0.0.0:9099")]:
        refused = subprocess.run(HELM + ["template", "sidelane", CHART, "--set", wrong], capture_output=True, text=True)
        if refused.returncode == 0 or wanted not in refused.stderr:
            raise Failure(f"{wrong}: {refused.stderr}")
    values = ["--set", "metrics.listen=0.0.0.0:9099,metrics.podMonitor=true"]
    monitored = objects_of(HELM + ["template", "sidelane", CHART, *values])["PodMonitor"]
    return f"a PodMonitor reads port {monitored['spec']['podMetricsEndpoints'][0]['portNumber']}"


def objects_of(command):
    """Returns the objects that a command prints, by their kind, as far as base and chart have to agree."""
    rendered = subprocess.run(command, capture_output=True, text=True)
    if rendered.returncode != 0:
        raise Failure(rendered.stderr)
    objects = {one["kind"]: one for one in yaml.safe_load_all(rendered.stdout) if one}
    config = objects["ConfigMap"]
    config["metadata"]["name"] = "sidelane"
    config["data"] = tomllib.loads(config["data"]["sidelane.toml"])
    daemons = objects["DaemonSet"]
    template = daemons["spec"]["template"]
    template["metadata"].pop("annotations", None)
    for labels in [daemons["metadata"]["labels"], template["metadata"]["labels"], daemons["spec"]["selector"]["matchLabels"]]:
        labels.pop("app.kubernetes.io/instance", None)
    pod = template["spec"]
    pod["volumes"] = {volume["name"]: volume for volume in pod["volumes"]}
    pod["volumes"]["config"]["configMap"]["name"] = "sidelane"
    for one in pod["containers"]:
        one.pop("imagePullPolicy", None)
        one["volumeMounts"] = {mount["name"]: {"readOnly": False, **mount} for mount in one["volumeMounts"]}
    return objects


def commands_of_the_guide_work():
    """The blocks of docs/guides/kubernetes.md, as printed, but for those of docker."""
    cluster.end("sidelane-kube")
    cluster.end("sidelane")
    cluster.delete_pod("batch")
    cluster.create(redis_pod())
    wait_until("redis answers", lambda: redis("ping") == "PONG")
    clone = f"{cluster.dir}/clone"
    shutil.copytree(f"{root}/packaging/kubernetes", f"{clone}/packaging/kubernetes")
    # The CPUs of this machine are no siblings for the kernel.
    for mode in ["observe", "lend"]:
        replace_in(f"{clone}/packaging/kubernetes/{mode}/sidelane.toml", "[policy]\n", '[policy]\nsiblings = ["0,1"]\n')
    with open(f"{root}/docs/guides/kubernetes.md") as file:
        blocks = file.read().split("<!-- run by make test-kubernetes -->\n```sh\n")[1:]
    path = f"{cluster.bin}:{binaries}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": cluster.kubeconfig}
    said = ""
    for block in [block.split("```")[0] for block in blocks]:
        if "sidelane estimate" in block:
            wait_for_recording()
        if "example/service.yaml" in block:
            give_real_time("sidelane")
        ended = subprocess.run(["sh", "-e", "-c", block], capture_output=True, text=True, cwd=clone, env=environment)
        if ended.returncode != 0:
            raise Failure(f"{block}: {ended.stdout}{ended.stderr}")
        if "sidelane estimate" in block:
            said = ended.stdout
            cluster.delete_pod("redis")
    if "borrow-idle" not in said:
        raise Failure(f"the report of the cluster is {said}")
    wait_until("the agent's pod has ended", lambda: not status(), 60)
    return f"{len(blocks)} blocks; the report:\n{said}"


def wait_for_recording():
    """Lets a client ask redis until a recording of it is complete."""
    client = subprocess.Popen(redis_cli("-r", "-1", "-i", "0.005", "ping"), stdout=subprocess.DEVNULL)
    try:
        wait_until("a recording is complete", lambda: glob.glob("/var/lib/sidelane/default*redis/*.sidelane"), 100)
    finally:
        client.terminate()
        client.wait(10)


def replace_in(path, old, new):
    with open(path, "r+") as file:
        text = file.read().replace(old, new)
        file.seek(0)
        file.write(text)


def give_real_time(namespace):
    """Lets the only pod of a namespace use real-time classes, where version 1 of cgroups gives no group time for them."""
    found = cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"][0]
    for group in [group for group in node_groups() if "/cpu/" in group]:
        pods = glob.glob(f"{group}/**/pod{found['metadata']['uid']}", recursive=True)
        above = [group, os.path.dirname(pods[0]), pods[0]]
        for depth, folder in enumerate(above + glob.glob(f"{pods[0]}/*/")):
            with contextlib.suppress(OSError), open(f"{folder}/cpu.rt_runtime_us", "w") as file:
                file.write(str(900_000 // 2**depth if depth < 3 else 50_000))


def node_has_a_device_for_each_lent_lane():
    cluster.create(redis_pod())
    wait_until("redis answers", lambda: redis("ping") == "PONG")
    wait_until("the kubelet gives redis a CPU", lambda: cpus_of("redis") == SERVICE_CPU)
    fcntl.flock(lanes_lock, fcntl.LOCK_EX)
    start_agent()
    start_driver()
    wait_until("the agent offers the lane", lambda: offer()["lent"], 40)
    took = seconds_until("the slice has the lane", lambda: devices() == [f"lane-{LANE}"], 10)
    spec = node_slice()["spec"]
    said = {name: next(iter(value.values())) for name, value in spec["devices"][0]["attributes"].items()}
    if said["cpu"] != int(LANE) or said["service"] != "default/redis" or said["openPercent"] < 50:
        raise Failure(f"the device has {said}")
    if node_slice()["metadata"]["ownerReferences"][0]["uid"] != cluster.node()["metadata"]["uid"]:
        raise Failure("the slice does not go with the node")
    return f"{took:.1f} s after the agent's offer, with {said}"


def pod_with_a_claim_is_confined_to_its_lane():
    drops = audited("drop")
    cluster.create(claim_pod("claimed", memory="32Mi"))
    took = seconds_until("it runs", lambda: cluster.phase("claimed") == "Running", 60)
    wait_until("the agent has the pod", lambda: container("claimed") and container("claimed")["cpus"] == LANE, 10)
    if any(service["name"] == "default/claimed" for service in status()["services"]):
        raise Failure("it is a service, too")
    if audited("drop") != drops:
        raise Failure("the pod was taken for a service at first, and the lane was dropped")
    check_runs_on("claimed", "redis")
    return f"after {took:.1f} s, on CPUs {cpus_of('claimed')}"


def saturated_service_takes_no_new_claim():
    cluster.delete_pod("claimed")
    generation = node_slice()["spec"]["pool"]["generation"]
    with saturated():
        withdrawn = seconds_until("the slice has no lane", lambda: devices() == [], 15)
        if node_slice()["spec"]["pool"]["generation"] <= generation:
            raise Failure("the pool has no new generation")
        cluster.create(claim_pod("claimed"))
        wait_until("no lane is found", lambda: "cannot allocate all claims" in unscheduled("claimed"), 30)
        if cluster.phase("claimed") != "Pending":
            raise Failure(f"the pod is {cluster.phase('claimed')}")
    runs = seconds_until("it runs", lambda: cluster.phase("claimed") == "Running", 60)
    return f"withdrawn after {withdrawn:.1f} s; runs {runs:.1f} s after the load"


def pods_with_claims_run_on_when_the_kubelet_restarts():
    """The kubelet deletes the slices of its node when it starts."""
    count = registrations()
    uid = node_slice()["metadata"]["uid"]
    cluster.end("kubelet")
    check_runs_on("claimed", "redis")
    cluster.start("kubelet")
    took = seconds_until("the driver is registered", lambda: registrations() > count, 10)
    wait_until("there is another slice", lambda: node_slice()["metadata"]["uid"] != uid, 30)
    wait_until("the slice has the lane", lambda: devices() == [f"lane-{LANE}"], 30)
    check_runs_on("claimed", "redis")
    wait_until("the agent has the pod", lambda: container("claimed")["wanted_from"] == "its lanes", 10)
    return f"registered {took:.1f} s after its start"


def pods_with_claims_run_on_when_the_driver_is_killed():
    count = registrations()
    cluster.end("driver", signal.SIGKILL)
    check_runs_on("claimed", "redis")
    cluster.start("driver")
    took = seconds_until("it is registered", lambda: registrations() > count, 10)
    cluster.delete_pod("claimed")
    wait_until("the slice has the lane", lambda: devices() == [f"lane-{LANE}"], 60)
    cluster.create(claim_pod("claimed"))
    runs = seconds_until("a new pod runs", lambda: cluster.phase("claimed") == "Running", 60)
    return f"registered after {took:.1f} s, and a new pod runs after {runs:.1f} s"


def slice_and_socket_go_with_the_driver():
    count = registrations()
    cluster.end("driver")
    if slice_is_there() or os.path.exists(DRIVER_SOCKET):
        raise Failure(f"left behind: {cluster.log('driver')}")
    check_runs_on("claimed", "redis")
    # The kubelet ends a pod with a claim only after its driver has agreed.
    cluster.start("driver")
    wait_until("it is registered", lambda: registrations() > count, 10)
    cluster.delete_pod("claimed")
    cluster.end("driver")
    cluster.end("sidelane")
    cluster.delete_pod("redis")
    return "pods ran on"


def start_driver():
    """Starts sidelane-kube as a driver, with the service account of packaging/kubernetes/dra."""
    rendered = cluster.kubectl("kustomize", f"{root}/packaging/kubernetes/dra")
    cluster.create(*(one for one in yaml.safe_load_all(rendered) if one["kind"] not in ["ConfigMap", "DaemonSet"]))
    exactly = {"deviceClassName": DRIVER}
    cluster.create({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "lane", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "lane", "exactly": exactly}]}}},
    })
    account = f"{cluster.dir}/account"
    os.makedirs(account)
    cluster.write("account/token", cluster.kubectl("-n", "sidelane", "create", "token", "sidelane"))
    shutil.copy(f"{cluster.dir}/certs/apiserver.crt", f"{account}/ca.crt")
    address = [f"KUBERNETES_SERVICE_HOST={API_SERVICE[0]}", f"KUBERNETES_SERVICE_PORT={API_SERVICE[1]}"]
    command = [f"{binaries}/sidelane-kube", "--dra", "--service-account", account]
    cluster.start("driver", "env", f"NODE_NAME={NODE}", *address, *command)


def registrations():
    return cluster.log("driver").count("is registered")


def node_slice():
    return cluster.get(f"/apis/resource.k8s.io/v1/resourceslices/{NODE}-{DRIVER}")


def slice_is_there():
    try:
        return bool(node_slice())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return False
        raise


def devices():
    return [device["name"] for device in node_slice()["spec"].get("devices") or []]


def unscheduled(name):
    """Returns why the scheduler has found no node for a pod."""
    conditions = cluster.pod(name)["status"].get("conditions", [])
    return "".join(one.get("message", "") for one in conditions if one["type"] == "PodScheduled")


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


def frozen_groups():
    """Returns the pods' cgroups that are frozen."""
    shown = subprocess.run(
        ["grep", "-rlE", "FROZEN|FREEZING", "--include=freezer.state", *node_groups()], capture_output=True, text=True)
    return shown.stdout.split()


def audited(action):
    lines = [json.loads(line) for line in read(f"{cluster.dir}/audit.jsonl").split("\n")]
    return "\n".join(line.get("why", "") for line in lines if line.get("action") == action)


def is_listening(path):
    with socket.socket(socket.AF_UNIX) as found:
        found.connect(path)
        return True


def has_event(name, reason):
    events = cluster.get("/api/v1/namespaces/default/events")["items"]
    return any(event["involvedObject"]["name"] == name and event["reason"] == reason for event in events)


TESTS = [
    node_offers_the_lane_of_a_guaranteed_pod,
    pod_that_asks_for_a_lane_runs,
    batch_is_confined_to_its_lane,
    saturated_service_takes_no_new_batch,
    burstable_pod_with_a_lane_is_batch,
    batch_is_held_while_the_service_is_saturated_and_may_be_deleted,
    pods_run_on_when_the_agent_is_killed,
    lanes_are_registered_again_when_the_kubelet_restarts,
    pods_run_on_when_containerd_restarts,
    batch_has_the_idle_time_of_a_loaded_service,
    nothing_stays_when_all_have_ended,
    run_gives_batch_as_much,
    chart_has_the_objects_of_the_base,
    commands_of_the_guide_work,
    node_has_a_device_for_each_lent_lane,
    pod_with_a_claim_is_confined_to_its_lane,
    saturated_service_takes_no_new_claim,
    pods_with_claims_run_on_when_the_kubelet_restarts,
    pods_with_claims_run_on_when_the_driver_is_killed,
    slice_and_socket_go_with_the_driver,
]


def main():
    failed = passed = 0
    try:
        cluster.run()
        for test in TESTS:
            if only and test.__name__ not in only:
                continue
            try:
                print(f"{test.__name__}: passed, {test()}", flush=True)
                passed += 1
            except Exception as error:
                print(f"{test.__name__}: FAILED: {type(error).__name__}: {error}", flush=True)
                failed += 1
                break
    except Failure as error:
        print(f"the node cannot be started: FAILED: {error}")
        failed += 1
    finally:
        if failed:
            shutil.rmtree(f"{cache}/logs", ignore_errors=True)
            shutil.copytree(f"{cluster.dir}/logs", f"{cache}/logs")
            shutil.copytree(f"{cluster.dir}/var/log/pods", f"{cache}/logs/pods")
            print(f"the logs of all programs and pods are in {cache}/logs")
        left = cluster.stop()
        with contextlib.suppress(FileNotFoundError):
            os.remove("/run/sidelane-pods.json")
    if left:
        print(f"left behind: FAILED: {left}")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    # An interrupt ends the cluster, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    sys.exit(main())
