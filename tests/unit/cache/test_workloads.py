"""Which pods belong together: docs/spec/core.md §5.8, the selector of default constraints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler.api.apps_and_policy import ReplicaSet, ReplicationController, Service
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import from_manifest
from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement
from scheduler.cache.workloads import Workloads

WEB = {"app": "web", "tier": "front"}


def service(name: str, selector: dict[str, str] | None, namespace: str = "default") -> Service:
    spec = {} if selector is None else {"selector": selector}
    return from_manifest(Service, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def owner(kind: type[Any], name: str, selector: dict[str, Any] | None) -> Any:
    spec = {} if selector is None else {"selector": selector}
    return from_manifest(kind, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def pod(labels: dict[str, str] = WEB, owned_by: tuple[str, str, str] | None = None, **more: Any) -> Pod:
    owners = []
    if owned_by is not None:
        version, kind, name = owned_by
        owners = [{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": True, **more}]
    metadata = {"name": "p", "namespace": "default", "labels": labels, "ownerReferences": owners}
    return from_manifest(Pod, {"metadata": metadata, "spec": {"containers": []}})


RS = ("apps/v1", "ReplicaSet", "rs")
HASHED = LabelSelectorRequirement("hash", "In", ("1",))


@pytest.mark.parametrize(
    ("there", "comes", "expected"),
    [
        pytest.param([], pod(), None, id="no selector matches it"),
        pytest.param(
            [service("s", {"app": "web"}), service("t", {"tier": "front"})],
            pod(),
            LabelSelector(WEB),
            id="two Services together",
        ),
        pytest.param([service("s", {"app": "web", "x": "y"})], pod(), None, id="a Service demands a label it lacks"),
        pytest.param([service("s", {"app": "web"}, "other")], pod(), None, id="a Service of another namespace"),
        pytest.param([service("s", None)], pod(), None, id="a Service without a selector"),
        pytest.param([service("s", {})], pod(), None, id="an empty selector demands nothing"),
        pytest.param(
            [
                service("s", {"tier": "front"}),
                owner(ReplicaSet, "rs", {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}]}),
            ],
            pod(owned_by=RS),
            LabelSelector({"tier": "front"}, (HASHED,)),
            id="a Service and the owner's expressions",
        ),
        pytest.param(
            [service("s", {"app": "web"}), owner(ReplicaSet, "rs", {"matchLabels": {"app": "old"}})],
            pod(owned_by=RS),
            LabelSelector({"app": "web"}, (LabelSelectorRequirement("app", "In", ("old",)),)),
            id="an owner that contradicts the Service: both must hold",
        ),
        pytest.param(
            [service("s", WEB), owner(ReplicationController, "rc", {"app": "old"})],
            pod(owned_by=("v1", "ReplicationController", "rc")),
            LabelSelector({"app": "old", "tier": "front"}),
            id="a ReplicationController that contradicts the Service: its own word counts",
        ),
        pytest.param([], pod(owned_by=RS), None, id="an owner that is not known"),
        pytest.param(
            [owner(ReplicaSet, "rs", {"matchLabels": {"app": "web"}})],
            pod(owned_by=("example.com/v1", "ReplicaSet", "rs")),
            None,
            id="an owner of another group",
        ),
        pytest.param(
            [owner(ReplicaSet, "rs", {"matchLabels": {"app": "web"}})],
            pod(owned_by=RS, controller=False),
            None,
            id="an owner that is no controller",
        ),
        pytest.param([owner(ReplicaSet, "rs", None)], pod(owned_by=RS), None, id="an owner without a selector"),
    ],
)
def test_default_selector(there: list[Any], comes: Pod, expected: LabelSelector | None) -> None:
    workloads = Workloads()
    for thing in there:
        (workloads.set_service if isinstance(thing, Service) else workloads.set_controller)(thing)

    assert expected == workloads.default_selector(comes)


WEB_RS = owner(ReplicaSet, "rs", {"matchLabels": {"app": "web"}})
CHANGES: list[tuple[Callable[[Workloads], object], dict[str, str] | None, bool]] = [
    (lambda seen: seen.set_service(service("s", {"app": "web"})), {"app": "web"}, True),
    (lambda seen: seen.set_service(service("s", {"app": "web"})), {"app": "web"}, False),
    (lambda seen: seen.set_service(service("s", {"tier": "front"})), {"tier": "front"}, True),
    (lambda seen: seen.set_service(service("s", None)), None, True),
    (lambda seen: seen.remove_service("default/s"), None, False),
    (lambda seen: seen.set_controller(WEB_RS), {"app": "web"}, True),
    (lambda seen: seen.set_controller(WEB_RS), {"app": "web"}, False),
    (lambda seen: seen.remove_controller(ReplicaSet, "default/rs"), None, True),
    (lambda seen: seen.remove_controller(ReplicaSet, "default/rs"), None, False),
]


def test_changes_are_followed_and_what_changes_nothing_is_no_news() -> None:
    workloads = Workloads()
    for change, labels, is_news in CHANGES:
        before = workloads.generation
        change(workloads)
        selector = workloads.default_selector(pod(owned_by=RS))

        assert labels == (selector.match_labels if selector else None)
        assert is_news is (workloads.generation != before)
