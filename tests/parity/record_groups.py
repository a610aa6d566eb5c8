"""`python -m tests.parity.record_groups`: record what kube-scheduler does with groups, its gates for them on; then compare ours on the same server.

The environment variable KUBERNETES chooses its version, 1.37 or later. `--only <text>` takes the scenarios whose name holds the text.
"""

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from functools import partial

from aiohttp import ClientSession

from tests.e2e.cluster import Cluster
from tests.e2e.controlplane.build import MINOR, binaries
from tests.e2e.controlplane.harness import ControlPlane, daemon, scheduler_config
from tests.parity import groups
from tests.parity.words import Json

_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
_FLAGS = (
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority",
    f"{groups.GATES},{groups.TOPOLOGY}",
    "--runtime-config=scheduling.k8s.io/v1beta1=true",
)


class _Real:
    """The real API server."""

    def __init__(self, http: ClientSession) -> None:
        self._http = http
        self._cluster = Cluster(http)

    async def create(self, item: Json) -> None:
        if item["kind"] != "PodGroup":
            await self._cluster.create(item)
            return
        async with self._http.post(_GROUPS, json=item) as answer:
            assert answer.status == 201, await answer.text()

    async def items(self, kind: str) -> list[Json]:
        path = _GROUPS if kind == "PodGroup" else self._cluster.pods
        found: list[Json] = (await self._cluster.get(path))["items"]
        return found

    async def wipe(self) -> None:
        await self._cluster.wipe()
        for each in await self.items("PodGroup"):
            path = f"{_GROUPS}/{each['metadata']['name']}"
            await self._cluster.merge(path, {"metadata": {"finalizers": None}})  # of a controller that does not run
            await self._cluster.delete(path)


async def record(only: str) -> tuple[dict[str, Json], int]:
    """Run the scenarios; return the answers of kube-scheduler, and in how many scenarios ours differs."""
    found, surprises = {}, 0
    async with ControlPlane(apiserver_flags=_FLAGS) as plane, plane.client() as http:
        api = _Real(http)

        @contextlib.asynccontextmanager
        async def kube(more: str) -> AsyncIterator[None]:
            config = scheduler_config(groups.SCHEDULER_NAME) | groups.PATIENT
            await plane.start_scheduler(config, f"{groups.GATES},SchedulerPopFromBackoffQ=false{more}")
            try:
                yield
            finally:
                await plane.stop_server("kube-scheduler")

        @contextlib.asynccontextmanager
        async def ours() -> AsyncIterator[None]:
            with daemon(plane, groups.SCHEDULER_NAME, config=groups.PATIENT):
                yield

        for scene in groups.scenes():
            if only not in scene.id:
                continue
            answers = []
            more = f",{groups.TOPOLOGY}" if scene.has_racks else ""
            for start in (partial(kube, more), ours):
                await api.wipe()
                answers.append(await groups.verdict(scene, api, start))
            found[scene.id] = answers[0]
            differences = groups.differences(scene, MINOR, *answers)
            surprises += bool(differences)
            print(f"{scene.id}: {json.dumps(answers[0])}", flush=True)  # noqa: T201
            for field, (theirs, our) in differences.items():
                print(f"    {field}\n        theirs {theirs}\n        ours   {our}", flush=True)  # noqa: T201
    return found, surprises


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    found, surprises = asyncio.run(record(parser.parse_args().only))
    names = (scene.id for scene in groups.scenes())
    groups.ANSWERS.write(MINOR, found, names, binaries() / "kube-scheduler")
    print(f"{len(found)} scenarios, {surprises} with a difference")  # noqa: T201
    sys.exit(bool(surprises))


if __name__ == "__main__":
    main()
