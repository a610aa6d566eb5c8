"""Plugins that import modules under their old names keep working, with a warning."""

import importlib
import sys

import pytest

from scheduler.moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_the_old_name_is_the_new_module(old: str) -> None:
    new = importlib.import_module(MOVED[old])
    spec = new.__spec__
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is {MOVED[old]} now"):
        found = importlib.import_module(old)

    assert found is new
    assert (new.__name__, new.__spec__) == (MOVED[old], spec)


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("scheduler.framework.nothing")
