"""kube-scheduler's own code in a separate process, for clusters that an in-process API server holds.

It answers in milliseconds what a control plane needs seconds for, since nothing is watched, written or waited for: one attempt on a
scheduler that was just made. What only a running scheduler shows is not seen: queues, events, binding, what becomes of writes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from scheduler.manifests.defaults import with_pod_defaults
from tests.e2e.controlplane.build import MINOR, program, sources
from tests.parity.admission import admitted
from tests.parity.api import DEVICES, KINDS, ScenarioApi
from tests.parity.scenario import Scenario, named
from tests.parity.storage import uid_to_come
from tests.parity.suite import scheduler_configuration
from tests.parity.verdict import Verdict, heard, verdict
from tests.parity.words import Json

_PREFIX: Final = "oracle"
_KINDS: Final = tuple(kind for kind in KINDS if kind not in DEVICES)
"""It knows of no devices: upstream keeps those in caches that only a running informer fills."""
_LEFT_OUT: Final = frozenset({"allocatedResources", "requests", "limits"})
_DONE: Final = frozenset({"Succeeded", "Failed"})
_PATIENCE_S: Final = 60.0
_MOST_BYTES: Final = 1 << 26
"""Of an answer."""


def binary() -> Path:
    """Where it is, built if need be. Raises `Unavailable` where there is nothing to build it with."""
    return program("oracle", sources(Path(__file__).parent))


class Oracle:
    """One question at a time."""

    def __init__(self, process: asyncio.subprocess.Process, gates: Iterable[str] = ()) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._given, self._told = process.stdin, process.stdout
        self._configuration = scheduler_configuration(_PREFIX, gates=gates)

    async def answers(self, api: ScenarioApi, scenario: Scenario, names: Iterable[str]) -> dict[str, Verdict]:
        """The outcomes of the tried pods of these names, each alone on what `api` has. Of writes only evictions are reported."""
        name = f"{_PREFIX}-{scenario.profile}"
        profiles = [one for one in self._configuration["profiles"] if one["schedulerName"] == name]
        question = {
            "Config": self._configuration | {"profiles": profiles},
            "Objects": [
                _without_empty_maps(item)
                for kind in _KINDS
                for item in await api.items(kind)
                if kind != "Pod" or _counts(item)
            ],
            "Asked": {asked: _stored(scenario.asked[asked], name) for asked in names},
        }
        self._given.write(json.dumps(question).encode() + b"\n")
        await self._given.drain()
        line = await asyncio.wait_for(self._told.readline(), _PATIENCE_S)
        assert line, "the oracle has ended, and says why on standard error"
        return {asked: heard(verdict(said)) for asked, said in json.loads(line).items()}


@asynccontextmanager
async def running(program: Path, gates: Sequence[str] = ()) -> AsyncIterator[Oracle]:
    """Run it as long as the block lasts, with further feature `gates` that are on."""
    pipe = asyncio.subprocess.PIPE
    flags = [",".join(f"{gate}=true" for gate in gates)] if gates else []
    process = await asyncio.create_subprocess_exec(program, *flags, stdin=pipe, stdout=pipe, limit=_MOST_BYTES)
    try:
        yield Oracle(process, gates)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _counts(pod: Json) -> bool:
    """For a scheduler: it is on a node, or is to be."""
    is_there = pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName")
    return bool(is_there) and pod["status"].get("phase") not in _DONE


def _without_empty_maps(item: Any) -> Any:
    """Return the object as an API server writes it: without empty lists of resources, which Go distinguishes from absent ones."""
    if isinstance(item, list):
        return [_without_empty_maps(each) for each in item]
    if not isinstance(item, dict):
        return item
    kept = {key: value for key, value in item.items() if value != {} or key not in _LEFT_OUT}
    return {key: _without_empty_maps(value) for key, value in kept.items()}


def _stored(pod: Json, scheduler_name: str) -> Json:
    """The tried pod as an API server would have it."""
    whole = named(admitted(pod, MINOR), scheduler_name)
    metadata = whole["metadata"] | {"uid": uid_to_come(whole["metadata"]["name"])}
    return whole | {"metadata": metadata, "spec": with_pod_defaults(whole["spec"])}
