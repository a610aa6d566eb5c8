"""`kubestow.simulate`: the inputs, the options, and the JSON of the command."""

from __future__ import annotations

import inspect
import json
import logging
import math
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
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
    ran = command("--seed=3", demo)

    result = kubestow.simulate(demo, seed=3)

    assert result.to_json() + "\n" == ran.stdout, ran.stderr
    assert result.ok is (ran.returncode == 0)


def command(*flags: str) -> subprocess.CompletedProcess[str]:
    """Run `kubestow simulate` with the output of JSON."""
    words = [sys.executable, "-m", "kubestow", "simulate", "-o", "json", *flags]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_plan_is_that_of_the_command() -> None:
    volumes = str(ROOT / "examples/volumes.yaml")
    flags = ("--add-node-like=store-1=2", "--drain=store-2", "--cordon=store-3", "--scale=statefulset/database=4")

    result = kubestow.simulate(
        volumes, add_nodes_like={"store-1": 2}, drain=["store-2"], cordon=["store-3"], scale={"StatefulSet/database": 4}
    )

    assert result.plan is not None
    assert len(result.plan.changes) == len(flags)
    assert result.to_json() + "\n" == command(*flags, volumes).stdout


def test_the_needed_nodes_are_those_of_the_command() -> None:
    devices = str(ROOT / "examples/devices.yaml")

    found = kubestow.nodes_needed("gpu-1", devices, cordon=["gpu-2"])

    ran = command("--nodes-needed=gpu-1", "--cordon=gpu-2", devices)
    assert msgspec.json.decode(ran.stdout, type=kubestow.NodesNeededAnswer) == found
    assert kubestow.Cluster(devices).nodes_needed("gpu-1", cordon=["gpu-2"]) == found


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda: kubestow.nodes_needed("m", NODE), "nodes_needed: the input has no node m", id="model"),
        pytest.param(lambda: kubestow.simulate(NODE, drain=["m"]), "--drain: the input has no node m", id="drained"),
        pytest.param(
            lambda: kubestow.simulate(NODE, scale={"Job/j": 2}), "--scale: the input has no Job j", id="workload"
        ),
        pytest.param(
            lambda: kubestow.simulate(NODE, scale={"Pod/p": 2}), "'Pod/p' with 2 pods: expected KIND/NAME", id="kind"
        ),
        pytest.param(lambda: kubestow.simulate(NODE, scale={"Job": 2}), "'Job' with 2 pods: expected", id="no name"),
        pytest.param(lambda: kubestow.simulate(NODE, scale={"Job/j": -1}), "'Job/j' with -1 pods", id="negative"),
    ],
)
def test_wrong_changes_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, kubestow.InputError), match=message):
        call()


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
        pytest.param({"expect_pending": "default/*"}, "^expect_pending: must be a list of texts, got str", id="a glob"),
        pytest.param({"drain": "n"}, "^drain: must be a list of texts, got str 'n'", id="the name of a drained node"),
        pytest.param({"drain": [3]}, "^drain: must be a text, got int 3", id="the number of a node"),
        pytest.param({"cordon": None}, "^cordon: must be a list of texts, got NoneType", id="no list of nodes"),
        pytest.param({"seed": "a"}, "^seed: must be a whole number, got str 'a'", id="a text as seed"),
        pytest.param({"seed": None}, "^seed: must be a whole number, got NoneType", id="a seed that differs"),
        pytest.param({"seed": -1}, "^seed: must be a whole number from 0 on, got -1", id="a negative seed"),
        pytest.param({"explain": "no"}, "^explain: must be True or False, got str 'no'", id="a text as a switch"),
        pytest.param({"validate": 0}, "^validate: must be True or False, got int 0", id="a number as a switch"),
        pytest.param({"timeout_s": "1"}, "^timeout_s: must be a number of seconds, got str", id="a text as time"),
        pytest.param({"timeout_s": 0}, "^timeout_s: must be more than 0 seconds, got 0", id="no time"),
        pytest.param({"timeout_s": math.nan}, "^timeout_s: must be more than 0 seconds, got nan", id="not a number"),
        pytest.param(
            {"add_nodes_like": ["n"]}, "^add_nodes_like: must be a dictionary, got list", id="a list of models"
        ),
        pytest.param(
            {"add_nodes_like": {"n": 10**12}},
            r"^add_nodes_like\['n'\]: must be a whole number from 0 to 1000, got 1000000000000",
            id="more nodes than the memory has place for",
        ),
        pytest.param({"add_nodes_like": {"n": -1}}, "a whole number from 0 to 1000, got -1", id="less than no node"),
        pytest.param({"add_nodes_like": {"n": 1.5}}, "must be a whole number, got float 1.5", id="half a node"),
        pytest.param({"scale": ["Job/j"]}, "^scale: must be a dictionary, got list", id="a list of workloads"),
        pytest.param({"scale": {"Job/j": "2"}}, r"^scale\['Job/j'\]: must be a whole number, got str '2'", id="a size"),
        pytest.param(
            {"config": 3}, "^config: must be a path or a dictionary, got int 3", id="a number as configuration"
        ),
        pytest.param({"config": {"kind": object}}, "^config: kind: JSON has no value for type", id="a class in it"),
        pytest.param({"config": ""}, "^config: must not be an empty path", id="an empty path"),
    ],
)
def test_wrong_options_are_named(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError, kubestow.ConfigErrors, kubestow.InputError), match=message):
        kubestow.simulate(NODE, a_pod("a"), **options)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(3, "^input 2: must be a path or a dictionary, got int 3", id="a number"),
        pytest.param([a_pod("a")], "^input 2: must be a path or a dictionary, got list", id="a list"),
        pytest.param(b"dir", "^input 2: must be a path or a dictionary, got bytes", id="bytes"),
        pytest.param("", "^input 2: must not be an empty path", id="the current directory by mistake"),
        pytest.param({1: 2}, "^manifest 2: the key 1 must be a text", id="a key that is no text"),
        pytest.param(
            {"metadata": {"labels": {"a": b"x"}}},
            "^manifest 2: metadata.labels.a: JSON has no value for bytes b'x'",
            id="bytes in a manifest",
        ),
        pytest.param(
            {"spec": {"containers": [{"name": "\ud800"}]}},
            r"^manifest 2: spec.containers\[0\].name: JSON has no value for str",
            id="half of a surrogate pair",
        ),
        pytest.param({"spec": {"priority": math.nan}}, "spec.priority: JSON has no value for float nan", id="NaN"),
    ],
)
def test_wrong_inputs_are_named(value: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError, kubestow.InputError), match=message):
        kubestow.simulate(NODE, value)


def test_manifests_of_programs_and_of_other_parsers_are_read() -> None:
    """PyYAML makes dates of times, and a program may build read-only values."""
    pod = a_pod("a")
    pod["metadata"]["creationTimestamp"] = datetime(2026, 1, 1, tzinfo=UTC)
    pod["metadata"]["annotations"] = {"day": date(2026, 1, 1)}
    pod["spec"]["containers"] = tuple(MappingProxyType(each) for each in pod["spec"]["containers"])

    assert kubestow.simulate(NODE, MappingProxyType(pod)).ok


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: kubestow.nodes_needed(3, NODE), id="like"),  # type: ignore[arg-type]
        pytest.param(lambda: kubestow.replay(3), id="recording"),  # type: ignore[arg-type]
        pytest.param(lambda: kubestow.replay("f", seed="x"), id="seed"),  # type: ignore[arg-type]
        pytest.param(lambda: kubestow.replay("f", scheduler_names="abc"), id="scheduler_names"),
        pytest.param(lambda: kubestow.Cluster().with_yaml(b"a: b"), id="text"),  # type: ignore[arg-type]
        pytest.param(lambda: kubestow.Cluster().with_node(3, {}), id="name"),  # type: ignore[arg-type]
        pytest.param(lambda: kubestow.Cluster().with_node("n", ["cpu"]), id="allocatable"),  # type: ignore[arg-type]
    ],
)
def test_other_calls_name_the_wrong_argument(call: Callable[[], object], request: pytest.FixtureRequest) -> None:
    with pytest.raises(TypeError, match=f"^{request.node.callspec.id}: must be "):
        call()


def test_an_ended_time_is_a_problem_and_no_answer_to_a_question() -> None:
    """Pods that were not tried do not show that more nodes do not help, nor that they are pending as expected."""
    result = kubestow.simulate(NODE, a_pod("a"), timeout_s=1e-9, expect_pending=["a"])

    assert (result.ok, result.answer.settled) == (False, False)
    assert result.problems == ["the time ran out before the scheduler had come to rest (--timeout)"]
    with pytest.raises(kubestow.InputError, match=r"^with 0 more nodes like n: the time ran out .* \(--timeout\)"):
        kubestow.nodes_needed("n", NODE, a_pod("a"), timeout_s=1e-9)
    with pytest.raises(kubestow.InputError, match=r"^without the changes: the time ran out "):
        kubestow.simulate(NODE, a_pod("a"), timeout_s=1e-9, cordon=["n"])


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_the_time_also_ends_the_creation_of_pods(kind: str) -> None:
    """A controller creates all pods of a large workload in one step, before the scheduler starts."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1000, "podManagementPolicy": "Parallel", "template": template}
    web = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec}

    result = kubestow.simulate(NODE, web, timeout_s=1e-9, validate=False)

    assert (result.ok, result.answer.settled, list(result.pods)) == (False, False, [])
    assert result.problems == [
        "the time ran out before the scheduler had come to rest (--timeout)",
        f"{kind} default/web has no new pods: the time ran out (--timeout)",
    ]
    with pytest.raises(kubestow.InputError, match=r"^with 0 more nodes like n: the time ran out .* \(--timeout\)"):
        kubestow.nodes_needed("n", NODE, web, timeout_s=1e-9, validate=False)


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
