"""A reader of a change log gets every entry once, or learns that some are dropped."""

import pytest
from hypothesis import given, strategies as st

from scheduler.core.changes import ChangeLog


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
