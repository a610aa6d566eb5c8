"""Small histories, replayed with the real daemon: the times, the nodes and the rules of docs/replay.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.config import load
from simulator.replay.answer import as_json
from simulator.replay.command import Candidate
from simulator.replay.history import read_history
from simulator.simulate.input.sources import InputError
from tests.unit.simulator.replay.histories import (
    SYNCED,
    Object,
    a_node,
    a_pod,
    gone,
    history,
    lines,
    obj,
    replay,
    run_a,
    times,
)

NODE = a_node("n")
END = (1000, "ADDED", obj("Namespace", "end"))


def test_a_pod_runs_as_long_as_it_did_from_its_binding_on(tmp_path: Path) -> None:
    """In the recording both pods ran at once, on two nodes. Here there is one node, so the second one waits."""
    first, second = a_pod("first", "3"), a_pod("second", "3")
    path = history(tmp_path / "a.gz", [
        (0, "ADDED", NODE), SYNCED,
        (10, "ADDED", first), (10, "MODIFIED", a_pod("first", "3", node="gone-1")),
        (20, "ADDED", second), (20, "MODIFIED", a_pod("second", "3", node="gone-2")),
        (110, "DELETED", gone(first)), (220, "DELETED", gone(second)), END,
    ])  # fmt: skip
    answer = replay(path)

    assert times(run_a(answer)) == {"first": (0, "n", 110), "second": (90, "n", 310)}
    assert times(answer.runs[0]) == {"first": (0, "gone-1", 110), "second": (0, "gone-2", 220)}
    refused = [each for each in run_a(answer).decisions if each.verb == "refused"]
    assert [(each.pod, round(each.at_s)) for each in refused] == [("default/second", 20)]
    assert "Insufficient cpu" in refused[0].detail


def over(pod: Object) -> Object:
    """A pod of a Job that has succeeded: it uses no node, and it is deleted much later."""
    return pod | {"status": {"phase": "Succeeded"}}


@pytest.mark.parametrize(("events", "expected"), [
    pytest.param([(10, "ADDED", a_pod("p", "9")), (50, "MODIFIED", over(a_pod("p", "9"))), (900, "DELETED", gone(a_pod("p", "9")))], {"p": (None, "", 50)},
        id="a pod that never had a node and is over leaves then"),
    pytest.param([(10, "ADDED", over(a_pod("p")))], {}, id="a pod that is over when it arrives does not arrive"),
    pytest.param([(10, "ADDED", a_pod("f", "3", scheduler="other", node="n")), (20, "ADDED", a_pod("p", "3")),
        (70, "MODIFIED", over(a_pod("f", "3", scheduler="other", node="n"))), (900, "DELETED", gone(a_pod("f")))],
        {"p": (50, "n", None)}, id="a pod of another scheduler that is over uses no node"),
    pytest.param([(10, "ADDED", a_pod("p", "9")), (50, "DELETED", gone(a_pod("p")))], {"p": (None, "", 50)},
        id="a pod that never had a node leaves as recorded"),
    pytest.param([(10, "ADDED", a_pod("p")), (50, "DELETED", gone(a_pod("p")))], {"p": (0, "n", 50)},
        id="even if it has a node here"),
    pytest.param([(10, "ADDED", a_pod("p")), (12, "MODIFIED", a_pod("p", node="x"))], {"p": (0, "n", None)},
        id="a pod that did not end lives on"),
    pytest.param([(10, "ADDED", a_pod("p", schedulingGates=[{"name": "g"}])), (40, "MODIFIED", a_pod("p")), (41, "MODIFIED", a_pod("p", node="x"))],
        {"p": (0, "n", None)}, id="it arrives when its gates are removed"),
    pytest.param([(10, "ADDED", a_pod("p", schedulingGates=[{"name": "g"}]))], {"p": (None, "", None)}, id="a gated pod waits for nothing"),
    pytest.param([(10, "ADDED", a_pod("p", scheduler="other"))], {}, id="a pod of another scheduler is not replayed"),
    pytest.param([(10, "ADDED", a_pod("f", "3", scheduler="other", node="n")), (20, "ADDED", a_pod("p", "3")), (70, "DELETED", gone(a_pod("f")))],
        {"p": (50, "n", None)}, id="but it uses its node until its recorded end"),
    pytest.param([(10, "ADDED", a_pod("p", "9")), (60, "ADDED", a_node("big", "16"))], {"p": (50, "big", None)}, id="a node is added"),
    pytest.param([(10, "ADDED", a_pod("p", "9")), (60, "MODIFIED", a_node("n", "16"))], {"p": (50, "n", None)}, id="a node grows"),
    pytest.param([(10, "ADDED", a_pod("f", "4", scheduler="other", node="n"))], {}, id="a node that is full refuses a pod of another scheduler"),
])  # fmt: skip
def test_rules(tmp_path: Path, events: list[tuple[float, str, Object | None]], expected: Object) -> None:
    answer = replay(
        history(tmp_path / "a.gz", [(0, "ADDED", NODE), (0, "ADDED", a_pod("first")), SYNCED, *events, END])
    )

    run = run_a(answer)
    assert run.problems == []
    found = times(run)
    assert found.pop("first") == (0, "n", None)
    assert found == expected


def test_what_ran_at_first_stays(tmp_path: Path) -> None:
    old = a_pod("old", "3", node="n")
    answer = replay(history(tmp_path / "a.gz", [
        (0, "ADDED", NODE), (0, "ADDED", a_node("other")), (0, "ADDED", old), (0, "ADDED", a_pod("p", "3", nodeSelector={"kubernetes.io/hostname": "n"})),
        SYNCED, (30, "DELETED", gone(old)), END,
    ]))  # fmt: skip

    assert times(run_a(answer)) == {"p": (30, "n", None)}
    cpu = next(use for use in run_a(answer).use if use.name == "cpu")
    assert (cpu.used[0], cpu.used[-1], cpu.capacity[0], cpu.peak) == (3, 3, 8, 0.375)


def test_a_pool_whose_node_leaves_is_not_used(tmp_path: Path) -> None:
    """The pod ends after its node. Its use ends in the pool that the node had."""
    node = a_node("n", pool="gold")
    answer = replay(history(tmp_path / "a.gz", [
        (0, "ADDED", node), (0, "ADDED", a_node("m")), (0, "ADDED", a_pod("p", node="n")), SYNCED, (10, "ADDED", a_pod("q", "9")),
        (500, "DELETED", gone(node)), (540, "DELETED", gone(a_pod("p"))), END,
    ]), pool_label="pool")  # fmt: skip

    for run in answer.runs:
        cpu = next(use for use in run.use if (use.name, use.pool) == ("cpu", "gold"))
        assert (cpu.used[0], cpu.used[-1], cpu.capacity[-1]) == (1, 0, 0)


def test_a_pod_whose_node_leaves_arrives_again_with_the_rest_of_its_time(tmp_path: Path) -> None:
    pod = a_pod("p")
    answer = replay(history(tmp_path / "a.gz", [
        (0, "ADDED", NODE), SYNCED, (10, "ADDED", pod), (10, "MODIFIED", a_pod("p", node="x")),
        (40, "ADDED", a_node("second")), (60, "DELETED", gone(NODE)), (110, "DELETED", gone(pod)), END,
    ]))  # fmt: skip

    assert times(run_a(answer)) == {"p": (0, "n", 60), "p-again-1": (0, "second", 110)}
    assert run_a(answer).restarted == 1


@pytest.mark.parametrize(("events", "expected"), [
    pytest.param([(10, "ADDED", a_pod("p")), (50, "ADDED", a_node("m")), (60, "DELETED", gone(NODE)), (110, "DELETED", gone(a_pod("p")))],
        {"p": (0, "n", 60), "p-again-1": (0, "m", 110)}, id="a pod that never had a node leaves as recorded"),
    pytest.param([(10, "ADDED", a_pod("p")), (60, "DELETED", gone(NODE)), (60, "DELETED", gone(a_pod("p")))], {"p": (0, "n", 60)},
        id="it leaves with its node"),
    pytest.param([(10, "ADDED", a_pod("p", schedulingGates=[{"name": "g"}])), (20, "MODIFIED", a_pod("p")), (50, "ADDED", a_node("m")), (60, "DELETED", gone(NODE))],
        {"p": (0, "n", 60), "p-again-1": (0, "m", None)}, id="gates that were removed stay away"),
    pytest.param([(10, "ADDED", a_pod("p", node="n")), (60, "DELETED", gone(NODE)), (70, "DELETED", gone(a_pod("p")))],
        {"p": (0, "n", 60), "p-again-1": (None, "", None)}, id="without another node it waits"),
])  # fmt: skip
def test_what_arrives_again(tmp_path: Path, events: list[tuple[float, str, Object | None]], expected: Object) -> None:
    run = run_a(replay(history(tmp_path / "a.gz", [(0, "ADDED", NODE), SYNCED, *events, END])))

    assert (times(run), run.problems) == (expected, [])
    assert run.restarted == len(expected) - 1


def of(controller: str, pod: Object, kind: str = "ReplicaSet", **metadata: Any) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": controller, "uid": controller, "controller": True}
    return pod | {"metadata": pod["metadata"] | {"ownerReferences": [owner]} | metadata}


def lost(name: str, node: str, *, at_s: float) -> list[tuple[float, str, Object | None]]:
    """A pod of `web` whose deletion began, and ended 30 seconds later."""
    pod = of("web", a_pod(name, node=node), deletionTimestamp="2026-06-01T00:00:00Z")
    return [(at_s, "MODIFIED", pod), (at_s + 30, "DELETED", gone(pod))]


LATE = [(10, "ADDED", of("web", a_pod("p", "3"))), (11, "MODIFIED", of("web", a_pod("p", "3", node="x")))]
"""In the recording it has its node x after a second. In the replay it waits until 40 for `full`, which is on node n."""
FULL = [(0, "ADDED", a_pod("full", "3", node="n")), SYNCED, (40, "DELETED", gone(a_pod("full")))]


@pytest.mark.parametrize(("events", "expected"), [
    pytest.param([SYNCED, (10, "ADDED", of("web", a_pod("p", node="n"))), (60, "DELETED", gone(NODE)), *lost("p", "n", at_s=70),
        (71, "ADDED", of("web", a_pod("q", "9")))], {"p": 60, "q": None}, id="it lost its node in the recording, too"),
    pytest.param([(0, "ADDED", of("web", a_pod("p", node="n"))), SYNCED, (60, "DELETED", gone(NODE)), *lost("p", "n", at_s=70),
        (71, "ADDED", of("web", a_pod("q", "9")))], {"q": None}, id="it had that node from the beginning"),
    pytest.param([SYNCED, (10, "ADDED", of("web", a_pod("p", node="n"))), *lost("p", "n", at_s=50), (51, "ADDED", of("web", a_pod("q", "9"))),
        (60, "DELETED", gone(NODE))], {"p": 60, "q": None}, id="the replacement came before the node left"),
    pytest.param([SYNCED, (10, "ADDED", of("web", a_pod("p", node="n"))), (60, "DELETED", gone(NODE)), *lost("p", "n", at_s=70),
        (71, "ADDED", of("other", a_pod("q", "9")))], {"p": 60, "p-again-1": 100, "q": None}, id="the other pod has another controller"),
    pytest.param([SYNCED, (10, "ADDED", of("web", a_pod("p", node="x"))), (60, "DELETED", gone(NODE)), *lost("p", "x", at_s=70),
        (71, "ADDED", of("web", a_pod("q", "9")))], {"p": 60, "p-again-1": 100, "q": None}, id="in the recording it lost another node later"),
    pytest.param([*FULL, *LATE, *lost("p", "x", at_s=50), (51, "ADDED", of("web", a_pod("q", "9"))), (60, "DELETED", gone(NODE))],
        {"p": 60, "q": None}, id="its replacement has arrived already"),
    pytest.param([*FULL, *LATE, (50, "MODIFIED", over(of("web", a_pod("p", "3", node="x")))), (51, "ADDED", of("web", a_pod("q", "9"))), (60, "DELETED", gone(NODE))],
        {"p": 60, "p-again-1": None, "q": None}, id="it succeeded, so the next pod of its Job does not replace it"),
    pytest.param([SYNCED, (10, "ADDED", of("agent", a_pod("p", node="n"), "DaemonSet")), (60, "DELETED", gone(NODE))],
        {"p": 60}, id="a pod of a DaemonSet has no other node"),
])  # fmt: skip
def test_a_pod_whose_node_leaves_does_not_arrive_next_to_its_replacement(
    tmp_path: Path, events: list[tuple[float, str, Object | None]], expected: dict[str, float | None]
) -> None:
    ordered = sorted([(0, "ADDED", NODE), (0, "ADDED", a_node("m", "1")), *events, END], key=lambda event: event[0])
    run = run_a(replay(history(tmp_path / "a.gz", ordered)))

    assert run.problems == []
    assert {name: ended for name, (_, _, ended) in times(run).items()} == expected


def test_a_pod_waits_for_the_end_of_an_earlier_pod_with_its_name(tmp_path: Path) -> None:
    """As the pods of a StatefulSet. The first one starts later than in the recording, so its successor arrives later."""

    def named(uid: str, **spec: Any) -> Object:
        pod = a_pod("web-0", "3", **spec)
        return pod | {"metadata": pod["metadata"] | {"uid": uid}}

    full = a_pod("full", "3", node="n")
    gated = named("second", schedulingGates=[{"name": "g"}])
    answer = replay(history(tmp_path / "a.gz", [
        (0, "ADDED", NODE), (0, "ADDED", full), SYNCED,
        (10, "ADDED", named("first")), (10, "MODIFIED", named("first", node="x")), (20, "DELETED", gone(full)),
        (40, "DELETED", gone(named("first"))), (41, "ADDED", gated), (42, "MODIFIED", named("second")),
        (43, "MODIFIED", named("second", node="x")), (63, "DELETED", gone(gated)),
        (64, "ADDED", named("third")), (65, "DELETED", gone(named("third"))), END,
    ]))  # fmt: skip
    run = run_a(answer)

    assert run.problems == []
    found = [[value and round(value) for value in (pod.arrived_s, pod.waited_s, pod.ended_s)] for pod in run.pods]
    assert found == [[10, 10, 50], [50, 0, 70]]


def test_what_ran_at_first_ends_when_it_is_over(tmp_path: Path) -> None:
    old = a_pod("old", "3", node="n")
    answer = replay(history(tmp_path / "a.gz", [
        (0, "ADDED", NODE), (0, "ADDED", old), (0, "ADDED", a_pod("p", "3")),
        SYNCED, (30, "MODIFIED", over(old)), (900, "DELETED", gone(old)), END,
    ]))  # fmt: skip

    assert times(run_a(answer)) == {"p": (30, "n", None)}


def test_a_preempted_pod_arrives_again(tmp_path: Path) -> None:
    low, high = a_pod("low", "3"), a_pod("high", "3", priority=100)
    answer = replay(history(tmp_path / "a.gz", [
        (0, "ADDED", NODE), SYNCED,
        (10, "ADDED", low), (10, "MODIFIED", a_pod("low", "3", node="x")),
        (50, "ADDED", high), (50, "MODIFIED", a_pod("high", "3", node="y", priority=100)),
        (90, "DELETED", gone(high)), (110, "DELETED", gone(low)), END,
    ]))  # fmt: skip
    run = run_a(answer)

    found = times(run)
    assert {name: (node, ended) for name, (_, node, ended) in found.items()} == {
        "high": ("n", 90), "low": ("n", 50), "low-again-1": ("n", 150),
    }  # fmt: skip
    assert (found["low"][0], found["low-again-1"][0]) == (0, 40)
    assert (run.preempted, run.restarted) == (1, 1)


def test_volumes_are_bound_again(tmp_path: Path) -> None:
    """The recorded volume, node and binding do not matter: the claim gets a volume where the pod goes."""
    storage = obj(
        "StorageClass",
        "fast",
        api="storage.k8s.io/v1",
        provisioner="csi.example.com",
        volumeBindingMode="WaitForFirstConsumer",
    )
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}
    claim = obj("PersistentVolumeClaim", "data", namespace="default", spec=spec)
    done = {
        "annotations": {
            "volume.kubernetes.io/selected-node": "gone",
            "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes",
        }
    }
    bound = obj(
        "PersistentVolumeClaim",
        "data",
        namespace="default",
        metadata=done,
        spec=spec | {"volumeName": "pv-1"},
        status={"phase": "Bound"},
    )
    made = {"annotations": {"pv.kubernetes.io/provisioned-by": "csi.example.com"}}
    volume = obj("PersistentVolume", "pv-1", metadata=made, spec={"capacity": {"storage": "1Gi"}, "storageClassName": "fast",
        "claimRef": {"namespace": "default", "name": "data", "uid": "persistentvolumeclaim-data"}})  # fmt: skip
    pod = a_pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    answer = replay(history(tmp_path / "a.gz", [
        (0, "ADDED", NODE), (0, "ADDED", storage), SYNCED, (10, "ADDED", claim), (10, "ADDED", pod), (11, "MODIFIED", bound), (11, "ADDED", volume),
        (12, "MODIFIED", a_pod("p", node="gone")), (100, "DELETED", gone(claim)), (112, "DELETED", gone(pod)), (113, "DELETED", gone(volume)), END,
    ]))  # fmt: skip
    run = run_a(answer)

    assert run.problems == []
    found = times(run)["p"]
    assert found[0] is not None
    assert found[0] <= 2
    assert found[1] == "n"
    storage_use = next(use for use in run.use if use.group == "storage")
    assert (storage_use.name, max(storage_use.used)) == ("fast", 2**30)
    assert storage_use.used[-1] == 0, "the volume is deleted with its claim, which waits for its pod"


@pytest.mark.parametrize("is_early", [False, True])
def test_devices_are_allocated_again(tmp_path: Path, is_early: bool) -> None:
    """A claim may come before its pod: the two kinds have different watches."""
    driver, resource = "gpu.example.com", "resource.k8s.io/v1"
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    slice_ = obj(
        "ResourceSlice",
        "s",
        api=resource,
        spec={"driver": driver, "pool": pool, "nodeName": "n", "devices": [{"name": "gpu-0"}]},
    )
    device_class = obj("DeviceClass", "gpu", api=resource, spec={"selectors": [{"cel": {"expression": "true"}}]})

    def claim(pod: str, **status: Any) -> Object:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"pod-{pod}", "controller": True}
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
        found = obj(
            "ResourceClaim",
            f"{pod}-c",
            api=resource,
            namespace="default",
            metadata={"ownerReferences": [owner]},
            spec={"devices": {"requests": [request]}},
        )
        return found | ({"status": status} if status else {})

    def pod(name: str, **more: Any) -> Object:
        found = a_pod(name, resourceClaims=[{"name": "c", "resourceClaimTemplateName": "t"}], **more)
        return found | {
            "status": found["status"] | {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": f"{name}-c"}]}
        }

    elsewhere = {"devices": {"results": [{"request": "r", "driver": driver, "pool": "x", "device": "gpu-9"}]}}
    events: list[tuple[float, str, Object | None]] = [
        (0, "ADDED", NODE),
        (0, "ADDED", slice_),
        (0, "ADDED", device_class),
        SYNCED,
    ]
    for name, at in (("a", 10), ("b", 20)):
        created = [pod(name), claim(name)]
        events += [(at, "ADDED", each) for each in (reversed(created) if is_early else created)]
        events += [
            (at, "MODIFIED", claim(name, allocation=elsewhere)),
            (at, "MODIFIED", pod(name, node="x")),
        ]
    events += [
        (110, "DELETED", gone(pod("a"))),
        (110, "DELETED", gone(claim("a"))),
        (220, "DELETED", gone(pod("b"))),
        END,
    ]
    run = run_a(replay(history(tmp_path / "a.gz", events)))

    assert run.problems == []
    assert times(run) == {"a": (0, "n", 110), "b": (90, "n", 310)}
    use = next(each for each in run.use if each.group == "device" and not each.pool)
    assert (use.name, use.peak, max(use.used), use.used[-1], use.capacity[0]) == (driver, 1, 1, 0, 1)


def a_day(path: Path) -> Path:
    """A hundred pods of different sizes, lengths and priorities on four nodes that they fill."""
    rows: list[tuple[float, str, Object | None]] = []
    for at in range(100):
        size, priority = str(1 + at % 3), 10 * (at % 7 == 0)
        pod, bound = a_pod(f"p{at}", size, priority=priority), a_pod(f"p{at}", size, node="x", priority=priority)
        rows += [(at * 5, "ADDED", pod), (at * 5 + 1, "MODIFIED", bound), (at * 5 + 31 + at % 50, "DELETED", gone(pod))]
    rows.sort(key=lambda row: row[0])
    nodes: list[tuple[float, str, Object | None]] = [
        (0, "ADDED", a_node(f"n{at}", zone=f"z{at % 2}")) for at in range(4)
    ]
    return history(path, [*nodes, SYNCED, *rows, END])


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    path = a_day(tmp_path / "a.gz")
    first, second = (as_json(replay(path, seed=3, pool_label="zone")) for _ in range(2))

    assert first == second
    assert json.loads(first)["schemaVersion"] == 1


def test_every_pod_is_decided_and_no_node_is_overcommitted(tmp_path: Path) -> None:
    run = run_a(replay(a_day(tmp_path / "a.gz"), pool_label="zone"))

    assert run.problems == []
    assert run.arrived == run.bound + run.waiting == 100 + run.restarted
    assert run.waiting == 0
    assert {(each.name, each.pool) for each in run.use} == {
        (n, p) for n in ("cpu", "memory", "pods") for p in ("", "z0", "z1")
    }
    assert all(use.peak <= 1 for use in run.use)
    assert sum(run.intervals["bound"]) == run.bound
    assert run.wait.distribution[-1].pods == run.bound
    for use in run.use:
        assert all(0 <= used <= capacity + 1e-6 for used, capacity in zip(use.used, use.capacity))
    for pod in run.pods:
        assert pod.arrived_s is not None
        assert pod.waited_s is not None
        assert pod.ended_s is not None
    by_decision = {each.pod: each.detail for each in run.decisions if each.verb == "bound"}
    assert by_decision == {pod.pod: pod.node for pod in run.pods}


def test_two_configurations(tmp_path: Path) -> None:
    """LeastAllocated spreads pods, and MostAllocated packs them."""

    def candidate(strategy: str) -> Candidate:
        args = {"scoringStrategy": {"type": strategy, "resources": [{"name": "cpu", "weight": 1}]}}
        profile = {"schedulerName": "kubestow", "pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
        found = load.parse(json.dumps(document), source="config", feature_gates=load.gates_on({}, "1.37"))
        return Candidate.of(found, "1.37", strategy)

    events = [(at, "ADDED", a_pod(f"p{at}", "500m")) for at in range(1, 5)]
    path = history(tmp_path / "a.gz", [(0, "ADDED", NODE), (0, "ADDED", a_node("m")), SYNCED, *events, END])
    answer = replay(path, candidates=[candidate("LeastAllocated"), candidate("MostAllocated")])

    nodes = [sorted(node for _, node, _ in times(run).values()) for run in answer.runs[1:]]
    assert [(run.name, run.config) for run in answer.runs] == [
        ("recorded", ""),
        ("A", "LeastAllocated"),
        ("B", "MostAllocated"),
    ]
    assert nodes[0] == ["m", "m", "n", "n"]
    assert len(set(nodes[1])) == 1


def test_the_name_of_another_scheduler(tmp_path: Path) -> None:
    pod = a_pod("p", scheduler="default-scheduler")
    path = history(tmp_path / "a.gz", [(0, "ADDED", NODE), SYNCED, (10, "ADDED", pod), END])

    with pytest.raises(InputError, match=r"It has pods of default-scheduler \(1 pod\); name them by --scheduler-name"):
        replay(path)
    assert times(run_a(replay(path, scheduler_names=("default-scheduler",)))) == {"p": (0, "n", None)}


def test_an_event_that_the_server_refuses_is_reported(tmp_path: Path) -> None:
    odd = obj("ResourceSlice", "s", api="resource.k8s.io/v1", spec={"driver": "d"})
    answer = replay(
        history(tmp_path / "a.gz", [(0, "ADDED", NODE), SYNCED, (5, "ADDED", odd), (10, "ADDED", a_pod("p")), END])
    )

    run = run_a(answer)
    assert run.refused_events == 1
    assert run.problems[0].startswith("line 4: ADDED ResourceSlice s: ")
    assert times(run) == {"p": (0, "n", None)}


def disrupted(spec: Object | None) -> Object:
    return obj("PodDisruptionBudget", "b", api="policy/v1", namespace="default", spec=spec)


GATED = a_pod("p", schedulingGates=[{"name": "g"}])


@pytest.mark.parametrize(("events", "expected"), [
    pytest.param([(5, "ADDED", disrupted(None)), (6, "MODIFIED", disrupted({})), (7, "MODIFIED", disrupted(None))], [], id="a budget without spec"),
    pytest.param([(5, "MODIFIED", NODE | {"spec": None}), (6, "MODIFIED", NODE | {"status": None})], [], id="a node without spec or status"),
    pytest.param([(5, "ADDED", obj("ResourceSlice", "s", api="resource.k8s.io/v1", spec={}))],
        ['ADDED ResourceSlice s: ResourceSlice.resource.k8s.io "s" is invalid: [spec.driver: Required value'], id="a slice without a driver"),
    pytest.param([(5, "ADDED", GATED), (6, "MODIFIED", a_pod("p", schedulingGates=[{}]))],
        ['MODIFIED Pod default/p: Pod "p" is invalid: [spec.schedulingGates[0].name: Forbidden'], id="a gate without name is new"),
    pytest.param([(5, "ADDED", a_pod("p", schedulingGates=[None]))], ["object: Pod p: Expected `object`, got `null` - at `$.spec.schedulingGates[0]`"], id="a null gate"),
    pytest.param([(5, "ADDED", a_pod("p", schedulingGates=[{}]))],
        ['ADDED Pod default/p: Pod "p" is invalid: [spec.schedulingGates[0]: Invalid value: "": name part must be non-empty'], id="a gate without name"),
])  # fmt: skip
def test_a_wrong_form_is_named_by_object_and_field(
    tmp_path: Path, events: list[tuple[float, str, Object | None]], expected: list[str]
) -> None:
    path = history(tmp_path / "a.gz", [(0, "ADDED", NODE), SYNCED, (1, "ADDED", a_pod("other")), *events, END])
    try:
        problems = [text for run in replay(path).runs for text in run.problems]
    except InputError as error:
        problems = [str(error)]

    assert len(problems) == len(expected)
    assert all(text in problem for problem, text in zip(problems, expected))


def test_a_number_that_is_out_of_range_is_named(tmp_path: Path) -> None:
    config = [{"opaque": {"driver": "d", "parameters": {"a": 0}}}]
    claim = obj(
        "ResourceClaim", "c", api="resource.k8s.io/v1", namespace="default", spec={"devices": {"config": config}}
    )
    path = tmp_path / "a.json"
    path.write_bytes(lines([(0, "ADDED", NODE), SYNCED, (5, "ADDED", claim)]).replace(b'{"a": 0}', b'{"a": 1e400}'))

    with pytest.raises(InputError, match=r"^line 4: ADDED ResourceClaim default/c: Number out of range"):
        read_history(str(path))


def test_a_speed_takes_real_time(tmp_path: Path) -> None:
    path = history(
        tmp_path / "a.gz",
        [(0, "ADDED", NODE), SYNCED, (10, "ADDED", a_pod("p")), (20, "ADDED", obj("Namespace", "end"))],
    )
    answer = replay(path, speed=200.0)

    assert times(run_a(answer)) == {"p": (0, "n", None)}
