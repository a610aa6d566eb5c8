"""SchedulingGates, PrioritySort, DefaultBinder, UnsupportedFeatures, and the registry."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from scheduler.framework.interface import CycleState
from scheduler.framework.profile import ALWAYS_ON
from scheduler.framework.status import SKIP, Code, Rejection
from scheduler.plugins import BUILT_IN, PluginClash, registry
from scheduler.plugins.defaultbinder import DefaultBinder
from scheduler.plugins.prioritysort import PrioritySort
from scheduler.plugins.schedulinggates import SchedulingGates
from scheduler.plugins.unsupported import UnsupportedFeatures
from tests.support.ports import ScriptedWriter
from tests.unit.objects import cluster, handle, info


def test_gates() -> None:
    """Refused while any is there; the text lists them in order."""
    plugin = SchedulingGates(None, handle(cluster()))
    gated = info(schedulingGates=[{"name": "b"}, {"name": "a"}])

    assert plugin.pre_enqueue(info()) is None
    assert plugin.pre_enqueue(gated) == Rejection(
        "SchedulingGates", Code.UNRESOLVABLE, ("waiting for scheduling gates: [b a]",)
    )


def test_sorting() -> None:
    """Higher priority first, then the longer wait."""
    plugin = PrioritySort(None, handle(cluster()))
    waiting = {"low": (info(), 1.0), "old": (info(priority=5), 2.0), "new": (info(priority=5), 3.0)}

    assert sorted(waiting, key=lambda name: plugin.sort_key(*waiting[name])) == ["old", "new", "low"]


async def test_binding() -> None:
    """One write through the port."""
    writer = ScriptedWriter()
    await DefaultBinder(None, handle(cluster(), writer=writer)).bind(CycleState(), info("p"), "n1")

    assert writer.binds == [("default/p", "n1")]


@pytest.mark.parametrize(
    ("spec", "uses"),
    [
        pytest.param({}, [], id="a plain pod"),
        pytest.param({"resourceClaims": [{"name": "gpu"}]}, [], id="a resource claim"),
        pytest.param({"schedulingGroup": {"podGroupName": "g"}}, ["a scheduling group"], id="a group"),
    ],
)
def test_unsupported(spec: dict[str, Any], uses: list[str]) -> None:
    """What cannot be judged is refused for good, in words."""
    answer = UnsupportedFeatures(None, handle(cluster())).pre_filter(CycleState(), info(**spec), 0)
    reasons = tuple(f"pod uses {what}, which kubestow cannot judge yet" for what in uses)

    assert (Rejection(ALWAYS_ON, Code.UNRESOLVABLE, reasons) if uses else SKIP) == answer


class Entry:
    """An entry point, as far as the registry looks."""

    def __init__(self, name: str, made: object = None, dist: str | None = "a-package") -> None:
        self.name = name
        self.value = f"a_module:{name}"
        self.dist = None if dist is None else type("Dist", (), {"name": dist})
        self._made = made

    def load(self) -> object:
        return self._made


def offered(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: entries if group == "kubestow.plugins" else ())


def test_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Built-ins under their own names, and installed plugins."""
    made = object()
    offered(monkeypatch, Entry("Mine", made))
    found = registry()

    assert found["Mine"] is made
    assert set(BUILT_IN) | {"Mine"} == set(found)
    assert all(BUILT_IN[name](None, handle(cluster())).name == name for name in BUILT_IN)
    assert ALWAYS_ON in found


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        pytest.param(
            [Entry("NodeName")], ["NodeName", "scheduler.plugins.nodename", "a-package"], id="a built-in's name"
        ),
        pytest.param(
            [Entry("Mine", dist="one"), Entry("Mine", dist="two")], ["Mine", "one", "two"], id="a name offered twice"
        ),
        pytest.param([Entry("NodeName", dist=None)], ["a_module:NodeName"], id="from nowhere"),
    ],
)
def test_clashes(entries: list[Entry], words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two for one name is an error that names both."""
    offered(monkeypatch, *entries)
    with pytest.raises(PluginClash) as clash:
        registry()

    assert [word for word in words if word not in str(clash.value)] == []
