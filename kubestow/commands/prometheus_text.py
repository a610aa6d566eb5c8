"""Read samples of Prometheus' text format, and the conditions that make a scheduler unhealthy."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from kubestow.commands.answers import Severity, TroubleAnswer

_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_SAMPLES_MAX: Final = 10_000
"""Samples of one metric; further ones are not read."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One finite value with its labels."""

    labels: Mapping[str, str]
    value: float


class Samples:
    """The samples of some metrics. Lines in another form, infinite values and NaN are left out."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        self._found: dict[str, list[Sample]] = {name: [] for name in names}
        for line in text.splitlines():
            if (match := _LINE.fullmatch(line)) is None or (samples := self._found.get(match[1])) is None:
                continue
            value = _number(match[3])
            if math.isfinite(value) and len(samples) < _SAMPLES_MAX:
                samples.append(Sample(dict(_LABEL.findall(match[2] or "")), value))

    def of(self, name: str, labels: Mapping[str, str] | None = None) -> Iterator[Sample]:
        """Yield the samples of a metric that have these labels."""
        wanted = (labels or {}).items()
        return (each for each in self._found[name] if wanted <= each.labels.items())

    def sums(self, name: str, label: str) -> dict[str, int]:
        """Return the sum of the samples by the value of a label."""
        found: dict[str, int] = {}
        for each in self.of(name):
            key = each.labels.get(label, "")
            found[key] = found.get(key, 0) + int(each.value)
        return found

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float | None:
        """Return the first sample; None if there is none."""
        return next((each.value for each in self.of(name, labels)), None)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True, slots=True)
class Condition:
    """A trouble holds for each sample that is beyond the limit. The name and the limit are those of the alert."""

    alert: str
    severity: Severity
    metric: str
    compared: Literal["<", ">", "!="]
    limit: float
    text: str
    suffers: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def troubles(self, samples: Samples) -> Iterator[TroubleAnswer]:
        """Yield one trouble for each sample."""
        for each in samples.of(self.metric, self.labels):
            if self._holds(each.value):
                names = {"kind": "?", "check": "?", **each.labels}
                text = self.text.format(value=each.value, kind=names["kind"], check=names["check"])
                yield TroubleAnswer(check=self.alert, severity=self.severity, text=text, suffers=self.suffers)

    def _holds(self, value: float) -> bool:
        match self.compared:
            case "<":
                return value < self.limit
            case ">":
                return value > self.limit
            case "!=":
                return value != self.limit


CONDITIONS: Final = (
    Condition("KubestowNoLeader", "critical", "kubestow_leading", "<", 1,
        "this replica does not lead", "it schedules no pod"),
    Condition("KubestowPermissionMissing", "critical", "kubestow_self_check_findings", ">", 0,
        "{value:.0f} findings of the check {check}", "no pod is bound", {"needed": "true"}),
    Condition("KubestowPermissionPartlyMissing", "warning", "kubestow_self_check_findings", ">", 0,
        "{value:.0f} permissions are missing", "preemption, volumes, devices or events of some pods",
        {"needed": "false", "check": "permissions"}),
    Condition("KubestowKindUnsynced", "warning", "kubestow_watch_synced", "<", 1,
        "{kind} is not synced", "no pod is scheduled before all needed kinds are synced"),
    Condition("KubestowWatchStale", "warning", "kubestow_watch_down_seconds", ">", 15,
        "no watch of {kind} for {value:.0f} s", "decisions use an old list of this kind"),
    Condition("KubestowBindingStuck", "warning", "kubestow_assumed_oldest_seconds", ">", 1800,
        "a pod has been binding for {value:.0f} s", "its node, volumes and devices stay reserved", {"state": "binding"}),
    Condition("KubestowAssumedUnconfirmed", "warning", "kubestow_assumed_oldest_seconds", ">", 60,
        "the watch has not shown a bound pod for {value:.0f} s", "the watch of pods is late", {"state": "bound"}),
    Condition("KubestowVolumesNeverCome", "warning", "kubestow_volume_in_flight_oldest_seconds", ">", 1800,
        "a claim has waited for its volume for {value:.0f} s", "its pod, and other pods that need the storage",
        {"state": "flying"}),
    Condition("KubestowLedgerDrift", "warning", "kubestow_volume_ledger_drift_bytes", "!=", 0,
        "reservations of storage differ by {value:.0f} bytes", "pods that need storage capacity"),
)  # fmt: skip
"""Those of the alerts that one reading shows. The alerts also wait for some minutes."""
