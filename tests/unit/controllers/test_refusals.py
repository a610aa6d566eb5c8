"""Pods that a kubelet rejects after our binding: each counts once, and the node comes last (docs/spec/core.md §2.6)."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from structlog.testing import CapturingLogger

from scheduler.api.core_v1 import FailedPod
from scheduler.api.decode import Broken, Delta, ObjectDecoder, from_manifest
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.cache.cluster import Cluster
from scheduler.controllers import kubelet_rejections as refusals
from scheduler.metrics.metrics import Metrics
from tests.examples import examples
from tests.unit.harness import SchedulerHarness, StepClock, manifest, typed

COUNT = "kubestow_admission_rejections_total"


class Kubelets:
    """A scheduler and the watch of failed pods."""

    def __init__(self) -> None:
        self.sched = SchedulerHarness()
        self.refusals = self.sched.parts.refusals

    def shows(self, name: str, reason: str, *, node: str = "n1", **identity: str) -> None:
        """Show a pod that failed on the node for this reason."""
        self.refusals.failed([Delta(None, failed(name, reason, node=node, **identity))])

    def counted(self) -> dict[str, float]:
        """Return the number of rejections by reason."""
        lines = self.sched.parts.shared.metrics.render().decode().splitlines()
        rows = [line.split() for line in lines if line.startswith(COUNT + "{")]
        return {labels.split('reason="')[1].split('"')[0]: float(value) for labels, value in rows}


def failed(name: str, reason: str, *, node: str = "n1", uid: str = "", namespace: str = "default") -> FailedPod:
    identity = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": "9"}
    return from_manifest(
        FailedPod, {"metadata": identity, "spec": {"nodeName": node}, "status": {"phase": "Failed", "reason": reason}}
    )


def bound(name: str, node: str = "n1", *, namespace: str = "default", owner: str = "") -> PodInfo:
    """Return a pod that we bind. `owner` is the uid of its controller."""
    raw = manifest(name, on=node)
    raw["metadata"]["namespace"] = namespace
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        raw["metadata"]["ownerReferences"] = [reference]
    return pod_info(typed(raw))


P: Final = bound("p")


async def with_one_bound() -> Kubelets:
    """A pod of ours is bound to n1, which scores better than n2."""
    kubelets = Kubelets()
    kubelets.sched.node("n1", cpu="64")
    kubelets.sched.node("n2", cpu="1")
    kubelets.sched.pod("p", cpu="100m")
    await kubelets.sched.settle()
    assert kubelets.sched.writer.binds == [("default/p", "n1")]
    kubelets.sched.pod("p", on="n1", cpu="100m")
    return kubelets


@pytest.mark.parametrize(
    ("reason", "counted"),
    [
        pytest.param("OutOfcpu", {"OutOfcpu": 1}, id="93 cpu"),
        pytest.param("OutOfmemory", {"OutOfmemory": 1}, id="memory"),
        pytest.param("OutOfpods", {"OutOfpods": 1}, id="the number of pods"),
        pytest.param("OutOfexample.com/gpu", {"OutOfExtendedResources": 1}, id="extended resources share a label"),
        pytest.param("NodePorts", {"NodePorts": 1}, id="a port"),
        pytest.param("NodeAffinity", {"NodeAffinity": 1}, id="a label that changed"),
        pytest.param("UnexpectedAdmissionError", {"UnexpectedAdmissionError": 1}, id="a device plugin"),
        pytest.param("TopologyAffinityError", {"TopologyAffinityError": 1}, id="NUMA"),
        pytest.param("", {}, id="its containers failed: not counted"),
        pytest.param("DeadlineExceeded", {}, id="its deadline passed: not counted"),
        pytest.param("Evicted", {}, id="it was evicted: not counted"),
    ],
)
async def test_a_rejection_is_counted_by_its_reason(reason: str, counted: dict[str, float]) -> None:
    kubelets = await with_one_bound()
    kubelets.sched.clock.move(2)

    kubelets.shows("p", reason)

    assert kubelets.counted() == counted
    assert bool(kubelets.refusals.held_back(P)) is bool(counted)


ASKERS: Final = {
    "a/x": bound("ax", namespace="a", owner="x"),
    "a/y": bound("ay", namespace="a", owner="y"),
    "a/": bound("a", namespace="a"),
    "b/x": bound("bx", namespace="b", owner="x"),
    "b/": bound("b", namespace="b"),
    "c/": bound("c", namespace="c"),
}
"""Pods by namespace and controller."""
A: Final = {"a/x", "a/y", "a/"}


@pytest.mark.parametrize(
    ("refused", "avoiding"),
    [
        pytest.param(["a/x PodOSNotSupported"], {"a/x"}, id="93 the author's choice: pods of the controller"),
        pytest.param(["a/x NodePorts"], {"a/x"}, id="a port: pods of the controller"),
        pytest.param(["a/ SysctlForbidden"], A, id="without a controller: pods of the namespace"),
        pytest.param(["a/x SysctlForbidden", "b/x SysctlForbidden"], {"a/x", "b/x"}, id="in two namespaces: each its own"),
        pytest.param(["a/x OutOfcpu"], A, id="the node is full: pods of the namespace"),
        pytest.param(["a/x OutOfcpu", "a/ OutOfpods"], A, id="twice in one namespace: its pods"),
        pytest.param(["a/x OutOfcpu", "b/ OutOfcpu"], set(ASKERS), id="the node is full, in two namespaces: all"),
        pytest.param(["a/x OutOfexample.com/gpu", "b/ NodeShutdown"], set(ASKERS), id="a device, a shutdown: all"),
        pytest.param(["a/ InvalidNodeInfo", "b/ NodeShutdown"], set(ASKERS), id="a node without information: all"),
        pytest.param(["a/x OutOfcpu", "b/x AppArmor"], A | {"b/x"}, id="full for one, the author's choice of another"),
    ],
)  # fmt: skip
def test_a_rejection_steers_only_the_pods_that_it_concerns(refused: list[str], avoiding: set[str]) -> None:
    """The author of a pod can cause most rejections, and must not steer the pods of other users."""
    kubelets = Kubelets()
    kubelets.sched.node("n1")
    for at, row in enumerate(refused):
        who, reason = row.split()
        namespace, owner = who.split("/")
        kubelets.refusals.sent(bound(f"p{at}", namespace=namespace, owner=owner))
        kubelets.shows(f"p{at}", reason, namespace=namespace)

    assert {who for who, pod in ASKERS.items() if kubelets.refusals.held_back(pod)} == avoiding


async def test_a_tenant_does_not_choose_the_node_of_another_tenant() -> None:
    """Its pods are refused on the better node. The pod of another namespace is placed as without them."""
    kubelets = await with_one_bound()
    for reason in ("PodOSNotSupported", "OutOfcpu", "OutOfcpu"):
        kubelets.refusals.sent(bound("evil", namespace="evil"))
        kubelets.shows("evil", reason, namespace="evil")
    assert kubelets.refusals.held_back(bound("evil", namespace="evil"))

    kubelets.sched.pod("small", cpu="100m")
    await kubelets.sched.settle()

    assert kubelets.sched.writer.binds[1:] == [("default/small", "n1")]


def test_two_namespaces_count_together_only_within_half_a_minute() -> None:
    kubelets = Kubelets()
    kubelets.sched.node("n1")
    for namespace in ("a", "b", "b"):
        kubelets.refusals.sent(bound(namespace, namespace=namespace))
        kubelets.shows(namespace, "OutOfcpu", namespace=namespace)
        kubelets.sched.clock.move(refusals.HELD_BACK_S)

    assert not kubelets.refusals.held_back(ASKERS["c/"])


def test_memory_of_rejections_is_bounded_by_those_of_half_a_minute() -> None:
    kubelets = Kubelets()
    for at in range(500):
        namespace = f"ns{at % 7}"
        kubelets.refusals.sent(bound(f"p{at}", f"n{at % 50}", namespace=namespace, owner=f"o{at}"))
        reason = "OutOfcpu" if at % 2 else "AppArmor"
        kubelets.shows(f"p{at}", reason, node=f"n{at % 50}", namespace=namespace)
        kubelets.sched.clock.move(1)

    kept = [*kubelets.refusals._held_back.values(), *kubelets.refusals._namespaces.values()]
    assert len(kept) <= 4 * refusals.HELD_BACK_S
    assert sum(map(len, kept)) <= 4 * refusals.HELD_BACK_S


async def test_a_rejection_is_counted_and_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = CapturingLogger()
    monkeypatch.setattr(refusals, "_log", logger)
    kubelets = await with_one_bound()
    kubelets.sched.clock.move(2)
    for _ in range(3):
        kubelets.shows("p", "OutOfcpu")

    assert kubelets.counted() == {"OutOfcpu": 1}
    (call,) = logger.calls
    assert call.args == ("pod refused by its kubelet",)
    assert call.kwargs == {"pod": "default/p", "node": "n1", "reason": "OutOfcpu", "after_s": 2.0}
    assert kubelets.sched.recorder.events[1:] == [], "no event is written"


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param({"name": "other"}, id="a pod that another scheduler bound"),
        pytest.param({"uid": "earlier"}, id="an earlier pod of that name"),
        pytest.param({"node": "n2"}, id="a pod that was bound to another node"),
    ],
)
async def test_rejections_of_other_pods_do_not_count(shown: dict[str, str]) -> None:
    kubelets = await with_one_bound()

    kubelets.shows(**({"name": "p"} | shown), reason="OutOfcpu")

    assert kubelets.counted() == {}
    assert not kubelets.refusals.held_back(P)


async def test_failures_before_the_start_do_not_count() -> None:
    """The first list has them, and unreadable and deleted pods."""
    kubelets = Kubelets()
    old = [Delta(None, failed(f"p{i}", "OutOfcpu")) for i in range(1000)]
    odd = Broken("FailedPod", Metadata(name="odd", namespace="default", uid="odd"), "why")

    kubelets.refusals.failed([*old, Delta(None, odd), Delta(odd, None), Delta(old[0].new, None)])

    assert kubelets.counted() == {}


async def test_a_pod_that_fails_long_after_its_binding_does_not_count() -> None:
    """A kubelet that restarts admits pods again, and that is no race of schedulers."""
    kubelets = await with_one_bound()
    kubelets.sched.clock.move(refusals.REMEMBERED_S + 1)

    kubelets.shows("p", "NodeAffinity")

    assert kubelets.counted() == {}


async def test_a_node_that_comes_last_is_taken_if_no_other_fits() -> None:
    kubelets = await with_one_bound()
    kubelets.shows("p", "OutOfcpu")

    kubelets.sched.pod("large", cpu="2")
    await kubelets.sched.settle()

    assert kubelets.sched.writer.binds[1:] == [("default/large", "n1")]


async def test_the_node_is_equal_again_half_a_minute_after_its_last_rejection() -> None:
    kubelets = await with_one_bound()
    kubelets.refusals.sent(bound("q"))
    kubelets.shows("p", "OutOfcpu")
    kubelets.sched.clock.move(20)
    kubelets.shows("q", "OutOfcpu")
    kubelets.sched.clock.move(refusals.HELD_BACK_S - 0.1)
    assert kubelets.refusals.held_back(P)

    kubelets.sched.clock.move(0.1)
    kubelets.sched.pod("successor", cpu="100m")
    await kubelets.sched.settle()

    assert kubelets.sched.writer.binds[1:] == [("default/successor", "n1")]


async def test_a_deleted_node_does_not_come_last() -> None:
    """Its slot may belong to another node. A node that returns in time comes last again."""
    kubelets = await with_one_bound()
    kubelets.shows("p", "OutOfcpu")
    before = kubelets.refusals.held_back(P)
    kubelets.sched.gone("p")
    kubelets.sched.node_gone("n1")
    assert (before, kubelets.refusals.held_back(P)) == (1, 0)

    kubelets.sched.node("n3", cpu="64")
    kubelets.sched.node("n1", cpu="64")
    assert kubelets.refusals.held_back(P).bit_count() == 1


@settings(max_examples=examples(50))
@given(st.lists(st.one_of(st.integers(0, 40).map(str), st.floats(0.1, 50)), max_size=120))
def test_memory_of_bindings_is_bounded(history: list[str | float]) -> None:
    """Bindings of the last minute are kept once each. The oldest are dropped first."""
    clock = StepClock()
    memory = refusals.KubeletRejections(Cluster(), clock=clock, metrics=Metrics(process=False), sent_max=16)
    at: dict[str, float] = {}
    for step in history:
        if isinstance(step, float):
            clock.move(step)
            continue
        memory.sent(bound(step))
        at.pop(f"uid-{step}", None)
        at[f"uid-{step}"] = clock.now()
        young = [uid for uid, when in at.items() if clock.now() - when <= refusals.REMEMBERED_S]
        assert list(memory._sent) == young[-16:]


def test_a_failed_pod_keeps_four_fields() -> None:
    whole = manifest("p", on="n1", cpu="1", phase="Failed", labels={"a": "b"})
    whole["status"]["reason"] = None
    whole["metadata"]["managedFields"] = [{"manager": "x"}]

    read = ObjectDecoder("FailedPod", FailedPod).decode(msgspec.json.encode(whole))

    assert isinstance(read, FailedPod)
    assert (read.key, read.metadata.uid, read.spec.node_name, read.status.reason) == ("default/p", "uid-p", "n1", "")
