"""Change logs and subscriptions."""

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from scheduler.core.changes import ChangeLog, Watchers


def test_a_callback_hears_of_its_topics_only() -> None:
    watchers, heard = Watchers(), list[str]()
    end = watchers.subscribe(["a", "b"], lambda: heard.append("first"))
    watchers.subscribe(iter(["b"]), lambda: heard.append("second"))
    for topic in ("a", "b", "c"):
        watchers.notify(topic)
    end()
    end()
    for topic in ("a", "b"):
        watchers.notify(topic)

    assert heard == ["first", "first", "second", "second"]
    assert len(watchers) == 1


def test_a_callback_that_ends_another_does_not_stop_the_news() -> None:
    watchers, heard, ends = Watchers(), list[str](), list[Callable[[], None]]()

    def first() -> None:
        heard.append("first")
        for end in ends:
            end()

    ends.append(watchers.subscribe("a", first))
    ends.append(watchers.subscribe("a", lambda: heard.append("second")))
    watchers.notify("a")
    watchers.notify("a")

    assert heard == ["first", "second"]
    assert not len(watchers)


@given(sizes=st.lists(st.integers(0, 5)), log_max=st.integers(1, 8))
def test_a_reader_gets_the_entries_or_none(sizes: list[int], log_max: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ChangeLog, "log_max", log_max)
        log: ChangeLog[int] = ChangeLog()
        noted: list[int] = []
        positions = [log.position]
        for size in sizes:
            for _ in range(size):
                before = log.position
                was_dropped = log.note(len(noted))
                noted.append(len(noted))
                assert log.position == before + 1
                assert not was_dropped or not log.reaches(0)
            positions.append(log.position)

        for position in positions:
            expected = noted[position:] if log.reaches(position) else None
            assert expected == log.changed_since(position)
        assert log.reaches(max(0, log.position - log_max // 2))


def test_dropping_all_keeps_the_position() -> None:
    log: ChangeLog[str] = ChangeLog()
    log.note("a")
    position = log.position
    log.drop_all()

    assert position == log.position
    assert log.changed_since(position) == []
    assert log.changed_since(position - 1) is None
