"""README and docs/ quote the simulation exactly, except for times, speeds and generated names."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from scheduler.config import load
from scheduler.config.types import ClientConnection, LeaderElection, RunOptions
from scheduler.core.clock import SystemClock
from scheduler.daemon import app
from simulator.simulate.input.complete import complete
from simulator.simulate.input.manifests import load as manifests
from simulator.simulate.run import simulate
from simulator.simulate.world import ReadOptions

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/preemption.md", "docs/volumes.md", "docs/devices.md", "docs/groups.md")
SESSION = re.compile(
    r"^```(?:console)?\n\$ (?:\.venv/bin/)?kubestow (simulate [^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
QUOTED = [
    pytest.param(command, shown, id=f"{page}: {command}")
    for page in PAGES
    for command, shown in SESSION.findall((ROOT / page).read_text(encoding="utf-8"))
]


def timeless(text: str) -> str:
    """Return the text in one line, without parts that differ between runs."""
    return " ".join(re.sub(r"\d+\.\d+\s+s\b|\d+ pods/s", "…", text).split())


def test_every_page_quotes_something() -> None:
    assert [str(each.id) for each in QUOTED] == [
        "README.md: simulate examples/volumes.yaml --explain",
        "docs/preemption.md: simulate examples/preemption.yaml",
        "docs/volumes.md: simulate examples/volumes.yaml",
        "docs/devices.md: simulate examples/devices.yaml",
        "docs/groups.md: simulate examples/groups.yaml",
    ]


@functools.cache
def ran(command: str) -> subprocess.CompletedProcess[str]:
    """Run the command once per session."""
    return subprocess.run(
        [sys.executable, "-m", "scheduler", *command.split()],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("command", "shown"), QUOTED)
def test_what_is_quoted_is_printed(command: str, shown: str) -> None:
    ended = ran(command)
    rest = timeless(ended.stdout)

    assert ended.returncode == 0, ended.stderr
    for part in filter(None, re.split(r"^…\n", shown, flags=re.MULTILINE)):
        _, found, rest = rest.partition(timeless(part))
        assert found, f"{part}\nis not, or not here, in\n{ended.stdout}"


class InspectedDaemon(app.Daemon):
    """A daemon that reads /debug/pod before it stops."""

    def __init__(self, master: str, token: str, pod: str) -> None:
        config = dataclasses.replace(
            load.default(), client_connection=ClientConnection(qps=-1), leader_election=LeaderElection()
        )
        super().__init__(RunOptions(config=config, master=master, token=token, port=0, drain_timeout_s=5))
        self._path = f"/debug/pod/{pod}"
        self.answer: dict[str, Any] = {}

    async def stop(self, drain_timeout_s: float | None = None) -> None:
        if not self.answer:
            async with ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}{self._path}") as response:
                self.answer = await response.json()
        await super().stop(drain_timeout_s)


async def test_the_answer_about_a_pod_with_devices() -> None:
    page = (ROOT / "docs/devices.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```json debug-pod\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    daemons: list[InspectedDaemon] = []

    def daemon(master: str, token: str) -> InspectedDaemon:
        daemons.append(InspectedDaemon(master, token, "demo/fine-tune-wide"))
        return daemons[0]

    rules = ReadOptions(scheduler_names=("kubestow",), keeps_scheduler_names=False, expect_pending=(), timeout_s=120)
    outcome = await simulate(
        complete(manifests((str(ROOT / "examples/devices.yaml"),)).objects), daemon, rules, clock=SystemClock()
    )

    assert outcome.is_settled
    assert _unnamed(daemons[0].answer["facts"]) == _unnamed(json.loads(shown))


def _unnamed(facts: Any) -> Any:
    """Replace the generated part of claim names."""
    return json.loads(re.sub(r"-gpus-\w{5}\"", '-gpus-*"', json.dumps(facts)))
