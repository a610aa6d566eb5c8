"""Equal contents become one object or one number."""

from scheduler.core.caching import Interner, Numbers


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
