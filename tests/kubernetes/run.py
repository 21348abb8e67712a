"""Lanes as a resource of Kubernetes, on a real control plane and a real node.

    run.py BINARIES CACHE [TEST...]

BINARIES has sidelane and sidelane-kube; CACHE is what scripts/test-kubernetes.sh has made. All tests use one node, in
their order here. One line for each test, and a last line with counts. Needs namespaces of its own for mounts and
the network.
"""

import contextlib
import os
import shutil
import signal
import sys

import dra
import engines
import manifests
import plugin
from cluster import Failure, Skipped
from node import cache, cluster, only

TESTS = [
    plugin.node_offers_the_lane_of_a_guaranteed_pod,
    plugin.pod_that_asks_for_a_lane_runs,
    plugin.batch_is_confined_to_its_lane,
    plugin.placement_follows_what_is_free,
    plugin.saturated_service_takes_no_new_batch,
    plugin.burstable_pod_with_a_lane_is_batch,
    plugin.batch_is_held_while_the_service_is_saturated_and_may_be_deleted,
    plugin.pods_run_on_when_the_agent_is_killed,
    plugin.lanes_are_registered_again_when_the_kubelet_restarts,
    plugin.pods_run_on_when_containerd_restarts,
    plugin.batch_has_the_idle_time_of_a_loaded_service,
    plugin.nothing_stays_when_all_have_ended,
    plugin.run_gives_batch_as_much,
    manifests.chart_has_the_objects_of_the_base,
    manifests.commands_of_the_guide_work,
    engines.executor_of_spark_runs_in_a_lane,
    engines.worker_of_ray_runs_in_a_lane,
    dra.node_has_a_device_for_each_lent_lane,
    dra.pod_with_a_claim_is_confined_to_its_lane,
    dra.saturated_service_takes_no_new_claim,
    dra.pods_with_claims_run_on_when_the_kubelet_restarts,
    dra.pods_with_claims_run_on_when_the_driver_is_killed,
    dra.slice_and_socket_go_with_the_driver,
]


def main():
    failed = passed = skipped = 0
    try:
        cluster.run()
        for test in TESTS:
            if only and test.__name__ not in only:
                continue
            try:
                print(f"{test.__name__}: passed, {test()}", flush=True)
                passed += 1
            except Skipped as why:
                print(f"{test.__name__}: skipped, {why}", flush=True)
                skipped += 1
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
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    # An interrupt ends the cluster, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    sys.exit(main())
