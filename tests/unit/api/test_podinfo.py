"""What scheduling derives from a pod: docs/spec/core.md §A.1, §A.2, §A.4, §3.10, table §9.3."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from scheduler.api.apps_and_policy import is_leaving_for_a_preemptor, preempted_by, started_at
from scheduler.api.core_v1 import Pod, PodCondition
from scheduler.api.podinfo import HostPort, Requests, allocatable, placed, pod_info, requests_of
from scheduler.api.quantity import parse
from tests.unit import objects
from tests.unit.objects import container, info, pod, ports

MI = 2**20
SIDECAR = {"restartPolicy": "Always"}


def spec_of(*containers: dict[str, Any], init: Sequence[dict[str, Any]] = (), **more: Any) -> dict[str, Any]:
    return {"containers": list(containers), "initContainers": list(init), **more}


def total(**amounts: str) -> dict[str, Any]:
    """`resources` of a whole pod."""
    return {"requests": amounts}


@pytest.mark.parametrize(("spec", "requests"), [
    pytest.param(spec_of(container(cpu="1"), container(cpu="2"), init=[container(cpu="2")]), {"cpu": 3000},
        id="94 containers together outweigh the init container"),
    pytest.param(spec_of(container(cpu="1"), init=[container(cpu="5")]), {"cpu": 5000},
        id="95 a large init container decides"),
    pytest.param(spec_of(container(cpu="1"), init=[container(cpu="1") | SIDECAR, container(cpu="2")]), {"cpu": 3000},
        id="96 an init container runs together with earlier sidecars"),
    pytest.param(spec_of(container(cpu="1"), init=[container(cpu="2"), container(cpu="1") | SIDECAR]), {"cpu": 2000},
        id="97 a later sidecar does not run at the same time"),
    pytest.param(spec_of(container(cpu="1"), overhead={"cpu": "250m"}), {"cpu": 1250}, id="98 overhead is added once"),
    pytest.param(spec_of(container(cpu="1", **{"example.com/x": "1"}), container(cpu="1"), resources=total(cpu="4")),
        {"cpu": 4000, "example.com/x": 1}, id="99 pod-level requests replace those they name"),
    pytest.param(spec_of(container()), {}, id="100 no requests are none"),
    pytest.param(spec_of(container(cpu="100u")), {"cpu": 1}, id="102 rounded up to a milli-CPU"),
    pytest.param(spec_of(container(memory="1500m"), container(memory="1500m"), overhead={"memory": "1500m"}),
        {"memory": 5}, id="parts of a byte are added up before they are rounded"),
    pytest.param(spec_of(container(**{"hugepages-2Mi": "2Mi"}), resources={"requests": {"hugepages-2Mi": "4Mi"}}),
        {"hugepages-2Mi": 4 * MI}, id="huge pages can be requested by the pod"),
    pytest.param(spec_of(container(memory="4Ei"), container(memory="3Ei")), {"memory": 7 * 2**60},
        id="a large sum is exact"),
    pytest.param(spec_of(container(memory="9Ei"), container(memory="9Ei")), {"memory": 2**63 - 1},
        id="a sum beyond int64 saturates"),
    pytest.param(spec_of(container(cpu="1e99999", memory="1Gi")), {"cpu": 2**63 - 1, "memory": 2**30},
        id="a single amount beyond int64 saturates, as upstream"),
])  # fmt: skip
def test_requests(spec: dict[str, Any], requests: Requests) -> None:
    assert requests == requests_of(pod(**spec))


@pytest.mark.parametrize(("spec", "milli_cpu", "memory_mi"), [
    pytest.param(spec_of(container(), container()), 200, 400, id="100 defaults per container"),
    pytest.param(spec_of(container(cpu="0", memory="0")), 0, 0, id="101 explicit zero stays zero"),
    pytest.param(spec_of(container(cpu="2")), 2000, 200, id="only what is missing is filled in"),
    pytest.param(spec_of(container(), container(), resources=total(cpu="1")), 1000, 400,
        id="no default for what the pod as a whole requests"),
    pytest.param(spec_of(container(cpu="500m"), container(), resources=total(memory="1Gi")), 500, 1024,
        id="nor, if it requests anything as a whole, for what another container requests"),
    pytest.param(spec_of(container(), container(), resources=total(memory="1Gi"), overhead={"cpu": "250m"}), 250,
        1024, id="nor for what is among its overhead"),
    pytest.param(spec_of(container(cpu="1", memory="1Mi"), init=[container(memory="1Mi")]), 1000, 1,
        id="init containers get defaults as well, and the largest moment counts"),
])  # fmt: skip
def test_non_zero(spec: dict[str, Any], milli_cpu: int, memory_mi: int) -> None:
    """What the scoring strategies count (§A.2)."""
    seen = info(**spec)

    assert (milli_cpu, memory_mi * MI) == (seen.non_zero_milli_cpu, seen.non_zero_memory_bytes)


# -- resize, by totals as from 1.37 on ---------------------------------------------------------------------------------

INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = INFEASIBLE | {"reason": "Deferred"}


def status_of(name: str, *, allocated: str = "", actual: str = "") -> dict[str, Any]:
    """A container's status; without `actual` it has no `resources`."""
    status: dict[str, Any] = {"name": name}
    if allocated:
        status["allocatedResources"] = {"cpu": allocated}
    return status | ({"resources": {"requests": {"cpu": actual}}} if actual else {})


def of_containers(*statuses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"containerStatuses": list(statuses), **more}


def of_init(*statuses: dict[str, Any]) -> dict[str, Any]:
    return {"initContainerStatuses": list(statuses)}


AB = spec_of(container("a", cpu="1"), container("b", cpu="4"))
SWAPPED = of_containers(status_of("a", allocated="4", actual="4"), status_of("b", allocated="1", actual="1"))
THREE = spec_of(container("a", cpu="3"))
NOT_IN_EFFECT = of_containers(status_of("a", allocated="1", actual="4"), status_of("b", allocated="4", actual="1"))
MEMORY_OF_POD = {"resources": total(memory="1")}
TWO_OF_POD = {"resources": total(cpu="2")}
ALLOCATED_TO_POD = {"resources": total(cpu="1"), "allocatedResources": {"cpu": "4"}}


@pytest.mark.parametrize(("spec", "status", "before", "now"), [
    pytest.param(AB, SWAPPED, 8000, 5000, id="one container shrinks while another one grows"),
    pytest.param(AB, NOT_IN_EFFECT, 8000, 5000, id="both resizes are allocated, and none is in effect"),
    pytest.param(AB, SWAPPED | {"conditions": [DEFERRED]}, 8000, 5000, id="88 a deferred resize counts"),
    pytest.param(AB, SWAPPED | {"conditions": [INFEASIBLE]}, 5000, 5000, id="89 an infeasible one does not count"),
    pytest.param(THREE, of_containers(status_of("a", allocated="2"), conditions=[INFEASIBLE]), 3000, 2000,
        id="allocated resources count without actual ones"),
    pytest.param(THREE, of_containers(status_of("a", allocated="4")), 3000, 4000,
        id="allocated resources above the request count without actual ones"),
    pytest.param(spec_of(container("a", cpu="1")), of_containers(status_of("a", allocated="3", actual="2")), 3000, 3000,
        id="allocated resources above the actual ones count"),
    pytest.param(THREE, {"conditions": [INFEASIBLE]}, 3000, None,
        id="an infeasible resize of a container without status counts nothing"),
    pytest.param(spec_of(container("m", cpu="1"), init=[container("i", cpu="2")]),
        of_init(status_of("i", allocated="3", actual="3")), 2000, 3000, id="the status of an init container counts"),
    pytest.param(spec_of(container("m", cpu="1"), init=[container("s", cpu="2") | SIDECAR]),
        of_init(status_of("s", allocated="3", actual="3")), 4000, 4000, id="the status of a sidecar counts as before"),
    pytest.param(AB, SWAPPED | {"allocatedResources": {"cpu": "2"}, "resources": total(cpu="6")}, 8000, 6000,
        id="the pod's own status replaces the totals of the containers"),
    pytest.param(AB, SWAPPED | {"allocatedResources": {"cpu": "7"}}, 8000, 5000,
        id="without actual resources of the pod its allocated ones do not count"),
    pytest.param(AB | MEMORY_OF_POD, {"resources": total(cpu="6")}, 5000, 6000,
        id="pod-level requests include resources that only the status names"),
    pytest.param(AB | {"resources": total(cpu="9")}, {"resources": total(cpu="6"), "conditions": [INFEASIBLE]}, 6000,
        6000, id="an infeasible pod-level request does not count"),
    pytest.param(AB | MEMORY_OF_POD, {"conditions": [INFEASIBLE]}, 5000, None, id="pod-level memory alone"),
    pytest.param(AB | TWO_OF_POD, {}, 2000, 2000, id="a pod-level request without a status"),
    pytest.param(AB | TWO_OF_POD, {"resources": total(cpu="3")}, 3000, 3000, id="pod-level resources in effect"),
    pytest.param(AB | TWO_OF_POD, ALLOCATED_TO_POD, 4000, 4000, id="allocated pod-level amounts above the actual"),
    pytest.param(AB | {"overhead": {"cpu": "1"}}, SWAPPED, 9000, 6000, id="the overhead is added at the end"),
])  # fmt: skip
def test_resize_by_totals(spec: dict[str, Any], status: dict[str, Any], before: int, now: int | None) -> None:
    """The greatest of the totals that are requested, allocated and actual; 1.36 adds the greatest of each container."""
    seen = pod(status=status, **spec)

    assert requests_of(seen).get("cpu") == before
    assert requests_of(seen, resize_by_totals=True).get("cpu") == now


def test_defaults_of_scores_are_a_part_of_each_total() -> None:
    """A container without a request counts 100m in each of them, and the pod's own status gets no defaults."""
    spec: dict[str, Any] = spec_of(container("a", cpu="1"), container("b"))
    own = {"allocatedResources": {"cpu": "2"}, "resources": total(cpu="1")}

    assert pod_info(pod(**spec), resize_by_totals=True).non_zero_milli_cpu == 1100
    assert pod_info(pod(status=own, **spec), resize_by_totals=True).non_zero_milli_cpu == 2000


def test_equal_milli_is_not_equal_amount() -> None:
    small, large = (requests_of(pod(containers=[container(cpu="10000000000000000", memory=m)])) for m in ("1", "2"))

    assert (small["memory"], large["memory"]) == (1, 2)


def test_host_ports() -> None:
    sidecar = {"name": "s", "ports": [{"hostPort": 53, "protocol": "UDP", "hostIP": "127.0.0.1"}]} | SIDECAR
    once = {"name": "i", "ports": [{"hostPort": 99}]}
    seen = info(containers=ports("TCP/80", "TCP/0"), initContainers=[sidecar, once])

    assert (HostPort("TCP", 80, "0.0.0.0"), HostPort("UDP", 53, "127.0.0.1")) == seen.host_ports


def test_placement_shape() -> None:
    zone = {"nodeSelector": {"zone": "a"}}

    assert info().placement_shape == b""
    assert info("p", **zone).placement_shape == info("q", **zone).placement_shape
    assert info("p", **zone).placement_shape != info("p", nodeSelector={"zone": "b"}).placement_shape


def test_placed_changes_only_the_node() -> None:
    waiting = info(containers=ports("TCP/80"), nodeSelector={"a": "b"})
    held = placed(waiting, "n7")

    assert held.node_name == "n7"
    assert (waiting.uid, waiting.requests, waiting.host_ports) == (held.uid, held.requests, held.host_ports)
    assert waiting.node_name == ""


def test_less_than_nothing_is_nothing() -> None:
    seen = pod(containers=[container(cpu="-1", memory="1Gi")], overhead={"memory": "-2Gi"})

    assert requests_of(seen) == {"cpu": 0, "memory": 0}
    assert allocatable({"cpu": parse("-5"), "memory": parse("-1e400")}) == {"cpu": 0, "memory": 0}


NEW_YEAR = 1767225600.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("2026-01-01T01:00:00+01:00", NEW_YEAR, id="another zone"),
        pytest.param("2026-01-01T00:00:00.250000999Z", NEW_YEAR + 0.25, id="nanoseconds"),
        pytest.param("2026-01-01T00:00:00", NEW_YEAR, id="no zone: UTC"),
        pytest.param("0001-01-01T00:00:00Z", -62135596800.0, id="Go's zero time"),
        pytest.param(None, math.inf, id="not started yet"),
        pytest.param("yesterday", math.inf, id="no time at all"),
        pytest.param("2026-01-01T00:00:60Z", math.inf, id="a leap second"),
    ],
)
def test_started_at(text: str | None, seconds: float) -> None:
    assert seconds == started_at(text)


def test_the_condition_of_a_victim() -> None:
    """The text is upstream's; the preemptor's scheduler evicts."""
    assert preempted_by("kubestow", 7) == PodCondition(
        type="DisruptionTarget",
        status="True",
        reason="PreemptionByScheduler",
        message="kubestow: preempting to accommodate a higher priority pod",
        observed_generation=7,
    )


def deleted(made: Pod) -> Pod:
    metadata = msgspec.structs.replace(made.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(made, metadata=metadata)


def condition(**more: str) -> dict[str, str]:
    return {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", **more}


@pytest.mark.parametrize(("is_deleting", "conditions", "is_leaving"), [
    pytest.param(True, [condition()], True, id="it is deleted and has the condition"),
    pytest.param(False, [condition()], False, id="it has the condition and is not deleted yet"),
    pytest.param(True, [], False, id="deleted without a condition"),
    pytest.param(True, [condition(reason="EvictionByEvictionAPI")], False, id="evicted for another reason"),
    pytest.param(True, [condition(status="False")], False, id="the condition is False"),
    pytest.param(True, [condition(type="Ready", status="False"), condition()], True,
        id="after a condition of another type"),
    pytest.param(True, [condition(status="False"), condition()], False, id="the first of the type counts"),
])  # fmt: skip
def test_is_leaving_for_a_preemptor(is_deleting: bool, conditions: list[dict[str, Any]], is_leaving: bool) -> None:
    made = objects.pod("a", status={"conditions": conditions})

    assert is_leaving is is_leaving_for_a_preemptor(deleted(made) if is_deleting else made)
