"""Run the checks slowly while the scheduling loop is idle, and record what they find.

A pass runs all checks, one step after the other, with at most 1 % of the time. A turn lasts about one millisecond. After a
pass the next one begins a minute later. Differences are logged with both sides, counted, shown at /debug/audit, and
corrected by the check. Then waiting pods are tried again, because a wrong count may have refused them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from scheduler.audit.findings import Check, Difference
from scheduler.core.clock import Clock
from scheduler.core.errors import UnforeseenErrors, shortened

_log = structlog.get_logger(__name__)

SHARE: Final = 0.01
"""The share of the time that checks may use."""
PASS_EVERY_S: Final = 60.0
"""The pause between two passes, and before the first one."""
TURN_S: Final = 0.001
_CREDIT_MAX_S: Final = SHARE
"""One second without checks saves time for ten turns, and a longer one saves no more."""
_STEPS_MAX: Final = 100
"""Steps of a turn on a clock that stands still."""
_LINES_MAX: Final = 20
"""Log lines about one index in one pass. All differences are counted."""
_TEXT_BYTES: Final = 256


@dataclass(slots=True)
class IndexRecord:
    """What the passes over one index have found."""

    passes: int = 0
    compared: int = 0
    differences: int = 0
    last_pass_at: float | None = None
    """The end of the last pass, as seconds since the epoch."""
    last_difference: dict[str, Any] | None = None
    skipped: str = ""
    """Why the last pass over a list could not compare it; "" if it could."""
    lines: int = 0
    """Log lines of the present pass."""


@dataclass(slots=True)
class _Running:
    """A check that has begun and not ended."""

    index: str
    steps: Iterator[Sequence[Difference]]


@dataclass(slots=True, eq=False)
class SelfAudit:
    """The checks, their progress and their records. The scheduling loop calls `may_run` and `turn`.

    `is_current` says that no change waits to be applied. `on_healed` is called after a pass that corrected the cache.
    """

    checks: Mapping[str, Check]
    clock: Clock
    errors: UnforeseenErrors
    is_current: Callable[[], bool]
    on_healed: Callable[[], None]
    records: dict[str, IndexRecord] = field(default_factory=dict)
    passes: int = 0
    _waiting: list[str] = field(default_factory=list)
    """The indexes that the present pass has not reached, the next one last."""
    _running: _Running | None = None
    _has_healed: bool = False
    _credit_s: float = 0.0
    _counted_at: float = 0.0
    _due: float = 0.0

    def __post_init__(self) -> None:
        self._counted_at = self.clock.now()
        self._due = self._counted_at + PASS_EVERY_S
        for index in self.checks:
            self.expect(index)

    def expect(self, index: str) -> None:
        """Show an index before its first difference, so that its counter begins at zero."""
        self.records.setdefault(index, IndexRecord())

    # -- the scheduling loop -----------------------------------------------------------------------------------------

    def may_run(self) -> bool:
        """Return whether a turn would do something now: a pass is due, and the share of time is not used up."""
        now = self.clock.now()
        self._credit_s = min(self._credit_s + (now - self._counted_at) * SHARE, _CREDIT_MAX_S)
        self._counted_at = now
        return bool(self.checks) and now >= self._due and self._credit_s > 0

    def turn(self) -> None:
        """Take steps for about one millisecond, or until a change waits to be applied."""
        began = now = self.clock.now()
        for _ in range(_STEPS_MAX):
            if not self.is_current() or not self.step():
                break
            now = self.clock.now()
            if now - began >= TURN_S:
                break
        self._credit_s -= now - began

    def step(self) -> bool:
        """Take one step; return False at the end of a pass. A check that fails ends, and the next one begins."""
        if self._running is None:
            if not self._waiting:
                self._waiting = list(self.checks)[::-1]
            index = self._waiting.pop()
            self.records[index].lines = 0
            self._running = _Running(index, iter(self.checks[index]()))
        running = self._running
        try:
            found = next(running.steps)
        except StopIteration:
            return self._end(running.index)
        except Exception as error:  # noqa: BLE001 (a check reads state that may be wrong, and must not end the loop)
            self.errors.record("audit", error, "a check of the self-audit failed", index=running.index)
            return self._end(running.index)
        self.records[running.index].compared += 1
        if found:
            self.found(running.index, found)
            self._has_healed = True
        return True

    def _end(self, index: str) -> bool:
        self._running = None
        self.ended(index)
        if self._waiting:
            return True
        self.passes += 1
        if self._has_healed:
            self._has_healed = False
            self._report_healed()
        self._due = self.clock.now() + PASS_EVERY_S
        return False

    def _report_healed(self) -> None:
        try:
            self.on_healed()
        except Exception as error:  # noqa: BLE001 (as above)
            self.errors.record("audit", error, "waiting pods could not be woken after a correction")

    # -- records -----------------------------------------------------------------------------------------------------

    def found(self, index: str, differences: Iterable[Difference]) -> None:
        """Log and count differences. They are corrected already, or will be."""
        record = self.records[index]
        for each in differences:
            record.differences += 1
            shown = {
                "object": shortened(each.about, _TEXT_BYTES),
                "field": shortened(each.field, _TEXT_BYTES),
                "cached": _text(each.cached),
                "stored": _text(each.stored),
            }
            if shown["cached"] == shown["stored"]:
                shown["cached"] = f"another: {shown['cached']}"
            record.last_difference = {**shown, "at": self.clock.wall()}
            record.lines += 1
            if record.lines <= _LINES_MAX:
                _log.error("the cache differed from the stored objects and was corrected", index=index, **shown)

    def ended(self, index: str, *, compared: int = 0, skipped: str = "") -> None:
        """Record the end of a pass over one index. `skipped` says why a list could not be compared."""
        record = self.records[index]
        record.skipped = shortened(skipped, _TEXT_BYTES)
        record.passes += 1
        record.compared += compared
        record.last_pass_at = self.clock.wall()
        record.lines = 0

    def counts(self) -> dict[str, int]:
        """Return the differences by index, for the counter."""
        return {index: record.differences for index, record in self.records.items()}

    @property
    def differences(self) -> int:
        """Return the number of differences that were found."""
        return sum(record.differences for record in self.records.values())

    def page(self) -> dict[str, Any]:
        """Return /debug/audit."""
        return {
            "passes": self.passes,
            "differences": self.differences,
            "running": self._running.index if self._running is not None else None,
            "indexes": {
                index: {
                    "lastPass": record.last_pass_at,
                    "passes": record.passes,
                    "compared": record.compared,
                    "differences": record.differences,
                    "lastDifference": record.last_difference,
                    **({"skipped": record.skipped} if record.skipped else {}),
                }
                for index, record in self.records.items()
            },
        }


def _text(value: object) -> str:
    """Return a short text; that of an object of the API is its version."""
    metadata = getattr(value, "metadata", None)
    return shortened(str(value) if metadata is None else f"version {metadata.resource_version}", _TEXT_BYTES)
