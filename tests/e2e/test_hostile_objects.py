"""Objects that a tenant of a real API server can store do not affect other objects."""

# ruff: noqa: UP031 (JSON is full of braces, which `format` would have to double)

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from scheduler.kube.resources import WATCHED_NOW, KindSpec
from tests.e2e.cluster import Cluster, node, pod, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon
from tests.e2e.controlplane.process import ServerProcess, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

DEEP = 9_900
_CONTAINER = '"containers":[{"name":"c","image":"none"%s}]'
_TEMPLATE = '"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{%s}}' % (
    _CONTAINER % ""
)
_CLAIM = '"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"x"}}]%s}}'
_OPAQUE = ',"config":[{"opaque":{"driver":"d.example.com","parameters":%s}}]'
_TERM = '{"labelSelector":{"matchExpressions":[{"key":"k","operator":"In","values":[%s]}]},"topologyKey":"zone"}'
_AFFINITY = '"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[%s]}}'

PLAIN = {
    "Pod": '"spec":{"schedulerName":"kubestow","nodeSelector":{"no":"where"},%s}' % (_CONTAINER % ""),
    "Node": '"status":{"allocatable":{"cpu":"0"}}',
    "Namespace": "",
    "PersistentVolume": '"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"}}',
    "PersistentVolumeClaim": '"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}',
    "Service": '"spec":{"ports":[{"port":80}]}',
    "ReplicationController": '"spec":{"replicas":0,"selector":{"a":"b"},%s}' % _TEMPLATE.partition(",")[2],
    "ReplicaSet": '"spec":{"replicas":0,%s}' % _TEMPLATE,
    "StatefulSet": '"spec":{"replicas":0,"serviceName":"s",%s}' % _TEMPLATE,
    "PodDisruptionBudget": '"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}',
    "StorageClass": '"provisioner":"p.example.com"',
    "CSINode": '"spec":{"drivers":[]}',
    "CSIDriver": '"spec":{}',
    "VolumeAttachment": '"spec":{"attacher":"d.example.com","nodeName":"n","source":{"persistentVolumeName":"v"}}',
    "CSIStorageCapacity": '"storageClassName":"x","capacity":"1Gi"',
    "ResourceClaim": _CLAIM % "",
    "ResourceSlice": '"spec":{"driver":"d.example.com","nodeName":"n","pool":{"name":"n","generation":1,"resourceSliceCount":1}}',
    "DeviceClass": '"spec":{}',
}
"""A valid object of each watched kind, but for its metadata."""


def nested(levels: int, key: str = "f:a") -> str:
    return f'{{"{key}":' * levels + "{}" + "}" * levels


def many(form: str, count: int) -> str:
    return ",".join(form % number for number in range(count))


METADATA = {
    "deep managed fields": '"managedFields":[{"manager":"me","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",'
    f'"time":"2026-01-01T00:00:00Z","fieldsV1":{{"f:metadata":{nested(DEEP)}}}}}]',
    "long annotations": '"annotations":{"note":"%s"}' % ("\\u0000x" * 60_000),
    "lone surrogates": '"annotations":{"note":"\\ud800","note":"\\udfff\\ud800"},"labels":{"a":"1","a":"2"}',
    "many labels": '"labels":{%s}' % many('"k%d":"v"', 20_000),
    "many finalizers": '"finalizers":[%s]' % many('"example.com/f%d"', 5_000),
    "many owners": '"ownerReferences":[%s]' % many('{"apiVersion":"v1","kind":"X","name":"x","uid":"%d"}', 5_000),
}
_ODD_AMOUNTS = ("1e99999", "9" * 1000, "1.0000000000000000000000001", "123456789E", "0e-99999")


def _specs() -> Iterator[tuple[str, str]]:
    """Kind and everything but its metadata."""
    for amount in _ODD_AMOUNTS:
        requests = ',"resources":{"requests":{"memory":"%s"},"limits":{"memory":"%s"}}' % (amount, amount)
        yield "Pod", '"spec":{"nodeName":"n-1",%s}' % (_CONTAINER % requests)
        yield "PersistentVolumeClaim", PLAIN["PersistentVolumeClaim"].replace("1Gi", amount)
        yield "PersistentVolume", PLAIN["PersistentVolume"].replace("1Gi", amount)
        yield "CSIStorageCapacity", PLAIN["CSIStorageCapacity"].replace("1Gi", amount)
        yield "Node", PLAIN["Node"].replace('"0"', f'"{amount}"')
    tolerations = '"tolerations":[%s]' % many('{"key":"k%d","operator":"Exists"}', 15_000)
    for odd in (
        tolerations,
        '"nodeSelector":{%s}' % many('"k%d":"v"', 20_000),
        _AFFINITY % (_TERM % many('"v%d"', 50_000)),
    ):
        yield "Pod", '"spec":{"nodeName":"n-1",%s,%s}' % (_CONTAINER % "", odd)
        yield "Pod", '"spec":{"schedulerName":"kubestow",%s,%s}' % (_CONTAINER % "", odd)
    amounts = many('"example.com/r%d":"1"', 5_000)
    resources = ',"resources":{"requests":{%s},"limits":{%s}}' % (amounts, amounts)
    yield "Pod", '"spec":{"nodeName":"n-1",%s}' % (_CONTAINER % resources)
    yield "Pod", '"spec":{"schedulerName":"kubestow",%s}' % (_CONTAINER % resources)
    odd_parameters = '{"x":"\\ud800"}', '{ "z" : 1.0, "a" : 1e3 }', '{"a":1,"a":2}', nested(900, "a"), '{"x":"\\u0000"}'
    for parameters in odd_parameters:
        yield "ResourceClaim", _CLAIM % (_OPAQUE % parameters)
        yield (
            "DeviceClass",
            '"spec":{"config":[%s]}' % (_OPAQUE % parameters).removeprefix(',"config":[').removesuffix("]"),
        )
    yield "PodDisruptionBudget", PLAIN["PodDisruptionBudget"].replace("1,", "-2147483648,", 1)
    yield "StatefulSet", PLAIN["StatefulSet"].replace('"replicas":0', '"replicas":2147483647')


def objects() -> Iterator[tuple[KindSpec, str]]:
    """Kind and JSON, each with a unique name."""
    kinds = {spec.name: spec for spec in WATCHED_NOW}
    made = [(name, body, METADATA[what]) for name, body in PLAIN.items() for what in METADATA]
    made += [(name, body, "") for name, body in _specs()]
    for number, (name, body, metadata) in enumerate(made):
        head = f'"apiVersion":"{kinds[name].group_versions[0]}","kind":"{name}"'
        parts = [head, f'"metadata":{{"name":"h-{number}"{"," * bool(metadata)}{metadata}}}', *([body] if body else [])]
        yield kinds[name], "{" + ",".join(parts) + "}"


async def stored(http: aiohttp.ClientSession, spec: KindSpec, body: str) -> bool:
    """Whether the server took it. Some numbers in parameters make it cut the connection."""
    version = spec.group_versions[0]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    path = f"{root}/namespaces/default/{spec.plural}" if spec.namespaced else f"{root}/{spec.plural}"
    headers = {"Content-Type": "application/json"}
    try:
        async with http.post(path, data=body.encode("utf-8", "surrogatepass"), headers=headers) as answer:
            return answer.status < 300
    except aiohttp.ServerDisconnectedError:
        return False


async def unforeseen(port: int) -> dict[str, str]:
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as answer:
        found = re.findall(
            r'^kubestow_unforeseen_errors_total\{part="([^"]+)"\} (\S+)$', await answer.text(), re.MULTILINE
        )
    assert found
    return {part: count for part, count in found if float(count)}


async def test_what_a_real_server_stores_costs_no_other_object_anything(control_plane_binaries: Path) -> None:
    async with ControlPlane() as plane, plane.client() as http:
        cluster = Cluster(http)
        await cluster.create(node("n-1"))

        async def places(name: str, server: ServerProcess) -> None:
            await cluster.create(pod(name, SCHEDULER_NAME, cpu="100m"))
            await until(lambda: cluster.node_of(name), f"{name} bound", server=server, within_s=120)

        port = free_port()
        with daemon(plane, flags=[f"--plain-port={port}"]) as server:
            await places("before", server)
            kinds: dict[str, int] = dict.fromkeys(PLAIN, 0)
            for spec, body in objects():
                kinds[spec.name] += await stored(http, spec, body)
            await places("after", server)
            assert {} == await unforeseen(port)
        with daemon(plane, flags=[f"--plain-port={port}"]) as server:
            await places("restarted", server)
            assert {} == await unforeseen(port)

    assert {} == {name: count for name, count in kinds.items() if count < 3}
