"""Interners, bounded caches, texts that are logged once, change logs and subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, strategies as st

from scheduler.core.caching import BoundedCache, Interner, LogOnce, Numbers
from scheduler.core.changes import ChangeLog, Watchers


def test_equal_contents_share_the_first_object() -> None:
    interner: Interner[str, list[str]] = Interner(8)
    first = ["a"]

    assert interner.share("a", first) is first
    assert interner.share("a", ["a"]) is first
    assert interner.get("b") is None


def test_a_full_interner_begins_again() -> None:
    interner: Interner[int, int] = Interner(3)
    for number in range(10):
        assert interner.share(number, number) == number
        assert len(interner) <= 3

    assert list(interner) == [9]


def test_contents_are_numbered_in_the_order_of_arrival() -> None:
    numbers: Numbers[str] = Numbers()

    assert [numbers.of(content) for content in ("x", "y", "x", "z")] == [0, 1, 0, 2]
    assert (numbers.contents, len(numbers)) == (["x", "y", "z"], 3)


steps = st.lists(st.tuples(st.sampled_from(["get", "put", "make", "pop", "in"]), st.sampled_from("abcd")))


@given(history=steps, size=st.integers(0, 3))
def test_the_least_recently_used_entry_goes_first(history: list[tuple[str, str]], size: int) -> None:
    cache: BoundedCache[str, int] = BoundedCache(size)
    entries: dict[str, int] = {}
    for number, (what, key) in enumerate(history):
        known = entries.get(key)
        match what:
            case "get":
                assert known == cache.get(key)
                if known is not None:
                    entries[key] = entries.pop(key)
            case "make":
                assert cache.get_or_make(key, partial(int, number)) == (number if known is None else known)
                entries.pop(key, None)
                entries[key] = number if known is None else known
            case "put":
                assert cache.put(key, number) == number
                entries.pop(key, None)
                entries[key] = number
            case "pop":
                assert entries.pop(key, None) == cache.pop(key)
            case "in":
                assert (key in cache) is (key in entries)
        while len(entries) > size:
            del entries[next(iter(entries))]
        assert list(entries.items()) == list(zip(cache, cache.values()))
        assert len(entries) == len(cache)

    cache.clear()
    assert not len(cache)


def test_a_text_is_new_once_per_subject() -> None:
    said = LogOnce()
    asked = [("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("a", "1")]

    assert [said.is_new(*each) for each in asked] == [True, False, True, True, True]


def test_a_subject_is_new_once_without_a_text() -> None:
    said = LogOnce()

    assert [said.is_new("a"), said.is_new("a")] == [True, False]


def test_a_forgotten_subject_is_new() -> None:
    said = LogOnce()
    said.is_new("a", "1")
    said.forget("a")
    said.forget("b")

    assert said.is_new("a", "1")


def test_the_number_of_subjects_is_limited() -> None:
    said = LogOnce(size=2)

    assert [said.is_new(each) for each in ("a", "b", "c", "a", "c")] == [True, True, True, True, False]


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
