"""Lanes by claims (dynamic resource allocation)."""

import os
import shutil
import signal
import urllib.error

import yaml

from cluster import API_SERVICE, NODE, Failure, wait_until
from node import (
    LANE, audited, batch_pod, binaries, check_runs_on, cluster, container, cpus_of, offer, root, saturated,
    seconds_until, start_agent, start_redis, status,
)

# The driver of dynamic resource allocation, its class of devices, and the socket at which the kubelet finds it.
DRIVER = "sidelane.dev"
DRIVER_SOCKET = f"/var/lib/kubelet/plugins_registry/{DRIVER}@kubelet.sock"


def claim_pod(name, **resources):
    """Batch with a claim for a lane, by the template that `start_driver` makes."""
    claimed = batch_pod(name)
    claimed["spec"]["resourceClaims"] = [{"name": "lane", "resourceClaimTemplateName": "lane"}]
    claimed["spec"]["containers"][0]["resources"] = {
        "claims": [{"name": "lane"}], "limits": resources, "requests": resources,
    }
    return claimed


def node_has_a_device_for_each_lent_lane():
    start_redis()
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
