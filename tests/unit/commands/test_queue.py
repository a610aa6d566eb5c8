"""What `kubestow queue` makes of /debug/queue: the order of the attempts, limits, and hostile pages."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from kubestow.commands.queue import queue_of, queue_text
from scheduler.cli.leader import NoAnswer
from scheduler.core.cluster_events import NODE_ADD
from scheduler.framework.interface import Hint
from tests.examples import examples
from tests.unit.queueing.harness import QueueHarness, hint, pod

WALL_S = 1_800_000_000.0


def entry(name: str, place: str, **fields: Any) -> dict[str, Any]:
    return {"key": f"demo/{name}", "place": place, "attempts": 1, "deadline": None, **fields}


def page(*entries: dict[str, Any]) -> str:
    return json.dumps({"counts": {}, "entries": entries})


def names(text: str) -> list[str]:
    found = queue_of(text, WALL_S, namespace="", limit=100)
    return [each.pod.partition("/")[2] for each in found.pods]


def test_pods_are_in_the_order_of_their_attempts() -> None:
    """Priority comes before time in one place, and the time of the next attempt before both in back-off."""
    entries = [
        entry("gated", "gated"),
        entry("flushed-late", "unschedulable", retry_s=200.0),
        entry("flushed", "unschedulable", retry_s=100.0),
        entry("backoff-low", "backoff", retry_s=3.0, order=[0.0, -1.0, 5.0]),
        entry("error", "error backoff", retry_s=2.0),
        entry("backoff-high", "backoff", retry_s=3.0, order=[0.0, -9.0, 6.0]),
        entry("costly", "active", order=[1.0, -9.0, 1.0]),
        entry("second", "active", order=[0.0, -5.0, 2.0]),
        entry("first", "active", order=[0.0, -5.0, 1.0]),
        entry("now", "in flight"),
        entry("none", "nowhere"),
        entry("newer", "a place of a newer scheduler"),
    ]

    assert names(page(*entries)) == [
        "now", "first", "second", "costly", "backoff-high", "backoff-low", "error", "flushed", "flushed-late", "gated",
        "newer",
    ]  # fmt: skip


def test_pods_in_a_place_of_a_newer_scheduler_are_counted() -> None:
    found = queue_of(page(entry("a", "active"), entry("b", "held")), WALL_S, namespace="", limit=1)

    assert (found.total, found.counts["active"], found.counts["held"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("leads", "first"),
    [
        pytest.param({"leads": True}, "1 active", id="the leader"),
        pytest.param({}, "1 active", id="an older scheduler"),
        pytest.param(
            {"leads": False},
            "this replica does not lead and tries no pod: read the queue of the leader",
            id="a standby",
        ),
    ],
)
def test_a_standby_says_that_it_tries_no_pod(leads: dict[str, bool], first: str) -> None:
    found = queue_of(json.dumps({**leads, "entries": [entry("a", "active")]}), WALL_S, namespace="", limit=1)

    assert queue_text(found).splitlines()[0] == first


@settings(max_examples=examples(100), deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(("add", "reject", "advance", "event")), st.integers(-2, 2)), max_size=40)
)
def test_the_order_is_that_of_the_scheduler(steps: list[tuple[str, int]]) -> None:
    """Of pods that are ready or back off after a rejection, the scheduler takes the next one as the command says."""
    harness = QueueHarness({"Fit": (hint(NODE_ADD, Hint.QUEUE),)})
    for at, (step, number) in enumerate(steps):
        if step == "add":
            harness.add(pod(f"p{at}", priority=number))
        elif step == "reject" and (queued := harness.queue.pop()) is not None:
            harness.fail(queued, "Fit")
        elif step == "event":
            harness.queue.move_all(NODE_ADD, None, None)
        else:
            harness.advance(number % 3 + 0.4)
    text = msgspec.json.encode({"entries": list(harness.queue.entries())}).decode()
    places = harness.places()
    expected = [name for name in names(text) if places[name] in {"active", "backoff"}]

    assert harness.names_popped() == expected


def test_limit_and_namespace() -> None:
    entries = [entry(f"p{at}", "active", order=[0.0, float(at)]) for at in range(9)]
    entries.append({**entry("x", "gated"), "key": "demo2/x"})

    found = queue_of(page(*entries), WALL_S, namespace="demo", limit=2)
    assert ([each.pod for each in found.pods], found.total) == (["demo/p0", "demo/p1"], 9)
    assert queue_text(found).splitlines()[-1] == "… and 7 more pods; --limit N prints more"
    assert found.counts["gated"] == 1, "the counts are those of the whole queue"


def test_the_text() -> None:
    waiting = entry(
        "web",
        "unschedulable",
        plugins=["NodeResourcesFit", "TaintToleration"],
        retry_s=61.2,
        created="2027-01-15T07:59:00Z",
        nominated_to="n1",
    )
    assert queue_text(queue_of(page(waiting), WALL_S, namespace="", limit=9)).splitlines() == [
        "1 unschedulable",
        "",
        "POD       PLACE          ATTEMPTS  AGE  RETRY    REJECTED BY                       NOMINATED TO",
        "demo/web  unschedulable  1         1m   in 1m1s  NodeResourcesFit,TaintToleration  n1",
    ]
    assert queue_text(queue_of(page(), WALL_S, namespace="", limit=9)) == "no pod waits\n"


def test_a_page_of_an_older_daemon() -> None:
    """It has neither times nor the order."""
    found = queue_of(page(entry("b", "active"), entry("a", "active")), WALL_S, namespace="", limit=9)

    assert [(each.pod, each.age_s, each.retry_s) for each in found.pods] == [
        ("demo/a", None, None),
        ("demo/b", None, None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("<html>", id="a page of another server"),
        pytest.param("[]", id="a list"),
        pytest.param("{}", id="no entries"),
        pytest.param('{"entries": [{"key": 1, "place": "active"}]}', id="a key that is no text"),
        pytest.param('{"entries": [{"key": "a/b", "place": "active", "order": "x"}]}', id="an order that is none"),
        pytest.param('{"entries": ' + "[" * 100_000, id="nested deeply"),
        pytest.param("\ud800", id="half a character"),
    ],
)
def test_a_page_that_is_none(text: str) -> None:
    with pytest.raises(NoAnswer, match=r"^the answer to GET /debug/queue cannot be read: "):
        names(text)


def test_times_and_names_that_are_none() -> None:
    rows = [
        entry(f"\x1b{at}", "backoff", created=text, retry_s=-1e300)
        for at, text in enumerate(("x", "9999-99-99", "0001-01-01"))
    ]
    found = queue_of(page(*rows), WALL_S, namespace="", limit=9)

    assert "\x1b" not in queue_text(found)


def test_a_large_queue_is_cut() -> None:
    found = queue_of(page(*(entry(f"p{at}", "active") for at in range(20_000))), WALL_S, namespace="", limit=50)

    assert (len(found.pods), found.total) == (50, 20_000)
