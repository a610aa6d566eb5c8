"""One declaration of a field is enough to read it, to refuse it with its path, and to write it."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.config.dump import written
from scheduler.config.errors import Findings
from scheduler.config.fields import Fields, read
from scheduler.config.schema import option, percentage, percentages


@dataclass(frozen=True, slots=True)
class Sample:
    share_of_csi_nodes: int | None = percentage()
    pause_s: float = 1.5
    factor: float = 2.0
    is_on: bool = option(False, absent=True)
    label: str = option("usual", zero_is_default=True)
    key: str = option("", required=True, valid="label key")
    groups: tuple[str, ...] = option((), valid="resource group")
    count: int = option(3, bounds=(1, 9), why="not in valid range [1, 9]")
    data: bytes = b""
    wait_s: float = option(
        3.0, least=1.0, why="must be at least 1 second", gates=frozenset({"Gate"}), gates_off="Gate is disabled"
    )
    inner: int = option(7, in_files=False)
    own: str = field(default="", compare=False)


def sample(given: Any, *gates: str) -> tuple[Sample, list[str]]:
    findings = Findings(feature_gates=frozenset(gates))
    with Fields(given, "at", findings) as fields:
        found = read(Sample, fields, own=lambda: "own", inner=lambda: 7)
    return found, [str(error) for error in findings.errors]


def test_what_is_read_is_written() -> None:
    given = {
        "shareOfCSINodes": 5,
        "pause": "2s",
        "factor": 1.0,
        "isOn": False,
        "label": "x",
        "key": "a/b",
        "groups": ["d"],
        "count": 9,
        "data": "Y2E=",
    }
    found, said = sample(given)

    assert said == []
    assert found == Sample(5, 2.0, 1.0, False, "x", "a/b", ("d",), 9, b"ca")
    assert written(found) == given | {"own": "own"}
    assert percentages(found) == {"shareOfCSINodes": 5}


def test_what_is_absent() -> None:
    found, said = sample({"key": "k", "label": ""})

    assert (found, said) == (Sample(is_on=True, key="k"), [])
    assert percentages(found) == {}


@pytest.mark.parametrize(("given", "said"), [
    pytest.param({"count": 0}, ["at.count: Invalid value: 0: not in valid range [1, 9]"], id="out of range"),
    pytest.param({"count": "3"}, ['at.count: must be an integer, got "3"'], id="another type"),
    pytest.param({"shareOfCSINodes": 101}, ["at.shareOfCSINodes: Invalid value: 101: not in valid range [0-100]"],
        id="a percentage"),
    pytest.param({"pause": 1}, ["at.pause: must be a string, got 1"], id="a duration"),
    pytest.param({"groups": [1]}, ["at.groups[0]: must be a string, got 1"], id="an item"),
    pytest.param({"counts": 1}, ['at.counts: unknown field, did you mean "count"?'], id="a similar name"),
    pytest.param({"inner": 1}, ["at.inner: unknown field"], id="a field that no file has"),
    pytest.param({"key": ""}, ["at.key: Required value"], id="required"),
    pytest.param({"count": 0, "isOn": 1}, ["at.isOn: must be true or false, got 1",
        "at.count: Invalid value: 0: not in valid range [1, 9]"], id="in the order of the declarations"),
])  # fmt: skip
def test_what_is_refused(given: dict[str, Any], said: list[str]) -> None:
    assert sample({"key": "k"} | given)[1] == said


def test_a_field_whose_gate_is_off() -> None:
    """It is refused and not written."""
    found, said = sample({"key": "k", "wait": "0s"})

    assert said == ["at.wait: Forbidden: Gate is disabled"]
    assert "wait" not in written(found)


def test_a_field_whose_gate_is_on() -> None:
    assert sample({"key": "k", "wait": "0s"}, "Gate")[1] == ['at.wait: Invalid value: "0s": must be at least 1 second']
    found, said = sample({"key": "k", "wait": "4s"}, "Gate")
    assert (said, written(found, frozenset({"Gate"}))["wait"]) == ([], "4s")
