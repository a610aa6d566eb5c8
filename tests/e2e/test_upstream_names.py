"""What this repository says of upstream is so: names in its source, flags of kube-scheduler, and departures from cel-spec."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.controlplane import build
from tests.e2e.controlplane.build import Unavailable
from tests.e2e.controlplane.gate import built_or_skip
from tests.support.upstream import MAP, Upstream, all_lines, is_defined_in_go, renamed, rows
from tests.unit.cel.departures import FILE, answers, binary, departures, reasons, written_cases
from tests.unit.cli.test_upstream_flags import FLAGS, name_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

MODULE = Path(build.__file__).parent / f"kubernetes-{build.MINOR}"
STAGING = "staging/src/"


def named() -> list[Upstream]:
    """Return what the lines and the map name, one name each, as it is called in the control plane's version."""
    text = MAP.read_text()
    names = {} if build.MINOR == "1.36" else renamed(text, version=build.MINOR)
    return [
        Upstream(path, (new,), one.at)
        for one in (*all_lines(), *(row.upstream for row in rows(text)))
        for name in one.names
        for path, new in [names.get((one.path, name), (one.path, name))]
    ]


def module_of(path: str) -> tuple[str, str]:
    """Return the Go module that has a file of the kubernetes repository, and the file's path in it."""
    if not path.startswith(STAGING):
        return "k8s.io/kubernetes", path
    group, name, rest = path.removeprefix(STAGING).split("/", 2)
    return f"{group}/{name}", rest


def directory_of(module: str) -> Path:
    """Return where the module's source is, in the version that the control plane is built from."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise Unavailable("no source of Kubernetes: Go is not installed to find it with")
    command = [go, "-C", str(MODULE), "mod", "download", "-json", module]
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=build.go_environment()
    )
    if ran.returncode:
        raise Unavailable(f"no source of {module}: {ran.stdout[-300:]} {ran.stderr[-300:]}".replace("\n", " "))
    return Path(json.loads(ran.stdout)["Dir"])


@pytest.fixture(scope="module")
def directories() -> dict[str, Path]:
    modules = {module_of(one.path)[0] for one in named()}
    return {module: built_or_skip(partial(directory_of, module)) for module in sorted(modules)}


def problems(one: Upstream, directories: dict[str, Path]) -> list[str]:
    module, rest = module_of(one.path)
    file = directories[module] / rest
    if not file.is_file():
        return [f"{one.at}: no file {one.path}"]
    source = file.read_text()
    return [f"{one.at}: {one.path} has no {name}" for name in one.names if not is_defined_in_go(name, source)]


def test_what_the_list_of_renamed_names_has_is_named() -> None:
    text = MAP.read_text()
    shown = {(row.upstream.path, name) for row in rows(text) for name in row.upstream.names}
    new = {version: renamed(text, version=version) for version in ("1.37", "1.38")}
    assert new["1.37"]
    assert new["1.37"].keys() < new["1.38"].keys() <= shown


def test_everything_named_is_there(directories: dict[str, Path]) -> None:
    assert [said for one in named() for said in problems(one, directories)] == []


@pytest.mark.parametrize(
    ("path", "name", "said"),
    [
        ("pkg/scheduler/schedule_one.go", "schedulingCycle", []),
        ("pkg/scheduler/schedule_one.go", "Scheduler.schedulingCycle", []),
        (
            "pkg/scheduler/schedule_one.go",
            "schedulingCircle",
            ["pkg/scheduler/schedule_one.go has no schedulingCircle"],
        ),
        (
            "pkg/scheduler/schedule_one.go",
            "Other.schedulingCycle",
            ["pkg/scheduler/schedule_one.go has no Other.schedulingCycle"],
        ),
        ("pkg/scheduler/schedule_two.go", "schedulingCycle", ["no file pkg/scheduler/schedule_two.go"]),
    ],
)
def test_a_wrong_name_is_caught(directories: dict[str, Path], path: str, name: str, said: list[str]) -> None:
    assert problems(Upstream(path, (name,), "here"), directories) == [f"here: {each}" for each in said]


def test_the_table_has_every_flag_of_the_binary(control_plane_binaries: Path) -> None:
    command = [str(control_plane_binaries / "kube-scheduler"), "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    flags = set(re.findall(r"^ {2,6}(?:-\w, )?(--[a-z0-9-]+)", text, re.MULTILINE)) - {"--help"}
    assert flags == {name_of(flag) for flag in FLAGS}


# -- CEL: where and how Kubernetes departs from cel-spec ------------------------------------------------------------------


def test_the_departures_are_kubernetes_answers() -> None:
    """Byte for byte, but for the reasons: `python -m tests.unit.cel.departures` writes this file, with Kubernetes 1.36.

    With 1.37 only the versions in its head differ. 1.38 does not name the container of an unknown
    name, and proposes another name.
    """
    oracle, text = built_or_skip(binary), FILE.read_text()
    now, known = departures(oracle, reasons(text)).splitlines(), text.splitlines()
    if build.MINOR == "1.38":
        now = [re.sub(r" \(did you mean '\w+'\?\)", "", line) for line in now]
        known = [line.replace(" (in container '')", "") for line in known]

    assert now[1:] == known[1:]
    assert (now[0] == known[0]) is (build.MINOR == "1.36")


def test_a_case_has_one_answer() -> None:
    """Each ends with a value, an error or a refusal, and says which modules have answered."""
    source, told = answers(built_or_skip(binary), list(written_cases().values()))

    modules = {
        "1.36": "k8s.io/apiserver v0.36.3 (cel-go v0.26.0)",
        "1.37": "k8s.io/apiserver v0.37.2 (cel-go v0.29.2)",
        "1.38": "k8s.io/apiserver v0.38.0-beta.0 (cel-go v0.33.2)",
    }
    assert source.startswith(modules[build.MINOR])
    assert {len(answer) for answer in told} == {1}
    assert set().union(*told) == {"value", "error", "compile"}
