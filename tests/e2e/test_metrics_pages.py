"""/metrics/resources and /metrics/slis say what those of kube-scheduler say about the same pods and checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.cluster import PODS, Cluster, node, pod, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon
from tests.e2e.controlplane.process import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def container(name: str, requests: Mapping[str, str], limits: Mapping[str, str], **more: object) -> dict[str, Any]:
    resources = {"requests": dict(requests), "limits": dict(limits)}
    return {"name": name, "image": "registry.k8s.io/pause:3.10", "resources": resources, **more}


PLAIN = [container("main", {"cpu": "250m", "memory": "64Mi"}, {"cpu": "1", "memory": "1G"})]
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two-containers": {
        "containers": [*PLAIN, container("b", {"cpu": "0.3"}, {"memory": "100M", "ephemeral-storage": "1Gi"})]
    },
    "no-requests": {"containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]},
    "init-container-larger": {"initContainers": [container("i", {"cpu": "2"}, {"cpu": "3", "memory": "2Gi"})]},
    "sidecar-before-init": {
        "initContainers": [
            container("s", {"cpu": "100m"}, {"cpu": "200m"}, restartPolicy="Always"),
            container("i", {"cpu": "1900m"}, {"cpu": "2"}),
        ]
    },
    "huge-pages": {
        "containers": [container("main", {"cpu": "1", "hugepages-2Mi": "4Mi"}, {"cpu": "1", "hugepages-2Mi": "4Mi"})]
    },
    "extended-resource": {"containers": [container("main", {"example.com/x": "2"}, {"example.com/x": "2"})]},
    "pod-level": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "3Gi"}}},
    "overhead": {"runtimeClassName": "sandboxed"},
    "priority": {"priorityClassName": "system-node-critical"},
    "other-scheduler": {"schedulerName": "default-scheduler"},
    "finished": {},
    "unschedulable": {"nodeSelector": {"no": "such-node"}},
}
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "sandboxed"},
    "handler": "sandboxed",
    "overhead": {"podFixed": {"cpu": "120m", "memory": "50Mi"}},
}


def samples(page: str) -> set[tuple[str, frozenset[str], float]]:
    """Return name, labels and value of each series."""
    return {
        (name, frozenset(labels.split(",")), float(value))
        for line in page.splitlines()
        if not line.startswith("#")
        for name, labels, value in [re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line).groups()]  # type: ignore[union-attr]
    }


def texts(page: str) -> dict[str, str]:
    """Return the help text of each metric."""
    return dict(re.findall(r"^# HELP (\S+) (.*)$", page, re.MULTILINE))


async def test_pages_are_those_of_kube_scheduler(control_plane_binaries: Path) -> None:
    port = free_port()
    async with ControlPlane() as plane, plane.client() as http:
        cluster = Cluster(http)
        await plane.start_scheduler()
        large = node("n-0", cpu="40", memory="80Gi")
        for amounts in (large["status"]["allocatable"], large["status"]["capacity"]):
            amounts |= {"example.com/x": "9", "hugepages-2Mi": "1Gi"}
        await cluster.create(large)
        async with http.post("/apis/node.k8s.io/v1/runtimeclasses", json=RUNTIME_CLASS) as answer:
            assert answer.status == 201, await answer.text()
        await cluster.create(*(pod(name, SCHEDULER_NAME, {"containers": PLAIN} | spec) for name, spec in SPECS.items()))
        with daemon(plane, flags=("--plain-port", str(port))) as server:

            async def all_are_bound() -> bool:
                items = (await cluster.get(PODS, fieldSelector="spec.nodeName!="))["items"]
                return len(items) == len(SPECS) - 1

            await until(all_are_bound, f"{len(SPECS) - 1} bound pods", server=server)
            await cluster.merge(f"{PODS}/finished/status", {"status": {"phase": "Succeeded"}})

            async def page(path: str) -> str:
                async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    assert answer.status == 200
                    return await answer.text()

            async def their_page(path: str) -> str:
                url = f"https://127.0.0.1:{plane.ports['kube-scheduler']}{path}"
                async with http.get(url, ssl=False) as answer:
                    assert answer.status == 200, await answer.text()
                    return await answer.text()

            async def pages_are_equal() -> bool:
                return samples(await page("/metrics/resources")) == samples(await their_page("/metrics/resources"))

            await until(pages_are_equal, "equal pages", server=server)
            ours, theirs = await page("/metrics/resources"), await their_page("/metrics/resources")
            for path in ("/readyz", "/livez", "/healthz"):
                await page(path)
                await their_page(path)
            our_checks, their_checks = await page("/metrics/slis"), await their_page("/metrics/slis")

    assert {name for name, _, _ in samples(ours)} == {"kube_pod_resource_limit", "kube_pod_resource_request"}
    shown = {label for _, labels, _ in samples(ours) for label in labels if label.startswith("pod=")}
    assert shown == {f'pod="{name}"' for name in SPECS if name not in {"finished", "no-requests"}}
    assert texts(ours) == texts(theirs)
    common = "kubernetes_healthcheck", "kubernetes_healthchecks_total"
    assert {name: texts(our_checks)[name] for name in common} == {name: texts(their_checks)[name] for name in common}
    for line in (
        'kubernetes_healthcheck{name="ping",type="livez"} 1',
        'kubernetes_healthcheck{name="ping",type="healthz"} 1',
    ):
        assert line in their_checks
        assert line in our_checks
