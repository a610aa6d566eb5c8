"""The chart on a real control plane: the daemon runs as its service account, with its flags and its file. The chart's roles
allow what every kind of pod needs, and no more."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import re
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from simulator.builders.claims import a_claim_template
from simulator.builders.devices import a_device
from tests.deploy import tools
from tests.deploy.chart import CHART, NAMESPACE, Json, Rendered, rendered
from tests.deploy.matrix import CONFIGURATIONS, FULL
from tests.e2e.cluster import Cluster, collection, node, until
from tests.e2e.controlplane.gate import built_or_skip
from tests.e2e.controlplane.harness import STORAGE_AND_DEVICES, ControlPlane, started
from tests.e2e.controlplane.process import ServerProcess, free_port
from tests.e2e.devices import DRIVER as DEVICE_DRIVER, DeviceSandbox, a_priority, gpus, on
from tests.e2e.installed import Account, Applier, Installation, account, may, readyz
from tests.e2e.sandbox import SharedPlane
from tests.e2e.storage import DRIVER, StorageSandbox, is_bound
from tests.support.volumebuilders import a_claim, a_class, a_csi_driver, a_pv

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

LABEL: Final = "kubestow.dev/pods-with-claims"
VALUES: Final[Json] = {
    "admissionPolicy": {"enabled": True},
    "guardPolicy": {"enabled": True},
    "metrics": {"reader": {"serviceAccount": {"name": "prometheus", "namespace": "monitoring"}}},
    "logging": {"verbosity": 4},
    "featureGates": {"DRADeviceTaintRules": True},
}
TAINT_RULES: Final = ("--feature-gates=DRADeviceTaintRules=true", "--runtime-config=resource.k8s.io/v1beta2=true")
TROUBLE: Final = re.compile(r"forbidden|Traceback", re.IGNORECASE)


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Path) -> Iterator[ControlPlane]:
    """With controllers for volumes and claims, and the kinds of operators."""
    built_or_skip(tools.helm)

    async def prepare(plane: ControlPlane) -> None:
        await plane.start_controllers(STORAGE_AND_DEVICES)
        async with plane.client() as http:
            await Applier(http).namespaces(NAMESPACE, "leases", "monitoring")
            crds = _crds()
            await Applier(http).apply(*crds)
            for crd in crds:
                await until(partial(_is_served, http, crd), f"objects of {crd['metadata']['name']}")

    with started(ControlPlane(volume_resync_s=1, apiserver_flags=TAINT_RULES), prepare) as plane:
        yield plane


def _crds() -> list[Json]:
    """Kubestow's, and those of the Prometheus operator."""
    folder = built_or_skip(lambda: tools.module(tools.PROMETHEUS_OPERATOR)) / "example" / "prometheus-operator-crd"
    theirs = [folder / f"monitoring.coreos.com_{plural}.yaml" for plural in ("servicemonitors", "prometheusrules")]
    files = [*theirs, *sorted((CHART / "files").glob("*-crd.yaml"))]
    return [crd for file in files for crd in yaml.safe_load_all(file.read_text(encoding="utf-8")) if crd]


async def _is_served(http: aiohttp.ClientSession, crd: Json) -> bool:
    """Whether its objects can be created; for a while after the CRD they cannot."""
    spec = crd["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    async with http.get(path, params={"limit": "1"}) as answer:
        await answer.read()
        return answer.status == 200


@pytest.fixture(scope="module")
def chart() -> Rendered:
    return rendered(VALUES)


@pytest.fixture(scope="module")
def scheduler_account(plane: ControlPlane, chart: Rendered) -> Account:
    """The scheduler's account, once the chart is installed."""

    async def install() -> Account:
        async with plane.client() as http:
            return await Installation(plane, chart).install(http)

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(install())


@pytest.fixture(scope="module")
def running(plane: ControlPlane, chart: Rendered, scheduler_account: Account) -> Iterator[tuple[ServerProcess, int]]:
    """The installed daemon and its port. No request of it is denied."""
    plain = free_port()
    with Installation(plane, chart).daemon(scheduler_account, f"--plain-port={plain}") as (server, port):
        yield server, port
        with urllib.request.urlopen(f"http://127.0.0.1:{plain}/metrics") as answer:
            answers = [line for line in answer.read().decode().splitlines() if line.startswith("rest_client_requests")]
        assert [line for line in answers if 'code="200"' in line] != []
        assert [line for line in answers if 'code="403"' in line] == []
        assert TROUBLE.findall(server.output()) == []


async def is_ready(http: aiohttp.ClientSession, server: ServerProcess, port: int) -> Sequence[str]:
    said: list[str] = []

    async def read() -> Sequence[str] | None:
        status, lines = await readyz(http, port)
        said[:] = lines
        return lines if status == 200 else None

    try:
        return await until(read, "readiness", server=server)
    except AssertionError as failed:
        raise AssertionError("\n".join([*said, str(failed)])) from failed


def remarks(lines: Sequence[str]) -> list[str]:
    """Checks that pass with a remark."""
    return [line for line in lines[:-1] if not re.fullmatch(r"\[\+\]\S+ ok", line)]


@contextlib.asynccontextmanager
async def opened(
    kind: type[Any], plane: ControlPlane, http: aiohttp.ClientSession, running: tuple[ServerProcess, int], name: str
) -> AsyncIterator[Any]:
    """A sandbox for pods of the installed scheduler."""
    sandbox = kind(SharedPlane(plane, running[0]), http, name)
    await sandbox.open()
    yield sandbox
    await sandbox.close()


# -- what is applied -----------------------------------------------------------------------------------------------------


async def test_the_api_server_takes_everything_there_is_to_apply(http: aiohttp.ClientSession) -> None:
    everything = rendered(FULL).objects

    await Applier(http).apply(*everything, dry=True)

    assert {"ServiceMonitor", "PrometheusRule", "NetworkPolicy", "MutatingAdmissionPolicy", "PodDisruptionBudget"} <= {
        each["kind"] for each in everything
    }


async def test_the_namespace_may_be_restricted(http: aiohttp.ClientSession) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}}
    await Applier(http).apply(namespace)
    found = rendered(FULL)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "strict"}}
    spec = copy.deepcopy(found.pod["spec"]) | {"priorityClassName": ""}

    await Applier(http).apply(body | {"spec": spec}, dry=True)

    spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        await Applier(http).apply(body | {"spec": spec}, dry=True)


# -- what runs -----------------------------------------------------------------------------------------------------------


async def test_it_is_ready_and_misses_nothing(http: aiohttp.ClientSession, running: tuple[ServerProcess, int]) -> None:
    lines = await is_ready(http, *running)

    assert {"[+]permissions ok", "[+]kinds-served ok", "[+]leaderElection ok"} <= set(lines)
    assert remarks(lines) == []


async def test_it_holds_the_lease_of_the_release(
    http: aiohttp.ClientSession, running: tuple[ServerProcess, int]
) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/kubestow"

    async def holder() -> str:
        async with http.get(path) as answer:
            return str((await answer.json())["spec"]["holderIdentity"]) if answer.status == 200 else ""

    assert await until(holder, "a holder of the lease", server=running[0])


async def test_a_second_replica_stands_by_and_is_ready(
    plane: ControlPlane,
    http: aiohttp.ClientSession,
    chart: Rendered,
    scheduler_account: Account,
    running: tuple[ServerProcess, int],
) -> None:
    await is_ready(http, *running)
    with Installation(plane, chart).daemon(scheduler_account, name="second") as (server, port):
        lines = await is_ready(http, server, port)

        assert "[+]leaderElection ok" in lines
        assert '"event":"leading"' not in server.output()


async def test_the_pod_of_helm_test_is_scheduled(
    http: aiohttp.ClientSession, chart: Rendered, running: tuple[ServerProcess, int]
) -> None:
    pod = chart.one("Pod")
    cluster = Cluster(http, NAMESPACE)
    await cluster.create(node("plain", labels={"kubernetes.io/os": "linux"}))
    await Applier(http).apply(pod)

    assert await until(lambda: cluster.node_of(pod["metadata"]["name"]), "a node", server=running[0]) == "plain"
    await cluster.delete(f"{cluster.pods}/{pod['metadata']['name']}")
    await cluster.delete(f"{collection('Node')}/plain")


async def test_plain_pods_are_bound_or_get_a_reason(
    plane: ControlPlane, http: aiohttp.ClientSession, running: tuple[ServerProcess, int]
) -> None:
    async with opened(StorageSandbox, plane, http, running, "plain") as sandbox:
        await sandbox.make(sandbox.node("n1"), sandbox.pod("small", cpu="1"), sandbox.pod("huge", cpu="64"))

        assert await sandbox.bound("small") == ["n1"]
        assert await sandbox.refused("huge", "Insufficient cpu")
        assert await sandbox.event_note("Pod", "small", "Scheduled", "Successfully assigned")
        assert await sandbox.event_note("Pod", "huge", "FailedScheduling", "Insufficient cpu")


async def test_volumes_are_bound_and_provisioned(
    plane: ControlPlane, http: aiohttp.ClientSession, running: tuple[ServerProcess, int]
) -> None:
    async with opened(StorageSandbox, plane, http, running, "volumes") as sandbox, sandbox.provisioner():
        await sandbox.make(
            sandbox.node("n1"), a_class("w"), a_pv("a", "5Gi", "w").on("n1"), a_claim("static", "1Gi", "w")
        )
        await sandbox.make(a_class("d", DRIVER), a_csi_driver(DRIVER), a_claim("made", "1Gi", "d"))
        await sandbox.make(sandbox.pod("p", "static"), sandbox.pod("q", "made"))

        assert await sandbox.bound("p", "q") == ["n1", "n1"]
        assert is_bound(await sandbox.claim("static"))
        assert is_bound(await sandbox.claim("made"))


async def test_devices_are_allocated_and_freed_by_preemption(
    plane: ControlPlane, http: aiohttp.ClientSession, running: tuple[ServerProcess, int]
) -> None:
    priorities = (a_priority("low", 0), a_priority("high", 1000))
    async with opened(DeviceSandbox, plane, http, running, "devices") as sandbox:
        template = a_claim_template("t").request("r", "gpu")
        await sandbox.make(sandbox.node("n1"), gpus(), on("n1", a_device("a")), template, *priorities)
        await sandbox.make(sandbox.pod("victim", templates=["t"], priority="low"))
        assert await sandbox.bound("victim") == ["n1"]
        await sandbox.make(sandbox.pod("p", templates=["t"], priority="high"))

        assert await sandbox.bound("p") == ["n1"]
        assert await sandbox.devices_of(await sandbox.claim_of("p", "t")) == ["a"]
        assert await sandbox.event_note("Pod", "victim", "Preempted")
        await sandbox.lawful()


async def test_accounts_of_the_chart_may_scrape(
    plane: ControlPlane, http: aiohttp.ClientSession, running: tuple[ServerProcess, int]
) -> None:
    await is_ready(http, *running)
    for name in ("prometheus", "stranger"):
        metadata = {"name": name, "namespace": "monitoring"}
        await Applier(http).apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    url = f"https://127.0.0.1:{running[1]}"
    statuses = {}
    async with aiohttp.ClientSession() as session:
        for name in ("prometheus", "stranger"):
            bearer = (await account(http, name, "monitoring")).headers
            for path in ("/metrics", "/configz"):
                async with session.get(url + path, ssl=False, headers=bearer) as answer:
                    statuses[name, path] = answer.status
        async with session.get(f"{url}/metrics", ssl=False) as answer:
            statuses["anonymous", "/metrics"] = answer.status

    assert statuses == {
        ("prometheus", "/metrics"): 200,
        ("prometheus", "/configz"): 403,
        ("stranger", "/metrics"): 403,
        ("stranger", "/configz"): 403,
        ("anonymous", "/metrics"): 403,
    }


async def test_a_claim_for_an_extended_resource_is_made(
    plane: ControlPlane, http: aiohttp.ClientSession, running: tuple[ServerProcess, int]
) -> None:
    resource = f"{DEVICE_DRIVER}/gpu"
    async with opened(DeviceSandbox, plane, http, running, "extended") as sandbox:
        await sandbox.make(sandbox.node("n1"), gpus().extended_resource(resource), on("n1", a_device("a")))
        await sandbox.make(sandbox.pod("p", **{resource: "1"}))

        assert await sandbox.bound("p") == ["n1"]
        (claim,) = await sandbox.all("ResourceClaim")
        assert await sandbox.devices_of(claim["metadata"]["name"]) == ["a"]


async def test_a_profile_object_is_applied_and_has_a_status(
    http: aiohttp.ClientSession, running: tuple[ServerProcess, int]
) -> None:
    await is_ready(http, *running)
    head = {"apiVersion": "kubestow.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "kubestow"}}
    weights = {"multiPoint": {"enabled": [{"name": "ImageLocality", "weight": 7}]}}
    wish = head | {"spec": {"plugins": weights}}
    path = await Applier(http).path(wish)
    await Applier(http).apply(wish)

    async def reported() -> str:
        async with http.get(path) as answer:
            assert answer.status == 200, await answer.text()
            return str((await answer.json()).get("status", {}).get("changes", ""))

    assert "ImageLocality 1→7" in await until(reported, "a status of the profile object", server=running[0])
    await Cluster(http).delete(path)


# -- and no more ---------------------------------------------------------------------------------------------------------


FORBIDDEN: Final[dict[str, dict[str, str]]] = {
    "read secrets": {"verb": "get", "resource": "secrets"},
    "list its own secrets": {"verb": "list", "resource": "secrets", "namespace": NAMESPACE},
    "list configuration": {"verb": "list", "resource": "configmaps", "namespace": "kube-system"},
    "make pods": {"verb": "create", "resource": "pods"},
    "change pods": {"verb": "patch", "resource": "pods"},
    "change nodes": {"verb": "patch", "resource": "nodes"},
    "delete claims": {"verb": "delete", "resource": "persistentvolumeclaims"},
    "run commands in pods": {"verb": "create", "resource": "pods", "subresource": "exec"},
    "change leases elsewhere": {
        "verb": "patch",
        "group": "coordination.k8s.io",
        "resource": "leases",
        "namespace": "kube-system",
    },
    "change another lease": {
        "verb": "patch",
        "group": "coordination.k8s.io",
        "resource": "leases",
        "namespace": NAMESPACE,
        "name": "x",
    },
    "change its rights": {"verb": "patch", "group": "rbac.authorization.k8s.io", "resource": "clusterroles"},
    "impersonate": {"verb": "impersonate", "resource": "users"},
}


@pytest.mark.parametrize("attributes", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_the_account_may_not(
    http: aiohttp.ClientSession, scheduler_account: Account, attributes: dict[str, str]
) -> None:
    assert not await may(http, scheduler_account, **attributes)


def without(chart: Rendered, group: str, resource: str, verb: str) -> Rendered:
    changed = Rendered(copy.deepcopy(list(chart.objects)))
    role = changed.one("ClusterRole", "-lacking")
    taken = 0
    for rule in list(role["rules"]):
        if group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]:
            role["rules"].remove(rule)
            rest = [each for each in rule["resources"] if each != resource]
            role["rules"] += [
                rule | {"resources": [resource], "verbs": [each for each in rule["verbs"] if each != verb]},
                *([rule | {"resources": rest}] if rest else []),
            ]
            taken += 1
    role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]
    assert taken == 1
    return changed


@pytest.mark.parametrize(
    ("group", "resource", "verb", "said", "is_ready_yet"),
    [
        pytest.param("", "pods/binding", "create", "create pods/binding", False, id="nothing can be bound"),
        pytest.param("", "persistentvolumeclaims", "patch", "patch persistentvolumeclaims", True, id="volumes wait"),
    ],
)
async def test_a_right_that_is_missing_is_named(
    plane: ControlPlane,
    http: aiohttp.ClientSession,
    group: str,
    resource: str,
    verb: str,
    said: str,
    is_ready_yet: bool,
) -> None:
    """/readyz names it; it fails only where no pod could be bound."""
    name = f"{verb}-{resource.replace('/', '-')}-lacking"
    values = {"fullnameOverride": name, "config": {"profiles": [{"schedulerName": name}]}}
    installation = Installation(plane, without(rendered(values), group, resource, verb))
    lacking = await installation.install(http)
    with installation.daemon(lacking, name=name) as (server, port):

        async def reported() -> bool:
            status, lines = await readyz(http, port)
            is_named = any("permissions" in line and f"missing permission: {said}" in line for line in lines)
            return is_named and status == (200 if is_ready_yet else 500)

        await until(reported, f"{said!r} in /readyz", server=server)


@pytest.mark.parametrize("name", ["nothing but a binder", "without volumes", "no election"])
async def test_fewer_plugins_need_fewer_rights(plane: ControlPlane, http: aiohttp.ClientSession, name: str) -> None:
    release = name.replace(" ", "-")
    values = copy.deepcopy(CONFIGURATIONS[name]) | {"fullnameOverride": release, "logging": {"verbosity": 4}}
    values.setdefault("config", {}).setdefault("profiles", [{}])[0]["schedulerName"] = release
    installation = Installation(plane, rendered(values))
    few = await installation.install(http)
    with installation.daemon(few, name=release) as (server, port):
        lines = await is_ready(http, server, port)
        async with opened(StorageSandbox, plane, http, (server, port), f"few-{release}") as sandbox:
            sandbox.scheduler = release
            await sandbox.make(sandbox.node("n1"), sandbox.pod("p", cpu="1"))

            assert await sandbox.bound("p") == ["n1"]
        assert remarks(lines) == []
        assert TROUBLE.findall(server.output()) == []


# -- pods that are given to us -------------------------------------------------------------------------------------------


def a_pod(name: str, namespace: str, **spec: Any) -> Json:
    containers = [{"name": "c", "image": "none"}]
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


CLAIM: Final = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
EPHEMERAL: Final = {
    "volumes": [
        {"name": "s", "emptyDir": {}},
        {
            "name": "v",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                }
            },
        },
    ]
}
DEVICE: Final = {"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}


async def scheduler_of(http: aiohttp.ClientSession, pod: Json) -> str:
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
    async with http.post(path, json=pod, params={"dryRun": "All"}) as answer:
        assert answer.status == 201, await answer.text()
        return str((await answer.json())["spec"]["schedulerName"])


async def test_pods_with_claims_are_given_to_us(http: aiohttp.ClientSession, scheduler_account: Account) -> None:
    for name, labels in (("given", {LABEL: "true"}), ("kept", {})):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        await Applier(http).apply(namespace)

    async def is_given() -> bool:
        return await scheduler_of(http, a_pod("p", "given", **CLAIM)) == "kubestow"

    await until(is_given, "a policy that is in force")

    given = {
        "a claim": a_pod("p", "given", **CLAIM),
        "an ephemeral volume": a_pod("p", "given", **EPHEMERAL),
        "a device": a_pod("p", "given", **DEVICE),
        "the default by name": a_pod("p", "given", schedulerName="default-scheduler", **CLAIM),
        "no claim": a_pod("p", "given"),
        "another scheduler": a_pod("p", "given", schedulerName="mine", **CLAIM),
        "a node": a_pod("p", "given", nodeName="n", **CLAIM),
        "another namespace": a_pod("p", "kept", **CLAIM),
    }
    assert {why: await scheduler_of(http, pod) for why, pod in given.items()} == {
        "a claim": "kubestow",
        "an ephemeral volume": "kubestow",
        "a device": "kubestow",
        "the default by name": "kubestow",
        "no claim": "default-scheduler",
        "another scheduler": "mine",
        "a node": "default-scheduler",
        "another namespace": "default-scheduler",
    }
