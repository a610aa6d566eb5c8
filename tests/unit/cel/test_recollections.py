"""What is remembered of long lists."""

import pytest

from scheduler.cel.recollections import LONG, Recollections, recollected


def test_long_lists_are_asked_about_once():
    """By identity: another list is another question, even if it is equal."""
    asked = []

    @recollected
    def first(values):
        asked.append(values)
        return values[0]

    values, other = [1] * LONG, [1] * LONG
    assert [1, 1, 1] == [first(values), first(values), first(other)]
    assert [values, other] == asked
    assert asked[0] is values
    assert asked[1] is other


def test_short_lists_are_asked_about_each_time():
    """To remember them would take longer."""
    asked = []

    @recollected
    def first(values):
        asked.append(values)
        return values[0]

    values = [1]
    assert [1, 1] == [first(values), first(values)]
    assert 2 == len(asked)


def test_an_error_is_not_an_answer():
    """It is raised again."""
    failing = recollected(lambda values: values[LONG])
    values = [1] * LONG
    for _ in range(2):
        with pytest.raises(IndexError):
            failing(values)


def test_what_is_kept_is_bounded():
    """The oldest answers go, and whoever asks again is answered again."""
    known: Recollections[int] = Recollections()
    lists = [[number] * 2**17 for number in range(20)]
    for _ in range(2):
        assert list(range(20)) == [known.of(each, (), iter(each).__next__) for each in lists]
    assert sum(map(len, known.kept())) <= 2**19
