"""An unexpected value in any field of any watched kind affects only the object itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.api.decode import Broken, Delta
from scheduler.core.errors import LIMIT_BYTES
from scheduler.kube.resources import KINDS, POD, KindSpec
from scheduler.kube.store import Store
from tests.hostile import SMALL, fields, plain
from tests.unit.harness import SchedulerHarness

READ = [spec for spec in KINDS.values() if spec.typ is not None]
PODS = {
    "a pending pod of ours": {"schedulerName": "kubestow", "nodeName": "", "nominatedNodeName": ""},
    "a bound pod of another scheduler": {"schedulerName": "other", "nodeName": "n1", "nominatedNodeName": ""},
    "a nominated pod of another scheduler": {"schedulerName": "other", "nodeName": "", "nominatedNodeName": "n1"},
}


def _rows() -> Iterator[Any]:
    for spec in READ:
        shapes = PODS if spec is POD else {spec.name: {}}
        yield from (pytest.param(spec, fixed, id=what) for what, fixed in shapes.items())


class Watched:
    """A scheduler that gets one object of a kind after the other, as from a reflector."""

    def __init__(self, spec: KindSpec) -> None:
        self.sched = SchedulerHarness()
        self._spec = spec
        self._decoder = spec.decoder()
        self._store: Store[Any] = Store()
        self._versions = 1

    async def show(self, raw: bytes) -> Any:
        """Return the decoded object, after the scheduler has applied it."""
        self._versions += 1
        read = self._decoder.decode(raw.replace(b'"resourceVersion":"1"', b'"resourceVersion":"%d"' % self._versions))
        deltas: list[Delta[Any]] = []
        self._store.set(read, deltas)
        await self._apply(deltas)
        return read

    async def remove(self, read: Any) -> None:
        deltas: list[Delta[Any]] = []
        self._store.remove(read, deltas)
        await self._apply(deltas)

    async def _apply(self, deltas: list[Delta[Any]]) -> None:
        self.sched.parts.inbox.put(lambda: self.sched.parts.event_handlers.apply(self._spec.name, deltas))
        await self.sched.settle()


@pytest.mark.parametrize(("spec", "fixed"), [*_rows()])
async def test_no_value_of_any_field_affects_other_objects(spec: KindSpec, fixed: dict[str, str]) -> None:
    watched = Watched(spec)
    sched = watched.sched
    sched.node("n1")
    sched.node("n2")
    await watched.show(plain(spec, name="h", **fixed))
    shown = 0
    for field in fields(spec, name="h", **fixed):
        for what, value in SMALL.items():
            read = await watched.show(field.with_value(value))
            shown += 1
            assert ("h", "uid-h") == (read.metadata.name, read.metadata.uid), (field.path, what)
            if isinstance(read, Broken):
                assert read.why, (field.path, what)
                assert LIMIT_BYTES >= len(read.why.encode()), (field.path, what)
        assert not any(sched.parts.errors.counts.values()), (field.path, sched.parts.errors.recent())
    await watched.remove(read)
    sched.pod("fine", cpu="1")
    await sched.settle()

    assert not any(sched.parts.errors.counts.values()), sched.parts.errors.recent()
    assert "default/fine" in dict(sched.writer.binds)
    assert shown > len(SMALL)
