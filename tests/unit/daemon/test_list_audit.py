"""The hourly comparison of informers with lists: what is a difference, what is none, and what is skipped."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
import structlog

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.audit.self_audit import SelfAudit
from scheduler.core.errors import Gone, UnforeseenErrors
from scheduler.daemon.list_audit import ListAudit
from scheduler.kube.informers import Informers
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.reflector import Reflector
from scheduler.kube.resources import POD, Discovery, ServedKind
from tests.unit.kube.scripted import Answer, LeapingClock, ScriptedTransport, page, pod

LISTED: Final = page(pod("a", version="3"), pod("b", version="5"), version="10")
STORED: Final = {"a": "3", "b": "5"}


class Audited:
    """An informer that has these pods at version 10, and the list audit of it."""

    def __init__(self, stored: dict[str, str], *answers: Answer, version: str = "10") -> None:
        self.transport = ScriptedTransport(answers=list(answers))
        self.clock = LeapingClock()
        self.relists: list[str] = []
        self.reflector: Reflector[Any] = Reflector(
            POD,
            ServedKind("/api/v1/pods", "v1"),
            decoder=ObjectDecoder("Pod", Pod),
            transport=self.transport,
            on_batch=lambda _: None,
            clock=self.clock,
            rng=random.Random(1),
            locate=_nowhere,
        )
        self.reflector.stats.synced = True
        self.reflector._version = version
        self.reflector.relist = self.relists.append  # type: ignore[assignment, method-assign]
        for name, at in stored.items():
            self.put(name, at)
        self.audit = SelfAudit({}, self.clock, UnforeseenErrors(self.clock), lambda: True, lambda: None)
        informers = Informers((POD,), Discovery(self.transport, self.clock, kinds=[POD], server=""), self.clock)
        informers.add(self.reflector)
        self.lists = ListAudit(
            informers,
            self.audit,
            transport=self.transport,
            throttle=Throttle(self.clock, qps=-1),
            clock=self.clock,
            rng=random.Random(1),
        )

    def put(self, name: str, version: str, uid: str = "") -> None:
        deltas: list[Delta[Any]] = []
        obj = pod(name, version=version, uid=uid, nodeName="n1")
        self.reflector.store.set(ObjectDecoder("Pod", Pod).decode(_raw(obj)), deltas)

    def remove(self, name: str) -> None:
        stored = self.reflector.store.get(f"ns/{name}")
        assert stored is not None
        self.reflector.store.remove(stored, [])

    async def found(self) -> list[tuple[str, str, str]]:
        """Compare once; return object and both sides of each difference."""
        with structlog.testing.capture_logs() as log:
            await self.lists.compare(self.reflector)
        return [(line["object"], line["cached"], line["stored"]) for line in log if line["log_level"] == "error"]

    @property
    def page(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.audit.page()["indexes"]["list-pods"]
        return shown


async def _nowhere() -> None:
    return None


def _raw(obj: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(obj))


@pytest.mark.parametrize(
    ("stored", "differences"),
    [
        pytest.param(STORED, [], id="the informer has all objects"),
        pytest.param({"a": "3"}, [("Pod ns/b", "missing", "uid-b 5")], id="the informer lost an object"),
        pytest.param({"a": "3", "b": "4"}, [("Pod ns/b", "uid-b 4", "uid-b 5")], id="the informer missed a change"),
        pytest.param({**STORED, "c": "9"}, [("Pod ns/c", "uid-c 9", "missing")], id="the informer missed a deletion"),
        pytest.param({**STORED, "c": "11"}, [], id="an object was added after the list"),
        pytest.param({"a": "3", "b": "12"}, [], id="an object was changed after the list"),
    ],
)
async def test_what_is_a_difference(stored: dict[str, str], differences: list[tuple[str, str, str]]) -> None:
    audited = Audited(stored, LISTED)

    assert differences == await audited.found()
    assert audited.relists == ["audit"] * bool(differences)
    assert audited.page["differences"] == len(differences)
    assert (audited.page["passes"], audited.page["compared"]) == (1, 2)
    assert audited.audit.counts() == {"list-pods": len(differences)}


async def test_another_object_of_the_same_name_is_a_difference() -> None:
    audited = Audited({"a": "3"}, LISTED)
    audited.put("b", "5", uid="another")
    assert await audited.found() == [("Pod ns/b", "another 5", "uid-b 5")]


async def test_an_object_that_was_removed_after_the_list_is_no_difference() -> None:
    audited = Audited(STORED, LISTED)
    audited.lists._reached = _first(lambda: audited.remove("b"), audited.lists._reached)  # type: ignore[method-assign]
    assert await audited.found() == []


async def test_the_comparison_waits_until_the_watch_has_reached_the_list() -> None:
    audited = Audited({"a": "3"}, LISTED, version="4")
    began = audited.clock.now()

    async def later() -> None:
        while audited.clock.now() < began + 60:
            await asyncio.sleep(0)
        audited.put("b", "5")
        audited.reflector._version = "10"

    watching = asyncio.create_task(later())
    assert await audited.found() == []
    await watching
    assert audited.page["compared"] == 2


@pytest.mark.parametrize(
    ("answers", "version", "why"),
    [
        pytest.param([LISTED], "9", "did not reach 10", id="the watch lags for minutes"),
        pytest.param([LISTED], "", "did not reach 10", id="the informer lists the kind"),
        pytest.param([page(version="x")], "10", "is no number", id="versions are no numbers"),
        pytest.param([Gone("expired", status=410)], "10", "the list failed: expired", id="the list is refused"),
        pytest.param([b"{}"], "10", "the list failed", id="the answer is no list"),
        pytest.param(
            [page(pod("a", version="3"), more="t"), page(pod("b", version="5"), version="12")],
            "10",
            "different versions",
            id="the pages have different versions",
        ),
        pytest.param(
            [page(pod("a", version="3"), pod("x", version="4"), more="t"), Gone("expired", status=410)],
            "10",
            "the list failed: expired",
            id="the second page is refused",
        ),
    ],
)
async def test_what_is_skipped(answers: list[Answer], version: str, why: str) -> None:
    audited = Audited(STORED, *answers, version=version)
    assert await audited.found() == []
    assert why in audited.page["skipped"]
    assert audited.relists == []


async def test_a_relist_during_the_comparison_ends_it() -> None:
    audited = Audited({}, LISTED)
    relists = audited.reflector.stats.relists
    audited.lists._reached = _first(lambda: relists.update(gone=1), audited.lists._reached)  # type: ignore[method-assign]
    assert await audited.found() == []
    assert "has listed the kind" in audited.page["skipped"]


async def test_pages_are_requested_one_by_one_with_metadata_only() -> None:
    audited = Audited(STORED, page(pod("a", version="3"), more="t"), page(pod("b", version="5")))
    assert await audited.found() == []
    queries = [recorded.query for recorded in audited.transport.recorded]
    assert [query.get("continue") for query in queries] == [None, "t"]
    assert all(query["limit"] == "500" and query["fieldSelector"] == POD.field_selector for query in queries)
    assert all("resourceVersion" not in query for query in queries)
    assert all("as=PartialObjectMetadataList" in recorded.content_type for recorded in audited.transport.recorded)


async def test_an_object_without_readable_metadata_hides_no_difference() -> None:
    """Its name is unknown, so the stored objects that the list lacks are not compared."""
    broken = {"metadata": {"name": 7}}
    audited = Audited({"a": "2", "b": "5", "c": "1"}, page(pod("a", version="3"), broken, pod("b", version="5")))
    assert await audited.found() == [("Pod ns/a", "uid-a 2", "uid-a 3")]


async def test_a_kind_that_is_not_synced_is_not_listed() -> None:
    audited = Audited({})
    audited.reflector.stats.synced = False
    assert await audited.found() == []
    assert audited.transport.recorded == []
    assert audited.page["skipped"] == "the informer is not synced"


async def test_all_kinds_are_compared_once_an_hour() -> None:
    audited = Audited(STORED, *[LISTED] * 3)
    task = asyncio.create_task(audited.lists.run())
    began = audited.clock.now()
    while audited.audit.records.get("list-pods") is None or audited.page["passes"] < 3:
        await asyncio.sleep(0)
    task.cancel()
    assert 3 * 3240 <= audited.clock.now() - began <= 4 * 3960


def _first(act: Callable[[], object], then: Callable[..., Any]) -> Callable[..., Any]:
    async def both(*arguments: Any) -> None:
        act()
        await then(*arguments)

    return both
