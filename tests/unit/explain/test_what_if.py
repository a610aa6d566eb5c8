"""`kubestow what-if`: how many pods fit, where the pods of drained nodes go, and that nothing stays behind."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, Delta
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.core.cooperative import finish
from scheduler.cycle import Scheduled
from scheduler.explain.answer import WhatIfAnswer, what_if_as_text
from scheduler.explain.manifests import WrongRequest
from scheduler.explain.questions import ClusterChanged
from scheduler.explain.what_if import WhatIf, WhatIfRequest, decoded
from tests.unit.harness import SchedulerHarness, StepClock, manifest, read_pod, typed

HOSTNAME = "kubernetes.io/hostname"


def pod(name: str = "w", **spec: Any) -> dict[str, Any]:
    """Return a manifest as a user writes it."""
    made = manifest(name, **spec)
    return {"kind": "Pod", "metadata": {"name": name, "labels": made["metadata"]["labels"]}, "spec": made["spec"]}


def workload(kind: str = "Deployment", name: str = "w", **spec: Any) -> dict[str, Any]:
    body = pod(name, **spec)
    template = {"metadata": {"labels": body["metadata"]["labels"]}, "spec": body["spec"]}
    return {"kind": kind, "metadata": {"name": name}, "spec": {"replicas": 2, "template": template}}


def cluster(nodes: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]]) -> SchedulerHarness:
    sched = SchedulerHarness()
    for name, more in nodes.items():
        sched.node(name, **{"labels": {HOSTNAME: name}} | more)
    for name, more in pods.items():
        sched.pod(name, **more)
    sched.parts.inbox.apply()
    return sched


def answered(sched: SchedulerHarness, **request: Any) -> WhatIfAnswer:
    return finish(sched.parts.what_if.answer(WhatIfRequest(**request)))


def state(sched: SchedulerHarness) -> Any:
    """Return everything that a question changes for a while."""
    nodes = sched.cluster.nodes
    return (
        sched.cluster.sizes(),
        {
            nodes.name(slot): (
                nodes.node(slot),
                nodes.requested_at(slot, "cpu"),
                int(nodes.pod_count[slot]),
                sorted(nodes.pods(slot)),
            )
            for slot in (nodes.present_slot(name) for name in sched.nodes)
            if slot is not None
        },
    )


def owned(kind: str = "ReplicaSet") -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": "o", "uid": "o", "controller": True}]}


ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "w"}}, "topologyKey": HOSTNAME}
        ]
    }
}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def lists(depth: int) -> dict[str, Any]:
    """Return a pod within this many Lists."""
    value = pod()
    for _ in range(depth):
        value = {"kind": "List", "items": [value]}
    return value


def device_claim() -> dict[str, Any]:
    return {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {}}}


def device_template(size: int) -> dict[str, Any]:
    """Return a claim template with this many bytes."""
    metadata = {"name": "t", "annotations": {"a": "x" * size}}
    return {"kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": {"devices": {}}}}


QUESTIONS = [
    pytest.param({"n1": {}}, {}, {"manifests": (pod(cpu="1"),)}, ("fits", 1, 1), id="one pod"),
    pytest.param(
        {"n1": {"cpu": "2"}, "n2": {"cpu": "3"}},
        {},
        {"manifests": (pod(cpu="1"),), "replicas": 9},
        ("doesNotFit", 9, 5),
        id="more than fit",
    ),
    pytest.param({"n1": {}}, {}, {"manifests": (workload(cpu="1"),)}, ("fits", 2, 2), id="a workload's own number"),
    pytest.param(
        {"n1": {}},
        {},
        {"manifests": (workload("StatefulSet", cpu="1"),), "replicas": 3},
        ("fits", 3, 3),
        id="a stateful set with another number",
    ),
    pytest.param(
        {"n1": {}, "n2": {}},
        {},
        {"manifests": (pod(cpu="1", labels={"app": "w"}, affinity=ANTI),), "replicas": 3},
        ("doesNotFit", 3, 2),
        id="replicas keep away from each other",
    ),
    pytest.param(
        {"n1": {}, "n2": {}},
        {},
        {"manifests": (pod(cpu="3"),), "replicas": 2, "cordon": ("n2",)},
        ("doesNotFit", 2, 1),
        id="a cordoned node takes none",
    ),
    pytest.param(
        {"n1": {"cpu": "2"}},
        {},
        {"manifests": (pod(cpu="2"),), "replicas": 4, "add_nodes_like": {"n1": 2}},
        ("doesNotFit", 4, 3),
        id="two more nodes like one",
    ),
    pytest.param(
        {"n1": {"cpu": "2"}},
        {"a": {"cpu": "2", "on": "n1"}},
        {"manifests": (pod(cpu="1"),), "without": ("default/a",)},
        ("fits", 1, 1),
        id="without a pod",
    ),
    pytest.param(
        {"n1": {"cpu": "2"}},
        {"low": {"cpu": "2", "on": "n1", "priority": 0}},
        {"manifests": (pod(cpu="1", priority=5),)},
        ("fitsAfter", 1, 1),
        id="with preemption",
    ),
    pytest.param(
        {"n1": {"cpu": "2"}},
        {},
        {
            "manifests": (
                {
                    "kind": "Pod",
                    "metadata": {"name": "w"},
                    "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "3"}}}]},
                },
            )
        },
        ("doesNotFit", 1, 0),
        id="a limit without a request",
    ),
    pytest.param({"n1": {}}, {}, {}, ("nothingToPlace", 0, 0), id="no question at all"),
]


@pytest.mark.parametrize(("nodes", "pods", "request_", "expected"), QUESTIONS)
def test_pods_are_counted(
    nodes: dict[str, dict[str, Any]],
    pods: dict[str, dict[str, Any]],
    request_: dict[str, Any],
    expected: tuple[str, int, int],
) -> None:
    sched = cluster(nodes, pods)
    before = state(sched)

    found = answered(sched, **request_)

    assert (found.verdict, found.replicas, found.placed) == expected
    assert len(found.placements) == found.placed
    assert (found.explanation is None) == (found.verdict != "doesNotFit")
    assert state(sched) == before


def test_pods_of_a_drained_node_go_elsewhere_or_nowhere() -> None:
    sched = cluster({"n1": {"cpu": "4"}, "n2": {"cpu": "4"}}, {})
    for name, owner, cpu in (
        ("moves", "ReplicaSet", "3"),
        ("waits", "ReplicaSet", "2"),
        ("daemon", "DaemonSet", "100m"),
        ("bare", "", "100m"),
    ):
        sched.seen[name] = made = with_owner(manifest(name, cpu=cpu, on="n1"), owner)
        sched.parts.event_handlers.apply("Pod", [Delta(None, made)])
    sched.parts.inbox.apply()
    before = state(sched)

    found = answered(sched, drain=("n1",))

    assert {each.pod: (each.source, each.to) for each in found.displaced} == {
        "default/bare": ("n1", ""),
        "default/moves": ("n1", "n2"),
        "default/waits": ("n1", ""),
    }
    assert [each.cause for each in found.displaced if each.pod == "default/bare"] == ["no controller creates it again"]
    assert found.verdict == "doesNotFit"
    assert found.cause == "1 of 3 pods of drained nodes fit elsewhere"
    assert state(sched) == before


@pytest.mark.parametrize("templates", [True, False], ids=["of a claim template", "of an ephemeral volume"])
def test_a_claim_that_exists_is_used_and_stays(templates: bool) -> None:
    """The claim of an earlier pod of the name is in the cache: neither replaced nor removed."""
    sched = cluster({"n1": {}}, {})
    name = "data-w-0" if templates else "w-0-data"
    raw = {"metadata": {"name": name, "namespace": "default", "uid": "u", "resourceVersion": "1"}, "spec": {}}
    sched.cluster.volumes.set_claim(f"default/{name}", msgspec.convert(raw, PersistentVolumeClaim))
    before = sched.cluster.volumes.claims.get_api(f"default/{name}")
    made = workload("StatefulSet", cpu="1")
    claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    if templates:
        made["spec"]["volumeClaimTemplates"] = [claim]
    else:
        ephemeral = {"volumeClaimTemplate": {"spec": claim["spec"]}}
        made["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "ephemeral": ephemeral}]

    answered(sched, manifests=(made,))

    assert before is not None
    assert sched.cluster.volumes.claims.get_api(f"default/{name}") is before


def with_owner(raw: dict[str, Any], kind: str) -> Pod | Broken:
    raw["metadata"] |= owned(kind) if kind else {}
    return read_pod(raw)


def test_pods_of_generated_names_differ() -> None:
    sched = cluster({"n1": {}}, {})
    generated = [pod(cpu="1") | {"metadata": {"generateName": "w-"}} for _ in range(3)]

    found = answered(sched, manifests=tuple(generated))

    assert [each.pod for each in found.placements] == ["default/w", "default/w-2", "default/w-3"]


def test_pods_of_a_manifest_share_all_but_their_names() -> None:
    """A thousand pods need no thousand copies of their volumes."""
    sched = cluster({"n1": {"cpu": "40", "pods": "200"}}, {})
    seen: list[PodInfo] = []
    assume = sched.cluster.assume

    def noted(info: PodInfo) -> None:
        seen.append(info)
        assume(info)

    sched.cluster.assume = noted  # type: ignore[method-assign]
    volumes = [{"name": f"v{at}", "emptyDir": {}} for at in range(100)]

    assert answered(sched, manifests=(pod(volumes=volumes),), replicas=100).placed == 100

    assert len({id(info.pod.spec.volumes) for info in seen}) == 1
    assert len({info.uid for info in seen}) == len({info.key for info in seen}) == 100


def test_victims_are_named() -> None:
    sched = cluster({"n1": {"cpu": "2"}}, {"low": {"cpu": "2", "on": "n1", "priority": 0}})

    found = answered(sched, manifests=(pod(cpu="1", priority=5),))

    assert [(each.pod, each.source, each.cause, each.preempted_by) for each in found.displaced] == [
        ("default/low", "n1", "preempted by default/w", "default/w")
    ]
    assert found.cause == "1 of 1 pod fits; 1 pod is preempted"


def test_the_text_names_nodes_and_the_reason() -> None:
    sched = cluster({"n1": {"cpu": "1"}}, {})

    text = what_if_as_text(answered(sched, manifests=(pod(cpu="1"),), replicas=2))

    assert text == (
        "1 of 2 pods fit\n"
        "  default/w-0 → n1\n"
        "\n"
        "default/w-1: none of 1 node fits: 1 Insufficient cpu\n"
        "next step: an administrator changes nodes, volumes, devices or other pods\n"
        "\n"
        "1 of 1 node (n1):\n"
        "  InsufficientResources: Insufficient cpu\n"
        "    cpu: needs 1, n1 has 0, short by 1\n"
    )


@pytest.mark.parametrize(("body", "message"), [
    pytest.param(b"{", "Input data was truncated", id="no JSON"),
    pytest.param(b'{"drains": []}', "unknown field `drains`", id="an unknown field"),
    pytest.param(b'{"replicas": 1001}', "`int` <= 1000 - at `$.replicas`", id="too many replicas"),
    pytest.param(b'{"manifests": [1]}', "`$.manifests[0]`", id="a manifest that is a number"),
    pytest.param(b'{"addNodesLike": {"n1": 0}}', ">= 1", id="no copy of a node"),
    pytest.param(b'{"manifests": ' + b"[" * 100_000, "", id="deep nesting"),
])  # fmt: skip
def test_a_malformed_request_names_the_field(body: bytes, message: str) -> None:
    with pytest.raises(WrongRequest) as refused:
        decoded(body)
    assert message in str(refused.value)


@pytest.mark.parametrize(("request_", "message"), [
    pytest.param({"drain": ("n9",)}, "drain: node n9 does not exist", id="an unknown node to drain"),
    pytest.param({"cordon": ("n9",)}, "cordon: node n9 does not exist", id="an unknown node to cordon"),
    pytest.param({"add_nodes_like": {"n9": 1}}, "addNodesLike: node n9 does not exist", id="an unknown model"),
    pytest.param(
        {"add_nodes_like": {"n1": 100, "n2": 1}}, "addNodesLike: at most 100 nodes in all", id="too many nodes in all"
    ),
    pytest.param({"without": ("default/x",)}, "without: pod default/x is on no node", id="an unknown pod"),
    pytest.param({"manifests": ({"kind": "Service"},)}, "manifests[0]: kind 'Service' cannot be placed", id="another kind"),
    pytest.param({"manifests": ({"kind": ["Pod"]},)}, "manifests[0]: kind \"['Pod']\" cannot be placed", id="a kind that is a list"),
    pytest.param({"manifests": (pod() | {"spec": 1},)}, "Expected `object`, got `int` - at `$.spec`", id="a spec of another type"),
    pytest.param({"manifests": (pod() | {"metadata": {}},)}, "metadata.name: a name is required", id="no name"),
    pytest.param({"manifests": (pod(cpu="x"),)}, "default/w: ", id="an unreadable amount"),
    pytest.param({"manifests": (pod(priorityClassName="gold"),)}, "the PriorityClass gold is not among the manifests", id="an unknown priority class"),
    pytest.param(
        {"manifests": (pod(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}]),)},
        "the ResourceClaimTemplate default/t is not among the manifests",
        id="an unknown claim template",
    ),
    pytest.param({"manifests": ({"kind": "List", "items": [{"kind": "Node"}]},)}, "manifests[0].items[0]: kind 'Node'", id="in a list"),
    pytest.param({"manifests": (lists(9),)}, "at most 8 Lists may contain each other", id="nine lists"),
    pytest.param({"manifests": (lists(5000),)}, "at most 8 Lists may contain each other", id="thousands of lists"),
    pytest.param({"manifests": ({"kind": nested(5000)},)}, "nested too deeply", id="a kind of thousands of levels"),
    pytest.param({"manifests": (pod(), pod())}, "manifests[1]: Pod default/w is also in manifests[0]; give it another name", id="two pods of one name"),
    pytest.param({"manifests": (workload(), workload("StatefulSet"))}, "manifests[1]: pod default/w-0 is also in manifests[0]", id="two workloads whose pods have one name"),
    pytest.param({"manifests": (device_claim(), device_claim())}, "manifests[1]: ResourceClaim default/c is also in manifests[0]", id="two claims of one name"),
    pytest.param(
        {"manifests": (pod(volumes=[{"name": f"v{at}", "emptyDir": {}} for at in range(1000)]),), "replicas": 1000},
        "are too large: at most 16777216 bytes in all",
        id="many pods with many volumes",
    ),
    pytest.param(
        {"manifests": (device_template(20_000), pod(resourceClaims=[{"name": f"c{at}", "resourceClaimTemplateName": "t"} for at in range(2000)]))},
        "manifests[1]: 1 pod of ",
        id="one claim template in many claims",
    ),
    pytest.param({"drain": ("n1",), "replicas": 1000, "manifests": (pod(),)}, "drain: at node n1 more than 1000 pods leave", id="drained pods next to a thousand"),
])  # fmt: skip
def test_a_question_that_cannot_be_answered_names_the_field(request_: dict[str, Any], message: str) -> None:
    sched = cluster({"n1": {}}, {"a": {"cpu": "1", "on": "n1"}})
    sched.seen["b"] = made = with_owner(manifest("b", cpu="1", on="n1"), "ReplicaSet")
    sched.parts.event_handlers.apply("Pod", [Delta(None, made)])
    sched.parts.inbox.apply()
    before = state(sched)

    with pytest.raises(WrongRequest) as refused:
        answered(sched, **request_)

    assert message in str(refused.value)
    assert state(sched) == before


@pytest.mark.parametrize("depth", [100, 500, 900, 990])
def test_a_manifest_of_hundreds_of_levels_is_placed_or_refused(depth: int) -> None:
    """How deep Python recurses depends on the caller."""
    sched = cluster({"n1": {}}, {})
    try:
        placed = answered(sched, manifests=(pod(nested=nested(depth)),)).placed
    except WrongRequest as refused:
        assert "nested too deeply" in str(refused)  # noqa: PT017 (either is right)
    else:
        assert placed == 1


class TickingClock(StepClock):
    """Each look takes two milliseconds, so that work pauses as often as it can."""

    def now(self) -> float:
        self.time += 0.002
        return self.time


def pausing(sched: SchedulerHarness) -> WhatIf:
    sched.parts.explainer.clock = TickingClock()
    return sched.parts.what_if


def test_other_pods_see_the_cluster_as_it_is() -> None:
    sched = cluster({"n1": {"cpu": "40", "pods": "40"}}, {"a": {"cpu": "1", "on": "n1"}})
    before = state(sched)
    work = pausing(sched).answer(
        WhatIfRequest(manifests=(pod(cpu="1"),), replicas=50, add_nodes_like={"n1": 1}, cordon=("n1",))
    )
    between = 0
    while True:
        try:
            is_between = next(work)
        except StopIteration as done:
            found = done.value
            break
        if is_between:
            between += 1
            assert state(sched) == before

    assert between > 3
    assert (found.placed, found.replicas) == (40, 50)
    assert state(sched) == before


def test_a_cancelled_question_leaves_nothing_behind() -> None:
    sched = cluster({"n1": {"cpu": "40"}}, {})
    before = state(sched)
    work = pausing(sched).answer(WhatIfRequest(manifests=(pod(cpu="1"),), replicas=40))
    for _ in range(20):
        next(work)

    work.close()

    assert state(sched) == before


def test_a_cluster_that_changes_is_looked_at_again() -> None:
    sched = cluster({"n1": {"cpu": "40"}}, {})
    work = pausing(sched).answer(WhatIfRequest(manifests=(pod(cpu="1"),), replicas=60))
    is_taken = False
    while True:
        try:
            is_between = next(work)
        except StopIteration as done:
            found = done.value
            break
        if is_between and not is_taken:
            is_taken = True
            sched.pod("big", cpu="39", on="n1")
            sched.parts.inbox.apply()

    assert is_taken
    assert found.placed == 1


def test_a_cluster_that_never_stands_still_is_an_error() -> None:
    sched = cluster({"n1": {"cpu": "40"}, "n2": {}}, {})
    work = pausing(sched).answer(WhatIfRequest(manifests=(pod(cpu="1"),), replicas=60, cordon=("n2",)))

    def drive() -> None:
        cpu = "40"
        for is_between in work:
            if is_between:
                cpu = "1" if cpu == "40" else "40"
                sched.node("n1", cpu=cpu)
                sched.parts.inbox.apply()

    with pytest.raises(ClusterChanged):
        drive()


def test_a_random_cluster_gets_as_many_pods_as_the_answer_says() -> None:
    """The harness places the pods of each question afterwards, one by one."""
    rng = random.Random(7)
    for case in range(60):
        sched = cluster(
            {f"n{at}": {"cpu": str(rng.randint(1, 6))} for at in range(rng.randint(1, 5))},
            {},
        )
        asked = pod(cpu=f"{rng.choice((500, 700, 1500))}m")
        replicas = rng.randint(1, 20)
        found = answered(sched, manifests=(asked,), replicas=replicas)
        placed = 0
        for at in range(replicas):
            raw = manifest(f"r{at}") | {"spec": asked["spec"]}
            outcome = finish(sched.parts.cycle.attempt(pod_info(typed(raw)), 1))
            placed += isinstance(outcome, Scheduled)
        assert found.placed == placed, case
