"""A log of changes whose readers store their positions."""

from __future__ import annotations

from scheduler.core.changes import ChangeLog


def test_a_restart_makes_every_reader_begin_again() -> None:
    log: ChangeLog[int] = ChangeLog()
    log.note(1)
    behind, current = 0, log.position
    log.restart()
    assert log.changed_since(behind) is None
    assert log.changed_since(current) is None
    assert log.changed_since(log.position) == []
    log.note(2)
    assert log.changed_since(log.position - 1) == [2]
