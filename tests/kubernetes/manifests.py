"""The manifests, the chart and the guide, as users run them."""

import contextlib
import glob
import json
import os
import shutil
import subprocess
import tomllib

import yaml

from cluster import Failure, node_groups, wait_until
from node import binaries, cluster, loaded, root, start_redis, status

HELM = [f"{cluster.bin}/helm"]
CHART = f"{root}/packaging/kubernetes/chart"


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
    elsewhere = ["--set", "mode=lend,kubeletDir=/var/lib/k0s/kubelet,runtimeSocket=/run/k0s/containerd.sock"]
    pod = objects_of(HELM + ["template", "sidelane", CHART, *elsewhere])["DaemonSet"]["spec"]["template"]["spec"]
    plugin = next(one for one in pod["containers"] if one["name"] == "device-plugin")
    told = ["sidelane-kube", "--kubelet-dir", "/var/lib/k0s/kubelet", "--runtime", "/run/k0s/containerd.sock"]
    folder = "/var/lib/k0s/kubelet/device-plugins"
    places = [plugin["volumeMounts"]["device-plugins"]["mountPath"], pod["volumes"]["device-plugins"]["hostPath"]["path"]]
    if plugin["command"] != told or places != [folder, folder]:
        raise Failure(f"another folder and socket: {json.dumps(plugin)}, {places}")
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
    start_redis()
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
            with loaded():
                recordings = "/var/lib/sidelane/default*redis/*.sidelane"
                wait_until("a recording is complete", lambda: glob.glob(recordings), 100)
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
