"""Read a cluster: pages, permissions, kinds that are not served, replaced objects; the saved dump has no secrets."""

from __future__ import annotations

import gzip
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
from simulator.apiserver.resources import LIKE_1_33, LIKE_1_36_WITH_BETAS
from simulator.builders.claims import a_claim
from simulator.builders.core import node, pod
from simulator.builders.devices import a_device, a_slice
from simulator.simulate.input import from_cluster
from simulator.simulate.input.dump import dump_command, save
from simulator.simulate.input.from_cluster import (
    KINDS_READ,
    ClusterObjects,
    ClusterOptions,
    Reader,
    lacking,
    read_cluster,
)
from simulator.simulate.input.manifests import Found, InputError, cleaned, load
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


@pytest.mark.parametrize(("answers", "names", "requests"), [
    pytest.param([page("one", more="t"), page("two")], ["one", "two"],
        [f"{PODS}&limit=500", f"{PODS}&limit=500&continue=t"], id="two pages"),
    pytest.param([page("old", more="t"), Gone("expired", status=410), page("one", "two")], ["one", "two"],
        [f"{PODS}&limit=500", f"{PODS}&limit=500&continue=t", PODS],
        id="a token that expires: the list is read again as a whole"),
    pytest.param([page("one", more="t"), Unavailable("reset"), page("two")], ["one", "two"],
        [f"{PODS}&limit=500", *2 * [f"{PODS}&limit=500&continue=t"]], id="a lost connection: the page is read again"),
])  # fmt: skip
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
    assert lines[-1] == "--allow-partial goes on without these objects."
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
    assert "--" not in lacking(found.gaps).partition("Grant them:")[0], "the flags are those of the caller"
    assert "--allow-partial" not in lacking(found.gaps), "it is given"


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
    assert not any(name in note for note in found.notes for name in ("Resource", "CSIStorageCapacity", "PodGroup"))


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
        pytest.param(LIKE_1_33, "resource.k8s.io/v1beta2", id="of an older server"),
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


PAGE = Path(__file__).parents[4] / "docs/simulate.md"


def dumped(name: str = "p", annotations: Object | None = None, **container: Any) -> Object:
    metadata = {"name": name, "uid": f"u-{name}", **({"annotations": annotations} if annotations else {})}
    spec = {"containers": [{"name": "c", "image": "i", **container}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def saved(tmp_path: Path, *objects: Object, name: str = "dump.json.gz") -> list[Found]:
    """What the file has, read as strictly as any."""
    save([cleaned(each, "cluster") for each in objects], str(tmp_path / name))
    return load([str(tmp_path / name)], level="strict").objects


@pytest.mark.parametrize(
    ("container", "kept"),
    [
        pytest.param(
            {"env": [{"name": "A", "value": "s3cret"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "f"}}}]},
            {
                "env": [
                    {"name": "A", "value": "dropped-1"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "f"}}},
                ]
            },
            id="values of variables",
        ),
        pytest.param({"args": ["--password", "s3cret"]}, {"args": ["dropped-1"]}, id="arguments"),
        pytest.param({"command": ["s3cret"]}, {"command": ["dropped-1"]}, id="commands"),
        pytest.param(
            {"livenessProbe": {"httpGet": {"port": 1, "httpHeaders": [{"name": "Authorization", "value": "s3cret"}]}}},
            {"livenessProbe": {"exec": {"command": ["dropped-1"]}}},
            id="probes",
        ),
        pytest.param(
            {"lifecycle": {"preStop": {"exec": {"command": ["s3cret"]}}, "stopSignal": "SIGTERM"}},
            {"lifecycle": {"preStop": {"exec": {"command": ["dropped-1"]}}, "stopSignal": "SIGTERM"}},
            id="hooks",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 1}]},
            {"resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 1}]},
            id="fields that a scheduler reads stay",
        ),
    ],
)
def test_containers(tmp_path: Path, container: Object, kept: Object) -> None:
    (found,) = saved(tmp_path, dumped(**container))

    assert found.value["spec"]["containers"] == [{"name": "c", "image": "i", **kept}]
    assert b"s3cret" not in gzip.decompress((tmp_path / "dump.json.gz").read_bytes())


OPAQUE = {"driver": "d.example", "parameters": {"key": "s3cret"}}
DEVICE = {"driver": "d.example", "pool": "p", "device": "d"}


def in_volume(kind: str, **spec: Any) -> Object:
    """A PersistentVolume with this source."""
    base = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "spec": base | {kind: {"driver": "d.example", **spec}}}


def of_device_kind(kind: str, status: Object | None = None, **spec: Any) -> Object:
    made = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "spec": spec}
    return made | ({"status": status} if status else {})


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(
            {"apiVersion": "v1", "kind": "Node", "status": {"conditions": [{"type": "A", "message": "s3cret"}]}},
            id="a condition",
        ),
        pytest.param(
            dumped()
            | {"status": {"message": "s3cret", "containerStatuses": [{"name": "c", "lastState": {"terminated": {
                "exitCode": 1, "message": "s3cret"}}}]}},
            id="the message of an ended container",
        ),
        pytest.param(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "spec": {
                    "containers": [{"name": "c", "image": "i"}],
                    "volumes": [{"name": "v", "gitRepo": {"repository": "https://ann:s3cret@git.example.com/a"}}],
                },
            },
            id="the URL of a git repository",
        ),
        pytest.param(in_volume("flexVolume", options={"password": "s3cret"}), id="options of a FlexVolume"),
        pytest.param(
            in_volume("csi", volumeHandle="h", volumeAttributes={"csi.storage.k8s.io/a": "s3cret"}),
            id="attributes of a volume, whatever their name",
        ),
        pytest.param(
            {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "d.example"}
            | {"parameters": {"key": "s3cret"}, "mountOptions": ["password=s3cret"]},
            id="parameters and options of a class",
        ),
        pytest.param(
            {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "spec": {
                "attacher": "d.example", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
             "status": {"attached": True, "attachmentMetadata": {"a": "s3cret"}, "attachError": {"message": "s3cret"}}},
            id="an attachment",
        ),
        pytest.param(of_device_kind("DeviceClass", config=[{"opaque": OPAQUE}]), id="parameters of a device class"),
        pytest.param(
            of_device_kind("ResourceClaim", {"devices": [DEVICE | {"data": {"key": "s3cret"}}]},
                           devices={"config": [{"opaque": OPAQUE}]}),
            id="parameters of a claim, and data of its devices",
        ),
    ],
)  # fmt: skip
def test_fields_of_drivers_and_messages(tmp_path: Path, manifest: Object) -> None:
    """They are replaced, and the dump can be read and simulated."""
    (found,) = saved(tmp_path, {"metadata": {"name": "x", "namespace": "a"}, **manifest})

    text = gzip.decompress((tmp_path / "dump.json.gz").read_bytes())
    assert b"s3cret" not in text
    assert b"dropped-1" in text
    kept = (
        {key: value for key, value in manifest["spec"].items() if key in {"capacity", "attacher"}}
        if "spec" in manifest
        else {}
    )
    assert {key: found.value["spec"][key] for key in kept} == kept


def test_keys_that_a_driver_chose_are_no_fields(tmp_path: Path) -> None:
    attributes = {"options": {"string": "a"}, "parameters": {"int": 1}, "message": {"string": "b"}}
    slice_ = of_device_kind(
        "ResourceSlice",
        driver="d.example",
        nodeName="n",
        pool={"name": "p", "generation": 1, "resourceSliceCount": 1},
        devices=[{"name": "d", "attributes": attributes, "capacity": {"options": {"value": "1"}}}],
    )
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"message": "m"}}}
    first, second = saved(tmp_path, {"metadata": {"name": "s"}, **slice_}, node)

    assert first.value["spec"] == slice_["spec"]
    assert second.value["metadata"]["labels"] == {"message": "m"}


def test_annotations(tmp_path: Path) -> None:
    """Annotations of Kubernetes stay, because controllers read them, and the task of a pod of Volcano."""
    kept = {"deployment.kubernetes.io/revision": "3", "scheduling.k8s.io/group-name": "g"}
    kept |= {"kubestow.dev/expect": "pending", "volcano.sh/task-spec": "worker"}
    hidden = {"kubectl.kubernetes.io/restartedAt": "2026"}
    hidden |= dict.fromkeys(("vault.example.com/token", "notkubernetes.io/a", "volcano.sh/a"), "s3cret")
    applied = {"kubectl.kubernetes.io/last-applied-configuration": '{"env": "s3cret"}'}
    (found,) = saved(tmp_path, dumped(annotations=applied | hidden | kept))

    names = {"2026": "dropped-1", "s3cret": "dropped-2"}
    assert found.value["metadata"]["annotations"] == kept | {key: names[value] for key, value in hidden.items()}


def test_values_that_differ_still_differ(tmp_path: Path) -> None:
    """So a Deployment finds the ReplicaSet of its template."""
    given = (dumped(name, env=[{"name": "A", "value": value}]) for name, value in (("a", "1"), ("b", "2"), ("c", "1")))
    values = [each.value["spec"]["containers"][0]["env"][0]["value"] for each in saved(tmp_path, *given)]

    assert values == ["dropped-1", "dropped-2", "dropped-1"]


def test_names_that_only_look_like_fields(tmp_path: Path) -> None:
    labelled = dumped()
    labelled["metadata"]["labels"] = {"env": "prod", "args": "x"}
    parameters = {"env": ["value", {"value": 1}], "annotations": {"a": 1}, "lifecycle": {"x": 1}}
    first, second = saved(tmp_path, labelled, a_claim("c").config("d", parameters).obj())

    assert first.value["metadata"]["labels"] == {"env": "prod", "args": "x"}
    assert second.value["spec"]["devices"]["config"][0]["opaque"]["parameters"] == {"dropped": "dropped-1"}


def test_uids_stay(tmp_path: Path) -> None:
    (found,) = saved(tmp_path, dumped())

    assert found.former["metadata"]["uid"] == "u-p"


@pytest.mark.parametrize("name", ["dump.json.gz", "dump.json"])
def test_the_same_objects_give_the_same_bytes(tmp_path: Path, name: str) -> None:
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        saved(tmp_path / directory, dumped("x", args=["1"]), dumped("y"), name=name)
    one, other = ((tmp_path / directory / name).read_bytes() for directory in ("a", "b"))

    assert one == other
    assert one.startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--save: .*: Is a directory"):
        save([], str(tmp_path))


def test_the_command_has_every_kind() -> None:
    *comments, command = dump_command().splitlines()
    resources = command.split()[2].split(",")

    assert all(line.startswith("#") for line in comments)
    missing = [kind.resource for kind in KINDS_READ if kind.resource not in resources]
    groups = ("scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh")
    assert missing == ["devicetaintrules.resource.k8s.io", *(f"podgroups.{group}" for group in groups)]
    assert ",".join(missing) in comments[1]
    assert not {"secrets", "configmaps"} & set(resources)


def test_the_page_shows_the_command() -> None:
    """Else: kubestow simulate --print-dump-command."""
    assert f"```\n{dump_command()}\n```" in PAGE.read_text(encoding="utf-8")
