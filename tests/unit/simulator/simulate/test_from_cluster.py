"""Read a cluster: pages, permissions, kinds that are not served, and files that replace objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scheduler.core.errors import ApiError, Forbidden, Gone, NotFound, TooManyRequests, Unavailable
from scheduler.kube.client_config import Settings
from scheduler.kube.transport import HttpTransport
from scheduler.kube.wire import Query
from simulator.apiserver import ApiServer, Fault
from simulator.apiserver.resources import LIKE_1_32, LIKE_1_36_WITH_BETAS
from simulator.builders.core import node, pod
from simulator.builders.devices import a_device, a_slice
from simulator.simulate.input import from_cluster
from simulator.simulate.input.from_cluster import KINDS_READ, ClusterObjects, ClusterOptions, Reader, read_cluster
from simulator.simulate.input.manifests import Found, InputError, cleaned
from tests.support.kubeconfigs import kubeconfig
from tests.unit.kube.scripted import LeapingClock

Object = dict[str, Any]
ALL = ClusterOptions()


class Scripted:
    """A transport that serves core/v1 and answers lists from a table: a page, or errors and then a page."""

    def __init__(self, answers: Mapping[str, list[Object | ApiError]], forbidden: tuple[str, ...] = ()) -> None:
        self._answers = {path: list(left) for path, left in answers.items()}
        self._forbidden = forbidden
        self.requests: list[str] = []

    async def get(self, path: str, **_: Any) -> bytes:
        if path != "/api/v1":
            raise NotFound("not here", status=404)
        names = [kind.spec.plural for kind in KINDS_READ if kind.spec.group_versions == ("v1",)]
        return json.dumps({"resources": [{"name": name} for name in names]}).encode()

    async def list(self, path: str, query: Query) -> bytes:
        self.requests.append("&".join([path, *(f"{key}={value}" for key, value in query.items())]))
        if path in self._forbidden:
            raise Forbidden('pods is forbidden: User "system:serviceaccount:ci:bot" cannot list', status=403)
        answers = self._answers.get(path, [])
        answer = answers.pop(0) if answers else page()
        if isinstance(answer, ApiError):
            raise answer
        return json.dumps(answer).encode()


def page(*names: str, more: str = "") -> Object:
    items = [{"metadata": {"name": name, "namespace": "a"}, "spec": {}} for name in names]
    return {"metadata": {"resourceVersion": "1", "continue": more}, "items": items}


async def read(
    transport: Scripted, options: ClusterOptions = ALL, clock: LeapingClock | None = None
) -> tuple[list[str], ClusterObjects]:
    """Return the names of the pods, and all objects."""
    reader = Reader(transport, options, clock=clock or LeapingClock(), progress=lambda *_: None)  # type: ignore[arg-type]
    found = await reader.read()
    return [each.name for each in found.objects if each.kind == "Pod"], found


PODS = "/api/v1/pods"


@pytest.mark.parametrize(
    ("answers", "names", "requests"),
    [
        pytest.param(
            [page("one", more="t"), page("two")],
            ["one", "two"],
            [f"{PODS}&limit=500", f"{PODS}&limit=500&continue=t"],
            id="two pages",
        ),
        pytest.param(
            [page("old", more="t"), Gone("expired", status=410), page("one", "two")],
            ["one", "two"],
            [f"{PODS}&limit=500", f"{PODS}&limit=500&continue=t", PODS],
            id="a token that expires: the list is read again as a whole",
        ),
        pytest.param(
            [page("one", more="t"), Unavailable("reset"), page("two")],
            ["one", "two"],
            [f"{PODS}&limit=500", *2 * [f"{PODS}&limit=500&continue=t"]],
            id="a lost connection: the page is read again",
        ),
    ],
)
async def test_pages(answers: list[Object | ApiError], names: list[str], requests: list[str]) -> None:
    transport = Scripted({PODS: answers})

    assert (await read(transport))[0] == names
    assert [each for each in transport.requests if each.startswith(PODS)] == requests


async def test_retry_after_of_a_busy_server_is_respected() -> None:
    clock = LeapingClock()
    await read(Scripted({PODS: [TooManyRequests("busy", retry_after_s=7)]}), clock=clock)

    assert clock.slept == [7]


async def test_a_server_that_stays_away_ends_the_reading() -> None:
    with pytest.raises(Unavailable):
        await read(Scripted({PODS: [Unavailable("away")] * 5}))


async def test_all_missing_permissions_are_named_at_once() -> None:
    with pytest.raises(InputError) as wrong:
        await read(Scripted({}, forbidden=(PODS, "/api/v1/nodes", "/api/v1/limitranges")))

    lines = str(wrong.value).splitlines()
    assert lines[1] == (
        "  list pods at the cluster scope: running pods use no resources of the nodes, and no pending pod is simulated"
    )
    assert [line.partition(":")[0] for line in lines[2:4]] == [
        "  list nodes at the cluster scope",
        "  list limitranges at the cluster scope",
    ]
    assert lines[5:7] == [
        "  kubectl create clusterrole kubestow-simulate --verb=list --resource=pods,nodes,limitranges",
        "  kubectl create clusterrolebinding kubestow-simulate --clusterrole=kubestow-simulate --serviceaccount=ci:bot",
    ]


async def test_a_missing_permission_in_a_namespace_needs_a_role_binding() -> None:
    with pytest.raises(InputError) as wrong:
        await read(Scripted({}, forbidden=("/api/v1/namespaces/a/services",)), ClusterOptions(namespaces=("a", "b")))

    assert "list services in namespace a: " in str(wrong.value)
    assert "kubectl create rolebinding" in str(wrong.value)
    assert str(wrong.value).count("--namespace=a") == 1
    assert "clusterrolebinding" not in str(wrong.value)


async def test_a_partial_result_has_the_pods_of_the_namespaces() -> None:
    transport = Scripted({"/api/v1/namespaces/a/pods": [page("mine")]}, forbidden=(PODS,))
    names, found = await read(transport, ClusterOptions(namespaces=("a",), allows_partial=True))

    assert names == ["mine"]
    assert [gap.kind.spec.name for gap in found.gaps] == ["Pod"]


async def test_workloads_are_read_in_the_chosen_namespaces_only() -> None:
    """Bound pods, claims and budgets of all namespaces matter."""
    transport = Scripted({})
    await read(transport, ClusterOptions(namespaces=("a", "b")))

    paths = {each.partition("&")[0] for each in transport.requests}
    assert {"/api/v1/namespaces/a/services", "/api/v1/namespaces/b/services", PODS} <= paths
    assert "/api/v1/services" not in paths
    assert "/api/v1/namespaces/a/pods" not in paths


async def test_kinds_that_the_server_lacks() -> None:
    """Kinds that some versions do not serve cause no note."""
    _, found = await read(Scripted({}))

    lost = "pods that its controller has not created yet are missing"
    assert f"the server does not serve Deployment (apps/v1): {lost}" in found.notes
    assert not any("Resource" in note or "CSIStorageCapacity" in note for note in found.notes)


async def test_an_object_that_cannot_be_read_is_left_out() -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    answer = page("a", "b", "deep")
    answer["items"][-1]["spec"] = deep
    names, found = await read(Scripted({PODS: [answer]}))

    assert names == ["a", "b"]
    assert any(note.startswith("Pod a/deep is left out: ") for note in found.notes)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="no list"),
        pytest.param({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]}, id="no name"),
        pytest.param({"metadata": {"resourceVersion": "1"}, "items": ["text"]}, id="no object"),
    ],
)
async def test_answers_that_are_no_lists(body: Object) -> None:
    with pytest.raises(ApiError, match="unreadable list"):
        await read(Scripted({PODS: [body]}))


# -- over HTTP -----------------------------------------------------------------------------------------------------------


async def over_http(server: ApiServer, progress: from_cluster.Progress = lambda *_: None) -> tuple[Found, ...]:
    transport = HttpTransport(Settings(server.url))
    try:
        return (await Reader(transport, ALL, clock=LeapingClock(), progress=progress).read()).objects
    finally:
        await transport.close()


async def test_a_list_continues_after_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_cluster, "_PAGE", 2)
    async with ApiServer() as server:
        for name in "abcde":
            server.create("Pod", pod(name).obj())

        def compact(_kinds: int, _total: int, objects: int) -> None:
            if objects == 2:
                server.create("Pod", pod("late").obj())
                server.compact()

        found = await over_http(server, compact)

        assert server.requests()["list pods 410"] == 1
        assert {(verb.split()[0]) for verb in server.requests()} == {"list"}
    assert [each.name for each in found if each.kind == "Pod"] == ["a", "b", "c", "d", "e", "late"]


@pytest.mark.parametrize(
    ("served", "version"),
    [
        pytest.param(LIKE_1_36_WITH_BETAS, "resource.k8s.io/v1", id="the best version"),
        pytest.param(LIKE_1_32, "resource.k8s.io/v1beta1", id="of an older server"),
    ],
)
async def test_items_of_lists_get_kind_and_apiversion(served: tuple[str, ...], version: str) -> None:
    async with ApiServer(served=served) as server:
        server.create("Pod", pod("p").obj())
        server.create("Node", node("n").obj())
        server.create("ResourceSlice", a_slice("n", "gpu.example.com", a_device("d")).obj())
        found = [each for each in await over_http(server) if each.kind not in {"Namespace", "PriorityClass"}]

    assert [(each.value["apiVersion"], each.where) for each in found] == [
        ("v1", "cluster (Pod default/p)"),
        ("v1", "cluster (Node n)"),
        (version, f"cluster (ResourceSlice {found[-1].name})"),
    ]
    assert all("uid" not in each.value["metadata"] and each.former["metadata"]["uid"] for each in found)


# -- connecting ----------------------------------------------------------------------------------------------------------


def config(path: Path, server: str, user: Object) -> str:
    path.write_text(json.dumps(kubeconfig(user, server)))
    return str(path)


PLUGIN = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}}


@pytest.mark.parametrize(
    ("user", "context", "said"),
    [
        pytest.param({"token": "t"}, None, "http://127.0.0.1:1 does not answer: cannot connect", id="unreachable"),
        pytest.param(PLUGIN, None, "no-such-plugin", id="a missing credential plugin"),
        pytest.param({"token": "t"}, "other", "other", id="an unknown context"),
    ],
)
async def test_no_way_to_the_cluster(tmp_path: Path, user: Object, context: str | None, said: str) -> None:
    path = config(tmp_path / "config", "http://127.0.0.1:1", user)
    with pytest.raises(InputError) as wrong:
        await read_cluster(ClusterOptions(path, context), clock=LeapingClock(), progress=lambda *_: None)

    assert said in str(wrong.value)
    assert f"kubectl --kubeconfig {path}" in str(wrong.value)
    assert "\n" not in str(wrong.value)


async def test_credentials_that_have_expired(tmp_path: Path) -> None:
    async with ApiServer() as server:
        server.faults.add(Fault(verb="list", resource="pods", status=401, times=None))
        path = config(tmp_path / "config", server.url, {"token": "t"})
        with pytest.raises(InputError, match=r"refuses the credentials \(401 .*Log in again; `kubectl"):
            await read_cluster(ClusterOptions(path), clock=LeapingClock(), progress=lambda *_: None)


# -- files --------------------------------------------------------------------------------------------------------------


def thing(kind: str, spec: Object, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", **metadata}, "spec": spec}


def of_size(cpu: str) -> Object:
    return {"status": {"allocatable": {"cpu": cpu}}}


CLAIM = "PersistentVolumeClaim"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
OWNED: Object = {"ownerReferences": [{"kind": "Deployment", "name": "d"}]}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            thing("Node", {"unschedulable": True}) | of_size("4"),
            thing("Node", {}, labels={"a": "b"}),
            thing("Node", {}, labels={"a": "b"}) | of_size("4"),
            id="the status is kept",
        ),
        pytest.param(
            thing("Node", {}) | of_size("4"),
            thing("Node", {}) | of_size("8"),
            thing("Node", {}) | of_size("8"),
            id="the status of the file replaces it",
        ),
        pytest.param(
            thing("Pod", {"nodeName": "n", "priority": 3}),
            thing("Pod", {"hostNetwork": True}),
            thing("Pod", {"nodeName": "n", "hostNetwork": True}, namespace="default"),
            id="a bound pod stays on its node",
        ),
        pytest.param(
            thing(CLAIM, {"volumeName": "v"}, annotations=BOUND | APPLIED),
            thing(CLAIM, {}, annotations={"a": "b"}),
            thing(CLAIM, {"volumeName": "v"}, annotations=BOUND | {"a": "b"}, namespace="default"),
            id="a bound claim keeps its volume",
        ),
        pytest.param(
            thing("ReplicaSet", {}, **OWNED),
            thing("ReplicaSet", {"replicas": 3}),
            thing("ReplicaSet", {"replicas": 3}, namespace="default", **OWNED),
            id="owners are kept",
        ),
    ],
)
def test_a_file_replaces_an_object(old: Object, new: Object, expected: Object) -> None:
    """As `kubectl apply`: fields that the manifest lacks stay."""
    old["metadata"]["uid"] = "u-1"
    cluster = ClusterObjects((cleaned(old, "cluster"),))
    (found,) = cluster.with_files([cleaned(new, "in.yaml")])

    assert found.value == expected
    assert found.where.startswith("in.yaml")
    assert found.former["metadata"]["uid"] == "u-1"


def test_other_objects_are_added() -> None:
    old = cleaned(thing("Pod", {}), "cluster")
    pods = (thing("Pod", {}, namespace="other"), thing("Pod", {}, name="y"))
    others = (thing("Service", {}), thing("Pod", {}) | {"apiVersion": "example.com/v1"})
    files = [cleaned(each, "in.yaml") for each in (*pods, *others)]

    assert ClusterObjects((old,)).with_files(files) == [old, *files]
