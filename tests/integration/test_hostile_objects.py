"""Hostile objects of every watched kind, through each way by which a daemon comes to see them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest

from scheduler.kube.resources import POD, WATCHED_NOW, KindSpec
from simulator.apiserver import ApiServer
from tests.hostile import LARGE, SMALL, fields
from tests.integration.daemon import rig_on, until
from tests.integration.test_unforeseen import errors

BOUND = {"schedulerName": "other", "nodeName": "n1", "nominatedNodeName": ""}


def hostile(spec: KindSpec) -> Iterator[tuple[str, bytes]]:
    """Yield each value once, in one field after the other, and each list and map with the largest number of elements that a server stores."""
    fixed = BOUND if spec is POD else {}
    made = list(fields(spec, name="NAME", **fixed))
    texts = [(field, value) for field, value in zip(cycle(made), [*SMALL.values(), *LARGE.values()], strict=False)]
    texts += [(field, field.many()) for field in made if field.item][:3]
    texts += [(field, LARGE["deep objects"]) for field in made if field.path in {".metadata.labels", ".spec"}]
    for number, (field, value) in enumerate(texts):
        name = f"h-{number}"
        raw = field.with_value(value).replace(b'"NAME"', b'"%b"' % name.encode())
        yield name, raw.replace(b'"uid-NAME"', b'"uid-%b"' % name.encode())
    deep = b'{"metadata":{"managedFields":[%b],"name":"h-skipped","namespace":"%b","uid":"u","resourceVersion":"1"}}'
    yield "h-skipped", deep % (LARGE["deep objects"], b"default" if spec.namespaced else b"")


def fill(server: ApiServer) -> int:
    stored = 0
    for spec in WATCHED_NOW:
        for name, raw in hostile(spec):
            server.store(spec.plural, raw, name=name, namespace="default" if spec.namespaced else "")
            stored += 1
    return stored


def is_bound(server: ApiServer, name: str) -> bool:
    return bool(server.get("pods", name)["spec"].get("nodeName"))


@pytest.mark.parametrize(
    ("is_watched", "has_watch_list"),
    [
        pytest.param(False, False, id="in a list"),
        pytest.param(False, True, id="in the initial events of a watch"),
        pytest.param(True, True, id="in a watch"),
    ],
)
async def test_hostile_objects_cost_no_other_object_anything(is_watched: bool, has_watch_list: bool) -> None:
    server = ApiServer(watch_list=has_watch_list)
    if not is_watched:
        assert fill(server) > 500
    async with server, rig_on(server) as cluster:
        cluster.node("fine")
        if is_watched:
            await until(cluster.daemon.idle, lambda: "never synced")
            fill(server)
        cluster.pod("p", cpu="1")
        await until(lambda: is_bound(server, "p"), lambda: "p was never bound")
        mirrors = cluster.daemon.mirrors.reflectors
        await until(
            lambda: all(
                any(seen.key.endswith("h-skipped") for seen in mirrors[spec.name].store) for spec in WATCHED_NOW
            ),
            lambda: "not all objects were seen",
        )
        cluster.pod("late", cpu="1")
        await until(lambda: is_bound(server, "late"), lambda: "late was never bound")
        _, shown = await cluster.get("/debug/cache")

        assert {} == errors(cluster)
        assert cluster.daemon.failure is None
        assert all(mirrors[spec.name].stats.decode_errors for spec in WATCHED_NOW)
        assert '"unreadable"' in shown
