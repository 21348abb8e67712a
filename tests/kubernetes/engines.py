"""Executors of Spark and workers of Ray in lanes, by the examples of packaging/kubernetes.

The drivers run beside the node's programs, on the lane, where they are other programs.
"""

import contextlib
import os
import shutil
import subprocess
import time

from cluster import GATEWAY, TOKEN, Failure, Skipped, free_port, is_listening, wait_until
from node import (
    LANE, RESOURCE, binaries, cache, cluster, container, cpus_of, lane_times, loaded, offer, root,
    shares_since, shares_text, start_agent, start_redis,
)

# Python packages of Spark and Ray, as scripts/test-kubernetes.sh unpacks them.
ENGINES = f"{cache}/engines"
EXAMPLES = f"{root}/packaging/kubernetes/example"

# What the images of Spark start, without what executors on Kubernetes do not need.
EXECUTOR = """#!/bin/sh
options=$(env | grep ^SPARK_JAVA_OPT_ | sort -t_ -k4 -n | sed 's/[^=]*=//')
exec /jvm/bin/java $options -Xmx"$SPARK_EXECUTOR_MEMORY" -cp '/spark/*' \\
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --driver-url "$SPARK_DRIVER_URL" \\
    --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \\
    --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \\
    --podName "$SPARK_EXECUTOR_POD_NAME"
"""

# 32 tasks. The sum is that of the residues.
SPARK_JOB = """
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
numbers = session.range(0, 64_000_000, 1, 32)
print("sum", numbers.selectExpr("sum(pmod(xxhash64(id), 2) * 0 + pmod(id, 1000))").collect()[0][0])
session.stop()
"""
SPARK_SUM = 64_000 * 499_500

RAY_JOB = """
import hashlib, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False)
@ray.remote(num_cpus=1)
def digest(seed):
    part = seed.to_bytes(8, "big")
    for _ in range(400_000):
        part = hashlib.sha256(part).digest()
    return part.hex()
print("digests", len(set(ray.get([digest.remote(seed) for seed in range(32)]))))
"""


def executor_of_spark_runs_in_a_lane():
    need_engine("pyspark")
    java = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("java"))))
    tools = {f"bin/{name}": f"{cluster.debian}/bin/busybox" for name in ["sh", "env", "grep", "sort", "sed"]}
    start = cluster.write("executor", EXECUTOR)
    os.chmod(start, 0o755)
    files = {**tools, "executor": start, "jvm/bin/java": f"{java}/bin/java", "etc/passwd": "/etc/passwd"}
    # A library in a jar is linked with it.
    files["lib/libpthread.so.0"] = "/lib/x86_64-linux-gnu/libpthread.so.0"
    folders = {"jvm/lib": f"{java}/lib", "jvm/conf": f"{java}/conf", "spark": f"{ENGINES}/pyspark/jars"}
    cluster.make_image("spark:3.5.9", files, ["/executor"], folders)
    with open(f"{root}/docs/guides/kubernetes.md") as file:
        printed = [line.split() for line in file if line.startswith("spark.")]
    settings = {
        **dict(printed),
        "spark.executor.instances": "1", "spark.kubernetes.container.image": "spark:3.5.9",
        "spark.kubernetes.executor.podNamePrefix": "spark", "spark.executor.memory": "512m",
        "spark.kubernetes.authenticate.oauthToken": TOKEN, "spark.kubernetes.trust.certificates": "true",
        "spark.driver.host": GATEWAY, "spark.ui.enabled": "false",
    }
    settings = [word for name, value in settings.items() for word in ["--conf", f"{name}={value}"]]
    job = cluster.write("spark_job.py", SPARK_JOB)
    submit = [f"{ENGINES}/pyspark/bin/spark-submit", "--master", f"k8s://https://127.0.0.1:{cluster.port}", *settings, job]
    with lane_on_offer():
        text = run_beside_load(submit, "spark-exec-1", f"sum {SPARK_SUM}")
        wait_until("the executor is gone", lambda: "spark-exec-1" not in pods(), 60)
    return text


def worker_of_ray_runs_in_a_lane():
    need_engine("ray")
    python = os.path.realpath("/usr/bin/python3")
    library = f"/usr/lib/{os.path.basename(python)}"
    files = {"bin/sh": f"{cluster.debian}/bin/busybox", "bin/python3": python, "etc/passwd": "/etc/passwd"}
    start = cluster.write("ray", '#!/bin/sh\nexec python3 -m ray.scripts.scripts "$@"\n')
    os.chmod(start, 0o755)
    packages = {f"engines/{name}": f"{ENGINES}/{name}" for name in os.listdir(ENGINES) if os.path.isdir(f"{ENGINES}/{name}")}
    folders = {library: library, **packages}
    del folders["engines/pyspark"]
    modules = {f"engines/{name}": f"{ENGINES}/{name}" for name in os.listdir(ENGINES) if name.endswith(".py")}
    image = "rayproject/ray:2.60.0"
    cluster.make_image(image, {**files, **modules, "bin/ray": start}, [], folders, ["PYTHONPATH=/engines", "HOME=/tmp"])
    ray = ["env", f"PYTHONPATH={ENGINES}", "RAY_USAGE_STATS_ENABLED=0", python]
    port = free_port()
    address = f"{GATEWAY}:{port}"
    head = ["start", "--head", f"--node-ip-address={GATEWAY}", f"--port={port}", "--num-cpus=0"]
    with lane_on_offer():
        cluster.start(
            "ray-head", "taskset", "-c", LANE, *ray, "-m", "ray.scripts.scripts", *head, "--include-dashboard=false", "--block",
            f"--temp-dir={cluster.dir}/ray-head",
        )
        wait_until("the head listens", lambda: is_listening((GATEWAY, port)), 60)
        with open(f"{EXAMPLES}/ray-workers.yaml") as file:
            cluster.kubectl("apply", "-f", "-", text=file.read().replace("ray-head:6379", address))
        worker = wait_until("there is a worker", lambda: [name for name in pods() if name.startswith("ray-workers-")])[0]
        wait_until("it runs", lambda: cluster.phase(worker) == "Running", 60)
        job = cluster.write("ray_job.py", RAY_JOB)
        text = run_beside_load([*ray, job, address], worker, "digests 32")
        cluster.kubectl("delete", "deployment", "ray-workers")
        cluster.delete_pod(worker)
        cluster.end("ray-head")
    return text


def need_engine(name):
    if not os.path.isdir(f"{ENGINES}/{name}"):
        raise Skipped(f"{name} cannot be downloaded with pip")


@contextlib.contextmanager
def lane_on_offer():
    start_redis()
    start_agent()
    cluster.start("sidelane-kube", f"{binaries}/sidelane-kube")
    wait_until("the node has a lane", lambda: offer()["lent"] and cluster.allocatable(RESOURCE) == 1, 60)
    yield
    cluster.end("sidelane-kube")
    cluster.end("sidelane")
    cluster.delete_pod("redis")


def run_beside_load(driver, pod, wanted):
    """Runs a driver while redis has requests, and checks where `pod` runs. Returns what batch had of the lane."""
    with loaded(), open(f"{cluster.dir}/logs/{pod}-driver", "w+") as log:
        began = time.monotonic()
        command = ["taskset", "-c", LANE, *driver]
        running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=root)
        try:
            wait_until("the agent confines the pod", lambda: container(pod)["cpus"] == LANE == cpus_of(pod), 120)
            before = lane_times()
            wait_until("the job ends", lambda: running.poll() is not None, 300)
            shares = shares_since(before)
        finally:
            running.kill()
            running.wait()
        log.seek(0)
        said = log.read()
        if wanted not in said:
            raise Failure(f"the job says not `{wanted}` but {said[-2000:]}")
        took = time.monotonic() - began
    return f"done after {took:.1f} s; batch had {shares['batch_s']:.1f} s of CPU, {shares_text(shares)}"


def pods():
    return [one["metadata"]["name"] for one in cluster.get("/api/v1/namespaces/default/pods")["items"]]
