"""A bounded cache agrees with a list that is kept in the order of use."""

from functools import partial

from hypothesis import given, strategies as st

from scheduler.core.caching import BoundedCache

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
