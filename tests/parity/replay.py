"""Every scenario through our daemon on the in-process API server, and what it would have said without each plugin."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scheduler.testing.apiserver import ApiServer
from tests.parity import ours
from tests.parity.api import InProcess, make_namespaces, put, wipe
from tests.parity.ours import Ours
from tests.parity.recordings import Recording
from tests.parity.scenario import Scenario
from tests.parity.verdict import Verdict, differences

_PAUSE_S = 0.001


@dataclass(frozen=True)
class Replayed:
    """Our verdict on one asked pod, how it differs from the recording, and the plugins without which it would differ."""

    ours: Verdict
    found: list[str]
    needs: frozenset[str]


@dataclass
class Replay:
    """By scenario key and name of the asked pod; `plugins` are all that had a say."""

    pods: dict[tuple[str, str], Replayed] = field(default_factory=dict)
    plugins: set[str] = field(default_factory=set)

    def needing(self, plugin: str) -> list[tuple[str, str]]:
        """The asked pods that fail when the plugin is switched off."""
        return [place for place, replayed in self.pods.items() if plugin in replayed.needs]


async def replay(scenarios: Iterable[Scenario], recorded: Mapping[str, Recording]) -> Replay:
    """Asked pods that were not recorded are left out."""
    result = Replay()
    async with ApiServer() as server:
        api = InProcess(server)
        await make_namespaces(api)
        async with ours.running(api, pause_s=_PAUSE_S, master=server.url) as we:
            for scenario in scenarios:
                if scenario.key in recorded:
                    await _replay(scenario, recorded[scenario.key].verdicts, we, result)
    return result


async def _replay(scenario: Scenario, recorded: Mapping[str, Verdict], we: Ours, result: Replay) -> None:
    await wipe(we.api)
    await put(we.api, scenario)
    await we.see(scenario)
    result.plugins.update(we.plugins(scenario.profile))
    asked = [name for name in scenario.asked if name in recorded]
    needs = {name: _needs(scenario, name, recorded[name], we) for name in asked}
    for name in asked:
        verdict = await we.ask(scenario.asked[name], scenario.profile)
        result.pods[scenario.key, name] = Replayed(verdict, differences(recorded[name], verdict), needs[name])


def _needs(scenario: Scenario, name: str, recorded: Verdict, we: Ours) -> frozenset[str]:
    """Who is missed when switched off; nobody if the verdict is wrong with all of them."""
    pod, profile = scenario.asked[name], scenario.profile
    if differences(recorded, we.judge(pod, profile)):
        return frozenset()
    return frozenset(
        plugin for plugin in we.plugins(profile) if differences(recorded, we.judge(pod, profile, without=plugin))
    )
