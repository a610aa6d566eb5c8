"""Caches: interners, bounded caches and texts that are logged once."""

from functools import partial

from hypothesis import given, strategies as st

from scheduler.core.caching import BoundedCache, Interner, LogOnce, Numbers


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
