"""The cost of the reservations of pods with many claims, in look-ups of claims (docs/spec/volumes.md §12.1 B-1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scheduler.api.storage_v1 import PersistentVolumeClaim
from tests.unit.cache.storage.test_ledger import World, c, v

MANY = 200


class CountedClaims:
    """The claims, with the number of look-ups."""

    def __init__(self, world: World) -> None:
        self._claims = world.volumes.claims
        self.looked_up = 0

    def get(self, key: str) -> PersistentVolumeClaim | None:
        self.looked_up += 1
        return self._claims.get(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._claims, name)


class Pods:
    """Pods that wait for claims c0, c1, … of which the provisioner is known; their pools have capacity for all."""

    def __init__(self, *pods: range, is_tied: bool = False) -> None:
        self.world = World()
        self.pods = pods
        self.is_tied = is_tied
        self.world.write("a", "900Gi")
        self.names = [f"c{at}" for at in range(max(pod.stop for pod in pods))]
        for name in self.names:
            self.world.claim(c(name, "1Gi"))
        for pod in pods:
            self.world.reservations.plan(f"default/c{at}" for at in pod)
        if is_tied:
            self.world.volumes.set_volume(v("v0", "a", "c0").typed())
            self.world.claim(c("c0", "1Gi").bound_to("v0").resource_version("2"))
        self.world.taken()
        self.claims = CountedClaims(self.world)
        self.world.reservations._claims = self.claims  # type: ignore[assignment]

    def looked_up(self, *steps: Callable[[Pods], object]) -> int:
        """Return the look-ups of these steps, and of reading the pools after each."""
        before = self.claims.looked_up
        for step in steps:
            step(self)
            self.world.taken()
        return self.claims.looked_up - before

    def each(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield the claims without a volume of the first pod, selected or not."""
        for at in self.pods[0][self.is_tied :]:
            claim = c(f"c{at}", "1Gi")
            yield f"default/c{at}", claim.selected(name) if name else claim


def reserve(pods: Pods) -> None:
    """Assume a node for each claim, as Reserve does."""
    for _, claim in pods.each("n1"):
        pods.world.volumes.claims.assume(claim.typed())
        pods.world.reservations.promise(claim.typed(), "pod", "n1")


def unreserve(pods: Pods) -> None:
    """Undo `reserve`, as Unreserve does."""
    for _, claim in pods.each("n1"):
        pods.world.volumes.claims.restore(claim.typed())
        pods.world.reservations.end_promise(claim.typed(), "pod")


def lose(pods: Pods) -> None:
    """Show each claim with a node, and then without."""
    for version, name in (("3", "n1"), ("4", "")):
        for _, claim in pods.each(name):
            pods.world.claim(claim.resource_version(version))


def leave(pods: Pods) -> None:
    pods.world.reservations.end_plan(key for key, _ in pods.each(""))


def label(pods: Pods) -> None:
    pods.world.claim(c("c1", "1Gi").label("a", "b").resource_version("9"))


def select(pods: Pods) -> None:
    pods.world.claim(c("c1", "1Gi").selected("n1").resource_version("10"))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((reserve,), id="Reserve"),
        pytest.param((reserve, unreserve), id="Unreserve"),
        pytest.param((lose,), id="the provisioner gives up each claim"),
        pytest.param((select,), id="one claim gets a node"),
        pytest.param((leave,), id="the pod is gone"),
    ],
)
@pytest.mark.parametrize("is_tied", [True, False])
def test_a_pod_costs_in_proportion_to_its_claims(steps: tuple[Callable[[Pods], object], ...], is_tied: bool) -> None:
    assert Pods(range(MANY), is_tied=is_tied).looked_up(*steps) <= 10 * MANY


def test_a_pod_whose_claims_all_lost_their_node_is_held_in_proportion_to_its_claims() -> None:
    """One volume ties all other claims of the pod to a zone, so that each holds capacity there."""
    pods = Pods(range(MANY), is_tied=True)

    assert {"a": MANY - 1} == pods.world.taken()
    assert pods.looked_up(lambda pods: pods.world.write("a", "800Gi", version="5")) <= 3 * MANY


def test_an_update_that_moves_no_claim_considers_that_claim_alone() -> None:
    pods = Pods(*(range(at, at + MANY) for at in range(20)), is_tied=True)

    assert pods.looked_up(label) <= 2


def test_a_claim_that_moves_costs_in_proportion_to_the_uses_of_claims() -> None:
    """Each pod shares all its claims but a few with the next one."""
    pods = Pods(*(range(at, at + MANY) for at in range(20)), is_tied=True)

    assert pods.looked_up(select) <= 3 * 20 * MANY
