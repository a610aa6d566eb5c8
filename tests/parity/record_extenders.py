"""`python -m tests.parity.record_extenders`: record what kube-scheduler does in the scenarios with extenders.

The environment variable KUBERNETES chooses its version. `--only <text>` takes the scenarios whose name holds the text.
"""

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from aiohttp import ClientSession

from tests.e2e.controlplane.build import MINOR, binaries
from tests.e2e.controlplane.harness import ControlPlane
from tests.parity import extenders
from tests.parity.api import Remote, make_lasting
from tests.parity.words import Json

_ADMISSION = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,RuntimeClass"


class _Plane(ControlPlane):
    """Its kube-scheduler tries no pod twice within the back-off: an extender's calls are those of one attempt."""

    async def _start_client(self, name: str, flags: tuple[str, ...]) -> None:
        patient = ("--feature-gates=SchedulerPopFromBackoffQ=false",)
        await super()._start_client(name, flags + (patient if name == "kube-scheduler" else ()))


async def record(only: str) -> dict[str, Json]:
    """Run the scenarios on a control plane, each with a kube-scheduler of its configuration."""
    found = {}
    async with _Plane(apiserver_flags=(_ADMISSION,)) as plane, plane.client() as http:
        api = Remote(http)
        await make_lasting(api)

        @contextlib.asynccontextmanager
        async def start(config: Json) -> AsyncIterator[None]:
            await plane.start_scheduler(config)
            try:
                yield
            finally:
                await plane.stop_server("kube-scheduler")

        for scene in extenders.scenes():
            if only in scene.key:
                found[scene.key] = await extenders.verdict(scene, api, _binder(http), start)
                print(f"{scene.key}: {json.dumps(found[scene.key])}", flush=True)  # noqa: T201
    return found


def _binder(http: ClientSession) -> extenders.Bind:
    async def bind(name: str, node_name: str) -> None:
        target = {"kind": "Node", "name": node_name}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        async with http.post(f"/api/v1/namespaces/default/pods/{name}/binding", json=body) as answer:
            assert answer.status == 201, await answer.text()

    return bind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    found = asyncio.run(record(parser.parse_args().only))
    names = (scene.key for scene in extenders.scenes())
    extenders.ANSWERS.write(MINOR, found, names, binaries() / "kube-scheduler")


if __name__ == "__main__":
    main()
