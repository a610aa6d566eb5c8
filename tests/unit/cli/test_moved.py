"""Plugins that import modules under their old names keep working, with a warning."""

import importlib
import sys

import pytest

from scheduler.moved import MOVED, new_name


@pytest.mark.parametrize("old", [*MOVED, "scheduler.testing"])
def test_the_old_name_is_the_new_module(old: str) -> None:
    new = importlib.import_module(new_name(old))
    spec = new.__spec__
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is {new_name(old)} now"):
        found = importlib.import_module(old)

    assert found is new
    assert (new.__name__, new.__spec__) == (new_name(old), spec)


def test_a_module_of_the_package_that_moved() -> None:
    for old in ("scheduler.testing", "scheduler.testing.builders"):
        sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=r"^scheduler\.testing") as warned:
        found = importlib.import_module("scheduler.testing.builders")

    assert found is importlib.import_module("simulator.builders")
    assert [str(each.message) for each in warned] == [
        "scheduler.testing is simulator now",
        "scheduler.testing.builders is simulator.builders now",
    ]


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("scheduler.framework.nothing")
