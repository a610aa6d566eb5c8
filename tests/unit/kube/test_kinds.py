import asyncio

import pytest
import structlog

from scheduler.core.errors import ApiError, Unavailable
from scheduler.kube import resources
from scheduler.kube.resources import (
    KINDS,
    WATCHED_NOW,
    Discovery,
    DiscoveryFailed,
    ServedKind,
    discover,
    failed_pods,
    watched,
)
from tests.unit.kube.scripted import ABSENT, LeapingClock, ScriptedTransport, serves, until

CAPACITY, CLAIM, POD = KINDS["CSIStorageCapacity"], KINDS["ResourceClaim"], KINDS["Pod"]


def test_the_table_is_consistent():
    assert len({spec.plural for spec in KINDS.values()}) == len(KINDS)
    assert all(spec.typ is not None for spec in WATCHED_NOW)
    assert ("", "storage.k8s.io") == (POD.group, CAPACITY.group)


def test_pods_nodes_and_the_kinds_that_plugins_read_are_watched():
    assert [spec.name for spec in watched(())] == ["Pod", "Node"]
    assert [spec.name for spec in watched(["Service", "Namespace"])] == ["Pod", "Node", "Namespace", "Service"]


async def test_a_group_version_is_requested_once_for_all_its_kinds():
    transport = ScriptedTransport(by_path={"/api/v1": serves("pods", "nodes")})

    found = await discover(transport, [KINDS["Pod"], KINDS["Node"]])

    assert {"Pod": ServedKind("/api/v1/pods", "v1"), "Node": ServedKind("/api/v1/nodes", "v1")} == found
    assert ["/api/v1"] == transport.paths("GET")


async def test_a_failing_group_does_not_affect_other_groups_or_choose_an_older_version():
    transport = ScriptedTransport(
        by_path={
            "/api/v1": serves("pods"),
            "/apis/resource.k8s.io/v1": Unavailable("apiservice down", status=503),
            "/apis/resource.k8s.io/v1beta2": serves("resourceclaims"),
            "/apis/resource.k8s.io/v1beta1": b"<html>",
        }
    )

    with pytest.raises(DiscoveryFailed) as caught:
        await discover(transport, [POD, CLAIM])

    assert {"Pod": ServedKind("/api/v1/pods", "v1")} == caught.value.served
    failed = [cause.partition(":")[0] for cause in str(caught.value).split("; ")]
    assert ["resource.k8s.io/v1", "resource.k8s.io/v1beta1"] == failed


async def test_discovery_of_missing_kinds_is_repeated():
    clock = LeapingClock()
    transport = ScriptedTransport(
        answers=[Unavailable("starting", status=503), ABSENT, ABSENT, ABSENT, serves("resourceclaims"), ABSENT, ABSENT]
    )
    discovery = Discovery(transport, clock, kinds=[CLAIM])
    found: list[tuple[str, str]] = []
    transport.answers[1:1] = [Unavailable("starting"), Unavailable("starting")]

    task = asyncio.create_task(discovery.run(lambda spec, served: found.append((spec.name, served.version))))
    await until(lambda: len(clock.slept) == 1)
    assert not discovery.answered.is_set()
    assert "starting" in discovery.last_error
    await until(lambda: len(clock.slept) == 2)
    assert discovery.answered.is_set()
    assert ["ResourceClaim"] == list(discovery.missing)
    await task

    assert [1.0, 60.0] == clock.slept
    assert [("ResourceClaim", "v1")] == found
    assert not list(discovery.missing)


PARTLY = "resource.k8s.io/v1: overloaded; resource.k8s.io/v1beta1, resource.k8s.io/v1beta2: connection refused"


async def test_an_unreachable_server_is_logged_once_a_minute(monkeypatch):
    refused, overloaded = Unavailable("connection refused"), Unavailable("overloaded", status=503)
    answers: list[bytes | ApiError] = [*[refused] * 36, *[overloaded] * 4, refused, refused]  # three in each round
    transport = ScriptedTransport(answers=[*answers, serves("resourceclaims"), ABSENT, ABSENT])
    clock = LeapingClock()
    discovery = Discovery(transport, clock, kinds=[CLAIM], server="https://10.0.0.1:6443")
    with structlog.testing.capture_logs() as said:
        monkeypatch.setattr(resources, "_log", structlog.get_logger())
        await discovery.run(lambda spec, served: None)

    assert [(line["event"], line.get("error", "")) for line in said] == [
        ("the API server does not answer", "connection refused"),
        ("the API server does not answer", "connection refused"),
        ("the API server does not answer", "overloaded"),
        ("API discovery is incomplete", PARTLY),
        ("the API server answers again", ""),
    ]
    assert {line["server"] for line in said} == {"https://10.0.0.1:6443"}


async def test_a_server_that_is_away_for_long_is_found_soon_after_it_is_back():
    clock, transport = LeapingClock(), ScriptedTransport(answers=[*[Unavailable("away")] * 8, serves("pods")])
    await Discovery(transport, clock, kinds=[POD]).run(lambda spec, served: None)

    assert [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0] == clock.slept


@pytest.mark.parametrize(
    ("profile", "selector"),
    [
        pytest.param("kubestow", "status.phase=Failed,spec.schedulerName=kubestow", id="a plain name"),
        pytest.param("a,b=c", r"status.phase=Failed,spec.schedulerName=a\,b\=c", id="a name with the selector's signs"),
        pytest.param("a\\b", r"status.phase=Failed,spec.schedulerName=a\\b", id="a name with a backslash"),
    ],
)
def test_failed_pods_are_watched_by_profile(profile, selector):
    """Where pods are served, each row with its own name."""
    spec = failed_pods(profile)

    assert (selector, "pods", ("v1",)) == (spec.field_selector, spec.plural, spec.group_versions)
    assert spec.name == f"FailedPod/{profile}"
