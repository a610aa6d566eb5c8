"""Fixtures of several modules of this folder."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web_app

from scheduler.cli import main as cli
from scheduler.metrics import logs
from simulator.builders.core import Builder
from tests.integration.clocks import HastyClock
from tests.support.jsonschema import mistakes

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "simulate.schema.json").read_text())


@pytest.fixture(autouse=True)
def _stopped_daemons_are_freed() -> Iterator[None]:
    """aiohttp keeps each server that answered a request, and so a whole daemon, in a cache of its middlewares."""
    yield
    web_app._cached_build_middleware.cache_clear()


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the logging set-up of the test process: the command would replace it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    monkeypatch.setattr(logs, "setup", lambda *_, **__: None)


@dataclass
class Simulation:
    """`kubestow simulate -o json` in this process, with an empty directory for its files."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *arguments: str, stdin: str = "") -> tuple[int, Any, str]:
        """Return exit code, JSON and standard error. The JSON is as its schema says."""
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = cli.main(["simulate", "-o", "json", "--timeout", "60s", *arguments])
        out = self.capsys.readouterr()
        shown = json.loads(out.out) if out.out else {}
        assert not shown or list(mistakes(shown, SCHEMA)) == []
        return code, shown, out.err

    def of(self, *objects: str | dict[str, Any] | Builder[Any], flags: Iterable[str] = ()) -> tuple[int, Any, str]:
        """The same for these objects."""
        manifests = [each.obj() if isinstance(each, Builder) else each for each in objects]
        documents = [each if isinstance(each, str) else json.dumps(each) for each in manifests]
        Path("in.yaml").write_text("\n---\n".join(documents))
        return self("in.yaml", *flags)

    def configured(self, config: dict[str, Any], *objects: str | dict[str, Any]) -> tuple[int, Any, str]:
        """The same with this configuration of the scheduler."""
        Path("config.yaml").write_text(json.dumps(config))
        return self.of(*objects, flags=["--config=config.yaml"])


@pytest.fixture
def simulate(
    guest: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Simulation:
    monkeypatch.chdir(tmp_path)
    return Simulation(capsys, monkeypatch)


def workload(
    kind: str, name: str, replicas: int, *, namespace: str = "default", cpu: str = "1", **spec: Any
) -> dict[str, Any]:
    """Return a workload whose pods have these requests and fields."""
    container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }


def nodes_of(shown: dict[str, Any]) -> dict[str, str]:
    """Return pod → node, "" for none."""
    return {each["pod"].partition("/")[2]: each["node"] or "" for each in shown["pods"]}


def placements(shown: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return pod → node and, if it has none, the first sentence of the reason."""
    return {
        each["pod"].partition("/")[2]: (each["node"] or "", each.get("message", "").partition(". ")[0])
        for each in shown["pods"]
    }


@pytest.fixture
async def clock() -> HastyClock:
    """Return the clock that the server and the daemons of a test share."""
    return HastyClock()
