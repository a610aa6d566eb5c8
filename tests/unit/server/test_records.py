"""The memory of decisions is bounded both ways."""

from __future__ import annotations

from scheduler.core.decision_record import DecisionRecord, DecisionRecords


def record(pod: str, attempt: int) -> DecisionRecord:
    """An attempt for a pod."""
    return DecisionRecord(pod=pod, uid="u", profile="kubestow", attempt=attempt, started_wall=0.0)


def test_the_last_attempts_of_a_pod_are_kept_in_order() -> None:
    """Older attempts make way."""
    records = DecisionRecords(per_pod=2)
    for attempt in (1, 2, 3):
        records.add(record("a/p", attempt))

    newest = records.latest("a/p")
    assert [r.attempt for r in records.of("a/p")] == [2, 3]
    assert newest is not None
    assert newest.attempt == 3


def test_the_pod_that_was_not_tried_for_longest_is_forgotten() -> None:
    """A pod tried again is young again."""
    records = DecisionRecords(pods=2)
    for pod in ("a/old", "a/mid", "a/old", "a/new"):
        records.add(record(pod, 1))

    assert len(records) == 2
    assert records.latest("a/mid") is None
    assert len(records.of("a/old")) == 2


def test_what_is_shown() -> None:
    """Newest first, and what changed after recording is seen; an unknown pod is None."""
    records = DecisionRecords()
    first, second = record("a/p", 1), record("a/p", 2)
    records.add(first)
    records.add(second)
    second.result = "scheduled"

    shown = records.to_dict("a/p")
    assert shown is not None
    assert [(a["attempt"], a["result"]) for a in shown["attempts"]] == [(2, "scheduled"), (1, "")]
    assert records.to_dict("a/q") is None
