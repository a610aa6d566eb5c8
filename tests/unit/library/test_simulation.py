"""`kubestow.simulate`: the inputs, the options, and the JSON of the command."""

from __future__ import annotations

import inspect
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

import kubestow
from kubestow.simulation import Options
from tests.unit.library.manifests import NODE, a_pod, as_list

ROOT = Path(__file__).parents[3]


def test_paths_and_manifests_are_read_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "pods.json"
    file.write_text(json.dumps(as_list(a_pod("b"), a_pod("a"))))

    result = kubestow.simulate(a_pod("z"), file, NODE, str(ROOT / "examples/config/../demo.yaml"), validate=False)

    assert [each.pod for each in result.pods[:3]] == ["default/z", "default/b", "default/a"]
    assert result.summary.nodes == 51


def test_the_result_is_that_of_the_command() -> None:
    demo = str(ROOT / "examples/volumes.yaml")
    command = [sys.executable, "-m", "kubestow", "simulate", "-o", "json", "--seed=3", demo]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    result = kubestow.simulate(demo, seed=3)

    assert result.to_json() + "\n" == ran.stdout, ran.stderr
    assert result.ok is (ran.returncode == 0)


async def test_a_caller_in_an_event_loop_gets_the_result() -> None:
    """A notebook runs its cells in an event loop."""
    assert kubestow.simulate(NODE, a_pod("a")).placements == {"default/a": "n"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"version": "1.5"}, "version: '1.5' is unknown; expected one of 1.36, ", id="the version"),
        pytest.param({"config": {"kind": "Nothing"}}, "apiVersion", id="the configuration"),
        pytest.param({"config": "nowhere.yaml"}, "nowhere.yaml: cannot be read", id="the file of the configuration"),
        pytest.param({"expect_pending": ["b"]}, "no pod default/b is to be scheduled", id="expected pending"),
    ],
)
def test_wrong_options_are_named(options: Any, message: str) -> None:
    with pytest.raises((ValueError, kubestow.ConfigErrors, kubestow.InputError), match=message):
        kubestow.simulate(NODE, a_pod("a"), **options)


def test_the_mistakes_of_all_inputs_are_raised_at_once() -> None:
    wrong = a_pod("a") | {"spec": {"nodeSelectr": {}, "containers": [{"name": "c"}]}}

    with pytest.raises(kubestow.InputError) as raised:
        kubestow.simulate(NODE, wrong, "nowhere.yaml")

    lines = str(raised.value).splitlines()
    assert lines[0].startswith('manifest 2 (Pod default/a): unknown field "spec.nodeSelectr"')
    assert lines[-1] == "nowhere.yaml: cannot be read: No such file or directory"


def test_unknown_fields_are_accepted_without_validation() -> None:
    wrong = a_pod("a")
    wrong["spec"]["nodeSelectr"] = {}

    assert kubestow.simulate(NODE, wrong, validate=False).ok


def test_no_input_has_no_pods() -> None:
    result = kubestow.simulate()

    assert not result.ok
    assert result.pods == []


def test_the_configuration_chooses_the_scheduler_name() -> None:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "mine"}],
    }
    other = a_pod("b")
    other["spec"]["schedulerName"] = "kubestow"

    assert kubestow.simulate(NODE, a_pod("a"), other, config=config).placements == {"default/a": "n"}


def test_expected_pending_pods_are_no_problem_and_are_explained() -> None:
    result = kubestow.simulate(NODE, a_pod("large", "9"), expect_pending=["large"], explain=True)

    assert result.ok
    assert [each.pod for each in result.answer.explanations] == ["default/large"]


def test_the_seed_decides_between_equal_nodes() -> None:
    nodes = [NODE | {"metadata": {"name": f"n{number}"}} for number in range(8)]
    found = {kubestow.simulate(*nodes, a_pod("a"), seed=seed).placements["default/a"] for seed in range(8)}

    assert len(found) > 1


def test_logs_are_quiet_unless_the_program_configures_them(monkeypatch: pytest.MonkeyPatch) -> None:
    configured: list[dict[str, Any]] = []
    monkeypatch.setattr(structlog, "configure", lambda **settings: configured.append(settings))
    kubestow.simulate(NODE, a_pod("a"))
    assert configured == []

    monkeypatch.setattr(structlog, "is_configured", lambda: False)
    kubestow.simulate(NODE, a_pod("a"))
    (settings,) = configured
    assert settings["wrapper_class"] is structlog.make_filtering_bound_logger(logging.WARNING)


def test_the_options_are_those_of_the_function() -> None:
    parameters = inspect.signature(kubestow.simulate).parameters.values()

    assert set(Options.__annotations__) == {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
