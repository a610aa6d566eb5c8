"""`kubestow simulate`, whole: manifests in, the real daemon on the in-process API server, table or JSON and exit code out."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from scheduler.cli import main as cli
from simulator.apiserver import ApiServer
from simulator.builders.claims import a_claim as a_device_claim
from simulator.builders.core import node as a_node, pod as a_pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from simulator.simulate.answer import Answer
from tests.integration.conftest import Simulation, nodes_of, placements, workload
from tests.integration.test_transport import kubeconfig
from tests.support.extender import extender, filtering
from tests.support.volumebuilders import a_claim, a_class

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
GPU_DRIVER = "gpu.example.com"
STORAGE_DRIVER = "d.example"

NODE = '{apiVersion: v1, kind: Node, metadata: {name: "n"}, status: {allocatable: {cpu: "2", memory: 4Gi}}}'


def pod(name: str, cpu: str = "1", **spec: Any) -> str:
    """Return a pod without a scheduler name."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    )


def resizing(wanted: str, reason: str = "Deferred") -> str:
    """Return a pod on the node that has one CPU and a pending resize."""
    manifest = json.loads(pod("a", wanted, nodeName="n"))
    have = {"requests": {"cpu": "1"}}
    manifest["status"] = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}, "resources": have, "ready": True}],
    }
    return json.dumps(manifest)


def test_the_demo(simulate: Simulation) -> None:
    code, shown, _ = simulate(str(EXAMPLES / "demo.yaml"))

    assert shown["problems"] == []
    assert code == 0
    assert (shown["summary"]["placed"], shown["summary"]["pending"]) == (484, 16)
    assert {pod["reason"] for pod in shown["pods"] if pod["node"] is None} == {"Unschedulable", "SchedulingGated"}


def test_pending_pods_are_explained(simulate: Simulation) -> None:
    """One for each reason and workload: of the two equal pods only the first."""
    _, shown, _ = simulate.of(NODE, pod("a"), pod("b", "3"), pod("c", "3"), flags=["--explain"])

    explanations = {each["pod"]: each for each in shown["explanations"]}
    assert [each["verdict"] for each in explanations.values()] == ["doesNotFit"] * 2
    texts = [change["text"] for fix in explanations["default/b"]["fixes"] for change in fix["changes"]]
    assert texts[0] == "request 1 of cpu instead of 3"
    assert all(fix["verified"] for fix in explanations["default/b"]["fixes"])


@pytest.mark.parametrize(
    ("documents", "flags", "code", "problems"),
    [
        pytest.param([NODE, pod("a"), pod("b", "3")], [], 1, 1, id="one is too large"),
        pytest.param([NODE, pod("a"), pod("b", "3")], ["--expect-pending=b"], 0, 0, id="and was expected to be"),
        pytest.param([NODE, pod("a")], ["--expect-pending=default/*"], 1, 1, id="expected pending, and placed"),
        pytest.param([pod("a")], [], 1, 1, id="no node at all"),
        pytest.param(
            [NODE, pod("a").replace('"cpu": "1"', '"memory": "10E"'), pod("b")],
            [],
            1,
            1,
            id="a request beyond int64 fits no node",
        ),
        pytest.param([NODE, pod("a", nodeName="n"), pod("b", "2")], [], 1, 1, id="bound pods hold their place"),
        pytest.param([NODE, resizing("2"), pod("b")], [], 1, 1, id="and what they are being resized to"),
        pytest.param([NODE, resizing("2", "Infeasible"), pod("b")], [], 0, 0, id="unless that can never be"),
        pytest.param([NODE, pod("a", priority=7), pod("b", "2", priority=9)], [], 1, 1, id="the first in line wins"),
    ],
)
def test_exit_codes(simulate: Simulation, documents: list[str], flags: list[str], code: int, problems: int) -> None:
    ended, shown, _ = simulate.of(*documents, flags=flags)

    assert (ended, len(shown["problems"])) == (code, problems)
    assert shown["settled"] is True


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_pods_of_a_workload_spread_by_default(simulate: Simulation, kind: str) -> None:
    """Without the default spread by owner, the larger node would get all pods."""
    larger = '{apiVersion: v1, kind: Node, metadata: {name: larger}, status: {allocatable: {cpu: "64", memory: 64Gi}}}'
    _, shown, _ = simulate.of(NODE, larger, workload(kind, "w", 4, cpu="100m"))

    assert sorted(each["node"] for each in shown["pods"]) == ["larger", "larger", "n", "n"]


BOTH = {"allocatable": {"cpu": "2", "pods": "9"}, "capacity": {"cpu": "2", "pods": "9"}}


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        pytest.param({"status": {"allocatable": {"cpu": "2"}}}, ["bare", "n"], id="a node written by hand"),
        pytest.param({"status": BOTH}, ["n", "n"], id="a node whose kubelet reported capacity and allocatable"),
        pytest.param({"status": {"allocatable": {"cpu": "2"}}, "uid": "u"}, ["n", "n"], id="a node that a server has"),
    ],
)
def test_only_nodes_written_by_hand_are_completed(
    simulate: Simulation, fields: dict[str, Any], where: list[str]
) -> None:
    """A virtual kubelet's node has no hostname label, so it is no domain of the constraint."""
    metadata = {"name": "bare", **({"uid": fields["uid"]} if "uid" in fields else {})}
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": fields["status"]}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    constraint = spread | {"labelSelector": {"matchLabels": {"app": "w"}}}
    web = workload("ReplicaSet", "w", 2, topologySpreadConstraints=[constraint])
    _, shown, _ = simulate.of(NODE, bare, web)

    assert sorted(nodes_of(shown).values()) == where


@pytest.mark.parametrize(("newest", "node"), [("a", "n1"), ("z", "n2")])
def test_the_newest_of_two_default_classes(simulate: Simulation, newest: str, node: str) -> None:
    """The creation times of the input count, as in its cluster."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    classes = [
        a_class(name, STORAGE_DRIVER)
        .set({"metadata": {"annotations": default, "creationTimestamp": f"{2025 + (name == newest)}-01-01T00:00:00Z"}})
        .set({"allowedTopologies": [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": [on]}]}]})
        for name, on in (("a", "n1"), ("z", "n2"))
    ]
    claim = a_claim("c", "1Gi").set({"spec": {"storageClassName": None}})
    nodes = (a_node(name).label("kubernetes.io/hostname", name) for name in ("n1", "n2"))
    _, shown, _ = simulate.of(*nodes, *classes, claim, a_pod("p").pvc("c"))

    assert nodes_of(shown) == {"p": node}


def test_labels_of_namespaces_count_and_a_terminating_one_gets_no_pods(simulate: Simulation) -> None:
    """The labels of `default` are those of the input, and a Deployment in a namespace that ends has no new pods."""
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "x"}}},
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "ends", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        },
    ]
    term = {"namespaceSelector": {"matchLabels": {"team": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    near = term | {"labelSelector": {"matchLabels": {"app": "friend"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    friend = json.loads(pod("friend", nodeName="n"))
    friend["metadata"]["labels"] = {"app": "friend"}
    beside = json.loads(pod("p", affinity=affinity))
    beside["metadata"]["namespace"] = "other"
    _, shown, _ = simulate.of(NODE, *spaces, friend, beside, workload("Deployment", "w", 1, namespace="ends"))

    assert nodes_of(shown) == {"p": "n"}
    assert [each.partition(":")[0] for each in shown["problems"]] == ["Deployment ends/w has no new pods"]


def test_scheduler_names(simulate: Simulation) -> None:
    documents = [NODE, pod("a"), pod("b", schedulerName="default-scheduler"), pod("c", schedulerName="volcano")]

    _, ours, _ = simulate.of(*documents)
    _, kept, _ = simulate.of(*documents, flags=["--keep-scheduler-names"])
    assert (len(ours["pods"]), ours["summary"]["leftAlone"]) == (2, 1)
    assert (len(kept["pods"]), kept["summary"]["leftAlone"]) == (0, 3)


@pytest.mark.parametrize(
    ("documents", "flags", "said"),
    [
        pytest.param([NODE, pod("a", "many")], [], "in.yaml: document 2 (Pod default/a): spec.", id="a bad quantity"),
        pytest.param(
            [NODE, pod("a").replace('"name": "a"', '"name": "a", "namespace": "-n"')],
            [],
            'document 2 (Pod -n/a): Namespace "-n" is invalid',
            id="a namespace that no server takes",
        ),
        pytest.param(
            [json.dumps(a_claim("c").set({"spec": {"accessModes": None}}).obj())],
            [],
            "(PersistentVolumeClaim default/c): spec.accessModes: Required value",
            id="a claim that no server takes",
        ),
        pytest.param([NODE, NODE], [], 'document 2 (Node n): nodes "n" already exists', id="the same name twice"),
        pytest.param(
            [NODE, pod("a")], ["--expect-pending=b"], "no pod default/b is to be scheduled", id="an unknown name"
        ),
    ],
)
def test_bad_input(simulate: Simulation, documents: list[str], flags: list[str], said: str) -> None:
    code, _, errors = simulate.of(*documents, flags=flags)

    assert code == 2
    assert said in errors


async def test_an_extender_is_called_and_never_binds(simulate: Simulation) -> None:
    """The simulation binds the pod itself, as an extender would bind the pod of a real cluster."""
    node = NODE.replace("memory: 4Gi", 'memory: 4Gi, "example.com/gpu": 1')
    limits = {"limits": {"example.com/gpu": "1", "example.com/gpumem": "3000"}}
    async with extender({"filter": filtering("n"), "bind": lambda _: {"Error": ""}}) as running:
        managed = [{"name": name, "ignoredByScheduler": True} for name in limits["limits"]]
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": "a file that is not there"},
            "extenders": [
                {"urlPrefix": running.url, "filterVerb": "filter", "bindVerb": "bind"}
                | {"nodeCacheCapable": True, "managedResources": managed}
            ],
        }
        shared = pod("a", containers=[{"name": "c", "resources": limits}])
        _, shown, errors = await asyncio.to_thread(simulate.configured, config, node, shared)

    assert (nodes_of(shown), running.calls[0][0]) == ({"a": "n"}, "filter")
    assert {verb for verb, _ in running.calls} == {"filter"}
    assert f"note: the extender {running.url} is called (filter) and never to bind" in errors


def test_a_pod_whose_attempts_fail_is_not_waited_for(simulate: Simulation) -> None:
    """It backs off and is tried again and again, but its answer stays the same. The other pod is placed."""
    objects = a_device_class("gpu"), a_slice("n1", GPU_DRIVER, a_device("d0"))
    claim = a_device_claim("c").request("r", "gpu")
    (request,) = claim.obj()["spec"]["devices"]["requests"]
    request["exactly"]["selectors"] = [{"cel": {"expression": f"device.attributes['{GPU_DRIVER}'].model == 'x'"}}]
    claim = claim.set({"spec": {"devices": {"requests": [request]}}})
    _, shown, _ = simulate.of(a_node("n1"), *objects, claim, a_pod("fails").claim("e", claim="c"), a_pod("other"))

    assert (shown["settled"], nodes_of(shown)) == (True, {"fails": "", "other": "n1"})
    message = (
        'running "DynamicResources" filter plugin: claim default/c: selector #0: CEL runtime error: no such key: model'
    )
    assert placements(shown)["fails"][1] == message


def test_an_extender_that_does_not_answer_is_not_waited_for(simulate: Simulation) -> None:
    extenders = [{"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter", "nodeCacheCapable": True}]
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    code, shown, _ = simulate.configured(head | {"extenders": extenders}, NODE, pod("a"))

    assert (code, shown["settled"]) == (1, True)
    assert placements(shown)["a"][1].endswith("dial tcp 127.0.0.1:1: connect: connection refused")


async def test_no_other_process_can_use_the_server_of_a_simulation() -> None:
    """Neither a kubectl without the token, nor one with another token, reads or deletes anything."""
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
        server.token = "right"
        server.create("nodes", a_node("n1").obj())
        path, answers = "/api/v1/nodes/n1", {}
        for token in ("", "Bearer wrong", "Bearer right"):
            headers = {"Authorization": token} if token else {}
            answers[token] = [(await call(path, headers=headers)).status for call in (http.get, http.delete)]

    assert answers == {"": [401, 401], "Bearer wrong": [401, 401], "Bearer right": [200, 200]}


def test_all_objects_that_the_server_refuses_are_named(simulate: Simulation) -> None:
    empty = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {}}
    code, _, errors = simulate.of(NODE, NODE, empty, flags=["--validate=ignore"])

    assert code == 2
    assert [line.partition(" (")[2].partition(")")[0] for line in errors.splitlines()] == [
        "Node n",
        "PersistentVolume v",
    ]


SHAPED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: kubestow
  pluginConfig:
  - name: VolumeBinding
    args: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
"""
"""A configuration that is valid only with the gate StorageCapacityScoring."""


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        pytest.param([], 1, "pluginConfig[0].args.shape: ", id="a gate that is off by default"),
        pytest.param(["--feature-gates=StorageCapacityScoring=true"], 0, "", id="a gate that is turned on"),
        pytest.param(
            ["--feature-gates=Foo=true,StorageCapacityScoring=true"],
            0,
            "kubestow: feature gate Foo has no effect: unknown\n",
            id="a gate that does not exist",
        ),
        pytest.param(
            ["--feature-gates=DynamicResourceAllocation=false"],
            1,
            "--feature-gates: cannot set feature gate DynamicResourceAllocation to false, feature is locked to true",
            id="a gate that is locked",
        ),
    ],
)
def test_feature_gates(
    guest: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shaped.yaml").write_text(SHAPED)
    Path("in.yaml").write_text(f"{NODE}\n---\n{pod('a')}")

    assert cli.main(["simulate", "--config=shaped.yaml", "in.yaml", *flags]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["nodes.yaml", "more/pod.json.gz"], id="files, one of them compressed"),
        pytest.param(["nodes.yaml", "-f", "-"], id="a file and standard input"),
        pytest.param(["-R", "."], id="a directory and those in it"),
    ],
)
def test_inputs(simulate: Simulation, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    Path("more").mkdir()
    Path("nodes.yaml").write_text(NODE)
    Path("more/pod.json.gz").write_bytes(gzip.compress(pod("a").encode()))
    monkeypatch.setattr("simulator.simulate._SLOW_S", -1.0)
    code, shown, said = simulate(*arguments, stdin=pod("a"))

    assert (code, [each["node"] for each in shown["pods"]]) == (0, ["n"])
    assert re.search(r"^reading: 2 objects from 2 files in \d+\.\d\d s$", said, re.MULTILINE)


MISSPELT = pod("a", nodeSelectr={"a": "b"})


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        pytest.param([], 2, 'unknown field "spec.nodeSelectr", did you mean "nodeSelector"?', id="strict by default"),
        pytest.param(["--validate"], 2, "document 2 (Pod default/a): unknown field", id="the flag alone is strict"),
        pytest.param(["--validate=true"], 2, "unknown field", id="true is strict"),
        pytest.param(["--validate=warn"], 0, "warning: in.yaml: document 2 (Pod default/a): unknown field", id="warn"),
        pytest.param(["--validate=ignore"], 0, "", id="ignore"),
        pytest.param(["--validate=false"], 0, "", id="false is ignore"),
    ],
)
def test_validation(simulate: Simulation, flags: list[str], code: int, said: str) -> None:
    ended, _, errors = simulate.of(NODE, MISSPELT, flags=flags)

    assert (ended, said in errors, "unknown field" in errors) == (code, True, bool(said)), errors


CLAIMED: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "forgotten"}]}
TEMPLATED: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "forgotten"}]}


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        pytest.param(CLAIMED, "ResourceClaim", id="a claim"),
        pytest.param(TEMPLATED, "ResourceClaimTemplate", id="a template"),
    ],
)
def test_a_missing_claim_is_named_and_not_waited_for(simulate: Simulation, spec: dict[str, Any], kind: str) -> None:
    """Upstream writes no condition for such a pod, so the simulation itself names the missing object."""
    code, shown, _ = simulate.of(NODE, pod("a", **spec))
    (waits,) = shown["pods"]

    assert (code, shown["settled"]) == (1, True)
    assert waits["message"] == f"waits for {kind} default/forgotten, which the input does not have"
    assert [(each["kind"], each["name"]) for each in shown["missingReferences"]] == [(kind, "default/forgotten")]


def test_missing_references_end_a_strict_run(simulate: Simulation) -> None:
    code, _, errors = simulate.of(NODE, pod("a", **CLAIMED), flags=["--strict"])

    assert code == 2
    assert "1 object is missing in the input:\n  ResourceClaim default/forgotten: named by" in errors


def test_all_pods_of_missing_classes_are_named(simulate: Simulation) -> None:
    documents = [NODE, pod("a", priorityClassName="high"), pod("b", runtimeClassName="kata"), pod("c", **CLAIMED)]
    code, _, errors = simulate.of(*documents)
    first, second, third = errors.splitlines()

    assert code == 2
    assert "(Pod default/a): spec.priorityClassName: no PriorityClass 'high'" in first
    assert "(Pod default/b): spec.runtimeClassName: no RuntimeClass 'kata'" in second
    assert third.startswith("ResourceClaim default/forgotten: named by")


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        pytest.param({"priorityClassName": "high"}, "no PriorityClass with name high was found", id="a priority class"),
        pytest.param({"runtimeClassName": "kata"}, 'pod rejected: RuntimeClass "kata" not found', id="a runtime class"),
    ],
)
def test_a_workload_whose_pods_are_refused(simulate: Simulation, spec: dict[str, Any], refusal: str) -> None:
    """The workload exists without pods, as in a cluster; that is a problem, and the other pods are placed."""
    code, shown, _ = simulate.of(NODE, pod("a"), workload("Deployment", "w", 2, **spec))

    assert (code, [each["node"] for each in shown["pods"]]) == (1, ["n"])
    (problem,) = shown["problems"]
    assert problem.startswith('Deployment default/w has no new pods: pods "w-0" is forbidden: ')
    assert problem.endswith(refusal)
    assert [each["hint"][:6] for each in shown["missingReferences"]] == ["add it"]


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Running"}, id="without a time"),
        pytest.param({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}, id="with the time that every dump has"),
    ],
)
def test_bound_pods_of_a_dump_are_ready(simulate: Simulation, status: dict[str, str]) -> None:
    web = workload("StatefulSet", "web", 2)
    web["metadata"]["uid"] = "web-uid"
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "web-uid", "controller": True}
    first = json.loads(pod("web-0", nodeName="n")) | {"status": status}
    first["metadata"] |= {"labels": {"app": "web"}, "ownerReferences": [owner]}
    _, shown, _ = simulate.of(NODE, web, first)
    assert [(each["pod"], each["node"]) for each in shown["pods"]] == [("default/web-1", "n")]


# -- from a cluster: the same answer from the cluster and from its dump ---------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """Yield a node of four CPUs, one of them in use by another namespace; each of two namespaces needs more pods."""
    async with ApiServer() as server:
        for obj in (
            a_node("n").cpu("4").obj(),
            a_pod("old", "b").cpu("1").bound_to("n").obj(),
            workload("Deployment", "web", 2, namespace="a"),
            workload("Deployment", "other", 1, namespace="b"),
            a_pod("waits", "b").cpu("4").obj(),
        ):
            server.apply(obj)
        yield server


@pytest.fixture
def cluster(tmp_path: Path, server: ApiServer) -> list[str]:
    """The flags for this cluster."""
    return ["--from-cluster", "--kubeconfig", kubeconfig(tmp_path / "config", {}, server.url)]


def pods(shown: dict[str, Any]) -> dict[str, str]:
    return {each["pod"]: each["node"] or "" for each in shown["pods"]}


async def test_a_cluster_and_its_dump(simulate: Simulation, cluster: list[str], server: ApiServer) -> None:
    before = server.resource_version
    dump = Path("dump.json.gz")
    code, shown, said = await asyncio.to_thread(simulate, *cluster, "--save", str(dump))
    _, again, _ = await asyncio.to_thread(simulate, str(dump))

    assert (code, len(shown["pods"])) == (1, 4)
    assert shown["summary"]["placed"] == 3
    assert f"in {dump}" in said
    assert (pods(again), again["problems"]) == (pods(shown), shown["problems"])
    assert server.resource_version == before
    assert {request.partition(" ")[0] for request in server.requests()} == {"list"}


async def test_one_namespace(simulate: Simulation, cluster: list[str]) -> None:
    code, shown, _ = await asyncio.to_thread(simulate, *cluster, "-n", "a")

    assert (code, pods(shown)) == (0, {"a/web-0": "n", "a/web-1": "n"})
    assert shown["summary"]["boundBefore"] == 1


async def test_manifests_on_top(simulate: Simulation, cluster: list[str], tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    more = [workload("Deployment", "web", 5, namespace="a"), a_node("m").cpu("2").obj()]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": more}))
    code, shown, _ = await asyncio.to_thread(simulate, *cluster, "-n", "a", "-f", str(file))

    assert (code, sorted(pods(shown).values())) == (0, ["m", "m", "n", "n", "n"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["-n", "a", "x.yaml"], "--namespace has an effect only with --from-cluster", id="a namespace"),
        pytest.param(["--save", "d", "x.yaml"], "--save has an effect only with --from-cluster", id="a file to save"),
    ],
)
def test_flags_without_a_cluster(guest: None, capsys: pytest.CaptureFixture[str], flags: list[str], said: str) -> None:
    assert cli.main(["simulate", *flags]) == 2
    assert said in capsys.readouterr().err


def test_the_dump_command_needs_no_input(guest: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "--print-dump-command"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("kubectl get pods,nodes,")


# -- real projects; test_quoted.py runs the files of examples/ whose output docs/ quotes -----------------------------------


@pytest.mark.parametrize("name", ["kueue", "rollout", "strimzi"])
def test_the_output_for_a_real_project_is_as_its_types_say(simulate: Simulation, name: str) -> None:
    _, shown, _ = simulate(str(ROOT / "tests" / "e2e" / "inputs" / f"{name}.yaml"))

    assert msgspec.convert(shown, Answer).pods


# -- preemption --------------------------------------------------------------------------------------------------------


def went(shown: dict[str, Any]) -> dict[str, str]:
    """Return victim → preemptor."""
    return {each["pod"].partition("/")[2]: each["for"].partition("/")[2] for each in shown["preempted"]}


@pytest.mark.parametrize(
    ("budget", "status", "victim"),
    [
        pytest.param(None, None, "new", id="without a budget the one started last goes"),
        pytest.param({"minAvailable": 1}, None, "old", id="unless a budget spares it"),
        pytest.param({"maxUnavailable": 1}, None, "new", id="which it does not if it allows one"),
        pytest.param({"maxUnavailable": 0}, {"disruptionsAllowed": 1}, "new", id="a dump's budget says what it allows"),
    ],
)
def test_start_times_and_budgets(
    simulate: Simulation, budget: dict[str, Any] | None, status: dict[str, Any] | None, victim: str
) -> None:
    objects: list[Any] = [
        a_node("n").cpu("2"),
        a_pod("old").cpu("1").bound_to("n").set({"status": {"startTime": "2026-01-01T08:00:00Z"}}),
        a_pod("new").cpu("1").bound_to("n").set({"status": {"startTime": "2026-01-01T20:00:00Z"}}).label("app", "web"),
        a_pod("p").cpu("1").priority(7),
    ]
    if budget is not None:
        about = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
        spec = {**budget, "selector": {"matchLabels": {"app": "web"}}}
        objects.append(about | {"spec": spec} | ({"status": status} if status else {}))
    code, shown, _ = simulate.of(*objects)

    assert (code, went(shown)) == (0, {victim: "p"})


@pytest.mark.parametrize(("flags", "code"), [([], 1), (["--expect-pending=low"], 0)], ids=["a surprise", "expected"])
def test_one_that_was_placed_and_had_to_go_again(simulate: Simulation, flags: list[str], code: int) -> None:
    """The pod of the highest priority waits for its affinity; before that, another pod has taken the node's last CPU."""
    near = {"labelSelector": {"matchLabels": {"app": "friend"}}, "topologyKey": "kubernetes.io/hostname"}
    objects = [
        a_node("n").cpu("2"),
        a_pod("ally")
        .cpu("1")
        .priority(9)
        .affinity({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}),
        a_pod("friend").cpu("1").priority(9).label("app", "friend"),
        a_pod("low").cpu("1").priority(1),
    ]
    ended, shown, _ = simulate.of(*objects, flags=flags)

    assert (ended, nodes_of(shown), went(shown)) == (code, {"ally": "n", "friend": "n", "low": ""}, {"low": "ally"})
    low = shown["pods"][-1]
    assert (low["reason"], low["message"]) == ("Preempted", "was placed on n and preempted there")
    assert shown["problems"] == (["default/low was not placed: was placed on n and preempted there"] if code else [])
