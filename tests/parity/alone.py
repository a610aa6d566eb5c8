"""The verdicts of a daemon that has no other profiles than a user's: none with `parity: true`."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from scheduler.config.args import SPELLED, UPSTREAM
from simulator.apiserver import ApiServer
from tests.parity import ours
from tests.parity.api import InProcess, make_lasting
from tests.parity.known import Place
from tests.parity.modes import Mode
from tests.parity.replay import PAUSE_S, SERVED, put_cluster
from tests.parity.scenario import Scenario
from tests.parity.stage import Stage
from tests.parity.verdict import Verdict

OF_UPSTREAM: Final[Mapping[str, Any]] = MappingProxyType({SPELLED[name]: value for name, value in UPSTREAM.items()})
"""Field of KubestowArgs → the value with which we do as kube-scheduler."""


async def verdicts_at(
    version: str, scenarios: Iterable[Scenario], places: Collection[Place], switches: Iterable[str] = ()
) -> dict[Place, Verdict]:
    """Return our verdicts on the pods at these places with kube-scheduler's values of these `switches`."""
    groups: dict[tuple[str, ...], list[Scenario]] = {}
    for one in scenarios:
        if any((one.key, name) in places for name in one.asked):
            groups.setdefault(one.feature_gates, []).append(one)
    found: dict[Place, Verdict] = {}
    values = {name: OF_UPSTREAM[name] for name in switches}
    await asyncio.gather(*(_verdicts_at(version, some, places, gates, values, found) for gates, some in groups.items()))
    return found


async def _verdicts_at(
    version: str,
    scenarios: Iterable[Scenario],
    places: Collection[Place],
    gates: tuple[str, ...],
    switches: Mapping[str, Any],
    found: dict[Place, Verdict],
) -> None:
    async with ApiServer(served=SERVED) as server:
        api = InProcess(server, version)
        await make_lasting(api)
        running = ours.running(
            api,
            version=version,
            pause_s=PAUSE_S,
            master=server.url,
            gates=gates,
            modes=(Mode.DEFAULT,),
            switches=switches,
        )
        async with running as we:
            for one in scenarios:
                await put_cluster(one, we)
                stage = Stage(one)
                for name in one.asked:
                    if (one.key, name) in places:
                        found[one.key, name] = await stage.try_pod(we, name)
