"""docs/configuration.md, and that its tables have whatever is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli.flags import parser
from scheduler.cli.upstream_flags import REFUSED, WITHOUT_EFFECT
from scheduler.config.args import UPSTREAM, KubestowArgs, default_args
from scheduler.config.errors import ConfigErrors
from scheduler.config.fields import Fields
from scheduler.config.load import parse
from scheduler.config.types import FEATURE_GATES, GATES_ON
from scheduler.core.feature_gates import GATES as STAGES, VERSIONS
from tests.unit.cli.test_upstream_flags import FLAGS, name_of
from tools.configuration_page import reference
from tools.configuration_tables import ARGUMENTS, FIELDS, GATES, ignored

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/configuration.md"
CURVE = [{"utilization": 0, "score": 10}]
AMOUNTS = [{"name": "cpu", "weight": 1}]
EVERYTHING: dict[str, Any] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "p",
            "plugins": {"filter": {"enabled": [{"name": "a"}], "disabled": [{"name": "b"}]}},
            "pluginConfig": [
                {"name": name, "args": args}
                for name, args in {
                    **{name: {} for name in default_args()},
                    "NodeAffinity": {"addedAffinity": {}},
                    "NodeResourcesFit": {
                        "scoringStrategy": {
                            "type": "RequestedToCapacityRatio",
                            "resources": AMOUNTS,
                            "requestedToCapacityRatio": {"shape": CURVE},
                        }
                    },
                    "NodeResourcesBalancedAllocation": {"resources": AMOUNTS},
                    "PodTopologySpread": {
                        "defaultingType": "List",
                        "defaultConstraints": [{"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor"}],
                    },
                    "VolumeBinding": {"shape": CURVE},
                }.items()
            ],
        }
    ],
}
"""Each list has an element, so that the reader reads the fields of elements."""
IN_A_PROFILE = "profiles[].pluginConfig[].args"


@pytest.fixture
def paths_read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the paths that the reader reads, without list indexes, except those of plugins."""
    found: set[str] = set()
    raw = Fields.raw

    def heard(self: Fields, name: str) -> Any:
        found.add(self.at(name))
        return raw(self, name)

    monkeypatch.setattr(Fields, "raw", heard)
    with pytest.raises(ConfigErrors):  # not all of it is right, which stops no reader
        parse(json.dumps(EVERYTHING), source="all", feature_gates=GATES_ON | {"StorageCapacityScoring"})
    return found


def general(path: str) -> str:
    """The path as the page writes it."""
    path = re.sub(r"\[\d+\]", "[]", path)
    return re.sub(r"plugins\.\w+\.(enabled|disabled)\[\]\.", r"plugins.<point>.\1[].", path)


def leaves(paths: set[str]) -> set[str]:
    """Without the mappings and lists that have something below them."""
    return {path for path in paths if not any(other.startswith((f"{path}.", f"{path}[].")) for other in paths)}


def test_the_page_is_what_the_code_says() -> None:
    """Else: python -m tools.configuration_page > docs/configuration.md"""
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_every_field_that_is_read_is_documented(paths_read: set[str]) -> None:
    here = {general(path) for path in paths_read}
    read = leaves({path for path in here if not path.startswith(f"{IN_A_PROFILE}.")})
    empty = {path for path in read if re.fullmatch(r"profiles\[\]\.plugins\.\w+(\.(enabled|disabled))?", path)}

    assert set(FIELDS) - {"profiles"} == read - empty
    assert "extenders" in read


@pytest.mark.parametrize("at", range(len(default_args())), ids=list(default_args()))
def test_every_argument_that_is_read_is_documented(at: int, paths_read: set[str]) -> None:
    """And no other, but for the type of the arguments."""
    root = f"profiles[0].pluginConfig[{at}].args."
    name = EVERYTHING["profiles"][0]["pluginConfig"][at]["name"]
    read = {general(path.removeprefix(root)) for path in paths_read if path.startswith(root)} - {"apiVersion", "kind"}
    section = PAGE.read_text(encoding="utf-8").partition(f"\n### {name}\n")[2].partition("\n#")[0]
    told = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))

    if name == "NodeAffinity":  # what a NodeAffinity is Kubernetes says
        read = {path for path in read if "." not in path}
    assert leaves(told) == leaves(read)
    assert set(ARGUMENTS[name]) <= told


def test_what_has_no_effect_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the reader may say it of, and nothing else."""
    said: set[str] = set()
    monkeypatch.setattr(Fields, "no_effect", lambda fields, name: said.add(fields.at(name)))
    parse(json.dumps({name: EVERYTHING[name] for name in ("apiVersion", "kind")}), source="head")
    monkeypatch.undo()

    assert {path for path in FIELDS if "*No effect.*" in _row(path)} == ignored() == said
    assert "parallelism" in said


def test_every_switch_has_upstreams_value() -> None:
    section = _text().partition("\n### Kubestow\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| `?(.*?)`? \| `?(.*?)`? \| .", section, re.MULTILINE)
    args = KubestowArgs()

    assert len(rows) == len(UPSTREAM) + 2
    assert len({field for field, _, _ in rows}) == len(rows)
    assert sum(usual != upstream for _, usual, upstream in rows) == 1 + sum(
        getattr(args, name) != upstream for name, upstream in UPSTREAM.items()
    )


def test_every_gate_is_documented() -> None:
    assert set(GATES) == set(FEATURE_GATES)
    for name, stages in STAGES.items():
        told = " | ".join(
            f"{'on' if stages[version].is_on else 'off'}{', locked' if stages[version].is_locked else ''}"
            for version in VERSIONS
        )
        assert f"| `{name}` | {told} | " in _text()
    assert _row("DRADeviceTaintRules").endswith(" Needs `DRADeviceTaints`. |")


def test_every_flag_of_kube_scheduler_is_in_the_table() -> None:
    section = _text().partition("\n### kube-scheduler's flags\n")[2].partition("\n### ")[0]

    assert sorted(re.findall(r"`(--[^`]+)`", section.partition("| --- |")[2])) == sorted(map(name_of, FLAGS))


def test_every_flag_says_what_it_is() -> None:
    run = _text().partition("\n### kubestow run\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (`-.+?) \| (.*?) \| (.*) \|$", run, re.MULTILINE)
    flags = [flag for names, _, _ in rows for flag in re.findall(r"`([^`]+)`", names)]
    flags += [f"--{flag.name}" for flag in (*WITHOUT_EFFECT, *REFUSED)]  # in a separate table
    command = next(action for action in parser()._actions if action.choices).choices["run"]  # type: ignore[index]

    assert sorted(flags) == sorted(
        option for action in command._actions if action.dest != "help" for option in action.option_strings
    )
    assert [names for names, _, text in rows if not text] == []


def _text() -> str:
    return PAGE.read_text(encoding="utf-8")


def _row(field: str) -> str:
    (row,) = (line for line in _text().splitlines() if line.startswith(f"| `{field}` | "))
    return row
