"""The status of PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.apiserver import ApiServer
from simulator.simulate.budgets import Budgets

LABELS = {"app": "web"}


def a_server(spec: dict[str, Any], *, bound: int = 4, waiting: int = 0) -> ApiServer:
    """A budget, and pods that it selects."""
    server = ApiServer()
    for at in range(bound + waiting):
        on = {"nodeName": "n"} if at < bound else {}
        spec_of_pod = {"containers": [{"name": "c"}], **on}
        server.create("Pod", {"metadata": {"name": f"web-{at}", "labels": LABELS}, "spec": spec_of_pod})
    server.create(
        "PodDisruptionBudget", {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": LABELS}, **spec}}
    )
    return server


def allowed(server: ApiServer) -> int:
    return int(server.get("PodDisruptionBudget", "b")["status"]["disruptionsAllowed"])


@pytest.mark.parametrize(
    ("spec", "waiting", "count"),
    [
        pytest.param({"minAvailable": 3}, 0, 1, id="all but three"),
        pytest.param({"minAvailable": "30%"}, 0, 2, id="a percentage of minAvailable is rounded up"),
        pytest.param({"maxUnavailable": 1}, 0, 1, id="one"),
        pytest.param({"maxUnavailable": "30%"}, 0, 2, id="a percentage of maxUnavailable is rounded up"),
        pytest.param({"maxUnavailable": 0}, 0, 0, id="none"),
        pytest.param({"minAvailable": 9}, 0, 0, id="more than the number of pods"),
        pytest.param({"maxUnavailable": 1}, 1, 0, id="one is unavailable"),
        pytest.param({}, 0, 0, id="no limit"),
        pytest.param({"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}, 0, 0, id="other pods"),
    ],
)
def test_the_status_of_a_new_budget(spec: dict[str, Any], waiting: int, count: int) -> None:
    server = a_server(spec, waiting=waiting)
    Budgets(server, ())

    assert allowed(server) == count


@pytest.mark.parametrize("is_believed", [False, True], ids=["computed", "from the dump"])
def test_the_status_follows_the_pods(is_believed: bool) -> None:
    """Terminating and deleted pods are not healthy. Pods that the budget does not select do not count."""
    server = a_server({"minAvailable": 2}, waiting=1)
    if is_believed:
        server.patch("PodDisruptionBudget", "b", {"status": {"disruptionsAllowed": 2}}, subresource="status")
    Budgets(server, {"default/b"} if is_believed else ())
    seen = [allowed(server)]
    for change in (
        lambda: server.delete("Pod", "web-0"),
        lambda: server.delete("Pod", "web-0", grace_s=0),
        lambda: server.bind("web-4", "n"),
        lambda: server.delete("Pod", "web-1", grace_s=0),
        lambda: server.delete("Pod", "web-2", grace_s=0),
        lambda: server.delete("Pod", "web-3", grace_s=0),
        lambda: server.create(
            "Pod", {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}], "nodeName": "n"}}
        ),
    ):
        change()
        seen.append(allowed(server))

    assert seen == [2, 1, 1, 2, 1, 0, 0, 0]
