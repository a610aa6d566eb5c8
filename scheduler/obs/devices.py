"""What DynamicResources counts, with upstream's names and ours (docs/spec/dra.md §8.2)."""

from __future__ import annotations

from typing import Final

from scheduler.obs.instruments import Maker, exponential

_WAIT_S: Final = exponential(0.1, 2, 14)
_STEPS: Final = exponential(1, 4, 11)
"""Up to a million: few searches need more steps than the pod has devices, and those that do are told apart roughly."""


class DeviceInstruments:
    """Implements the `DeviceMetrics` port."""

    def __init__(self, make: Maker) -> None:
        self._claims = make.counter(
            "scheduler_resourceclaim_creates",
            "Claims that were to be made for extended resources, by what came of it.",
            "status",
        )
        self._allocations = make.counter(
            "scheduler_dra_bindingconditions_allocations",
            "Devices with binding conditions that a pod waited for, by driver and by how the wait ended.",
            *("profile", "driver", "status"),
        )
        self._waits_s = make.histograms(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time that a pod waited for its devices before it was bound, once for each of them.",
            ["profile", "driver", "status"],
            buckets=_WAIT_S,
        )
        self._conflicts = make.plain_counter(
            "kubestow_claim_write_conflicts",
            "Writes to claims for devices that somebody else came before, or whose answer was lost.",
        )
        self._collisions = make.plain_counter(
            "kubestow_device_collisions",
            "Allocations given up because another claim had got one of the devices.",
        )
        self._steps = make.histogram(
            "kubestow_device_search_steps", "Devices tried in the search of one node.", buckets=_STEPS
        )
        evaluations = make.counter(
            "kubestow_device_cel_evaluations",
            "CEL selectors asked of a kind of device; known: the answer was remembered.",
            "known",
        )
        self._asked, self._remembered = evaluations["false",], evaluations["true",]

    def conditions_allocation(self, profile: str, driver: str, status: str) -> None:
        """As the port."""
        self._allocations[profile, driver, status].inc()

    def conditions_wait(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """As the port."""
        self._waits_s[profile, driver, status].observe(seconds)

    def claim_created(self, status: str) -> None:
        """As the port."""
        self._claims[status,].inc()

    def claim_conflict(self) -> None:
        """As the port."""
        self._conflicts.inc()

    def collision(self) -> None:
        """As the port."""
        self._collisions.inc()

    def searched(self, steps: int) -> None:
        """As the port."""
        self._steps.observe(steps)

    def evaluated(self, is_known: bool) -> None:
        """As the port."""
        (self._remembered if is_known else self._asked).inc()
