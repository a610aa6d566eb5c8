"""Every scenario through our daemon on the in-process API server, and what it would have said without each plugin."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from simulator.apiserver import LIKE_1_36, ApiServer
from tests.parity import ours
from tests.parity.api import DEVICES, InProcess, make_lasting, put, put_budgets, put_settings, wipe
from tests.parity.change_mutants import CHANGE_MUTANTS, GROUPS as OF_CHANGES, mutated_changes
from tests.parity.device_mutants import DEVICE_MUTANTS, mutated_devices, noticing
from tests.parity.known import differing, expected, surprises
from tests.parity.mutants import MUTANTS, VOLUME_MUTANTS, mutated, mutated_volumes
from tests.parity.ours import Ours
from tests.parity.recordings import Mode, Recording, Run
from tests.parity.scenario import Scenario
from tests.parity.side import TrialStage
from tests.parity.suite import HASTY_DEVICES
from tests.parity.verdict import Verdict, differences
from tests.parity.words import Json

PAUSE_S = 0.001
_NOT_TRIED = frozenset[str](), frozenset[str](), False
_RULES = "resource.k8s.io/v1beta2/devicetaintrules"
"""What the recorded server was configured to serve besides its defaults."""
SERVED = (*LIKE_1_36, _RULES)
VOLUME_PLUGINS = frozenset({"VolumeBinding", "NodeVolumeLimits", "VolumeZone", "VolumeRestrictions"})
DEVICE_PLUGINS = frozenset({"DynamicResources"})
"""Where volumes or devices are used only these are switched off, one after the other: other scenarios cover the rest."""


@dataclass(frozen=True)
class Replayed:
    """Our verdict on one tried pod, how it differs from the recording, and what would make it differ."""

    ours: Verdict
    found: list[str]
    wrong: list[str]
    """`found`, but where we differ exactly as it is pinned."""
    needs: frozenset[str]
    """Plugins, by being switched off."""
    catches: frozenset[str]
    """Mutants."""
    is_judged_right: bool = True
    """Without the API server ours gives the expected answer."""


@dataclass(frozen=True)
class ByDefault:
    """Our verdict on one tried pod by default, and how it differs from the recording."""

    ours: Verdict
    found: list[str]
    wrong: list[str]
    """As in `Replayed`."""


@dataclass
class Replay:
    """By scenario key and name of the tried pod; `plugins` are all that had a say.

    `pods` is of the mode `PARITY`, `by_default` of the mode `DEFAULT`.
    """

    version: str
    """Whose feature gates and recordings it has."""
    tries_mutants: bool = True
    """Whether each tried pod was also judged without each plugin and by each mutant of preemption."""
    pods: dict[tuple[str, str], Replayed] = field(default_factory=dict)
    by_default: dict[tuple[str, str], ByDefault] = field(default_factory=dict)
    plugins: set[str] = field(default_factory=set)
    caught: dict[str, tuple[str, str] | None] = field(default_factory=dict)
    """Mutant of volumes or devices that was tried → where it was caught first; None: nowhere."""

    def verdicts_of(self, mode: Mode) -> Mapping[tuple[str, str], Replayed | ByDefault]:
        """What we say in this mode."""
        return self.by_default if mode is Mode.DEFAULT else self.pods

    def needing(self, plugin: str) -> list[tuple[str, str]]:
        """The tried pods that fail when the plugin is switched off."""
        return [place for place, replayed in self.pods.items() if plugin in replayed.needs]

    def catching(self, mutant: str) -> list[tuple[str, str]]:
        """The tried pods that fail when the mutant runs."""
        return [place for place, replayed in self.pods.items() if mutant in replayed.catches]


async def replay(
    version: str, scenarios: Sequence[Scenario], recorded: Mapping[str, Recording], *, tries_mutants: bool = True
) -> Replay:
    """Tried pods without a recording are left out."""
    result = Replay(version, tries_mutants)
    known = [scenario for scenario in scenarios if scenario.key in recorded]
    alike: dict[tuple[tuple[str, ...], bool], list[Scenario]] = {}
    for scenario in known:
        alike.setdefault((scenario.feature_gates, _passes_time(scenario)), []).append(scenario)
    parts = (_replay_alike(some, recorded, gates, result) for (gates, _), some in alike.items())
    await asyncio.gather(*parts)
    return result


MUTANTS_OF_CACHES = (*VOLUME_MUTANTS, *DEVICE_MUTANTS)
"""They must exist before the daemon starts: each takes a separate one."""


async def catch(mutant: str, scenarios: Iterable[Scenario], recorded: Mapping[str, Recording], result: Replay) -> None:
    """Let the mutant judge, and note in `result` which pods noticed."""
    known = [scenario for scenario in scenarios if scenario.key in recorded]
    if mutant in VOLUME_MUTANTS:
        told = [one for one in known if one.uses_volumes and not one.feature_gates]
        mutated_caches = mutated_volumes
    elif mutant in CHANGE_MUTANTS:
        told = [one for one in known if one.group in OF_CHANGES and not one.feature_gates]
        mutated_caches = mutated_changes
    else:
        told = [one for one in known if one.group in noticing(mutant) and not one.feature_gates]
        mutated_caches = mutated_devices
    with mutated_caches(mutant):
        result.caught[mutant] = await _first_caught(told, recorded, result)


def _passes_time(scenario: Scenario) -> bool:
    """Seconds in which nothing happens: until devices are looked at again, or are given up. Other scenarios go on."""
    return bool(scenario.devices.drivers) or scenario.profile == HASTY_DEVICES


async def _replay_alike(
    scenarios: Sequence[Scenario], recorded: Mapping[str, Recording], gates: Iterable[str], result: Replay
) -> None:
    async with daemon_for(result.version, gates) as we:
        for scenario in scenarios:
            await _replay(scenario, recorded[scenario.key].verdicts, we, result)


@asynccontextmanager
async def daemon_for(version: str, gates: Iterable[str] = ()) -> AsyncIterator[Ours]:
    async with ApiServer(served=SERVED) as server:
        api = InProcess(server, version)
        await make_lasting(api)
        async with ours.running(api, version=version, pause_s=PAUSE_S, master=server.url, gates=gates) as we:
            yield we


async def _first_caught(
    scenarios: Iterable[Scenario], recorded: Mapping[str, Recording], result: Replay
) -> tuple[str, str] | None:
    """The tried pod that another daemon judges otherwise; without writes or requests."""
    async with daemon_for(result.version) as we:
        for scenario in scenarios:
            await put_cluster(scenario, we)
            await TrialStage(scenario).set_for(we)
            for name, wanted in recorded[scenario.key].verdicts.items():
                place = (scenario.key, name)
                is_right = place in result.pods and result.pods[place].is_judged_right
                right = expected(result.version, place, wanted).without_displaced()
                if is_right and differences(right, _judged(scenario, name, we)):
                    return place
    return None


def _judged(scenario: Scenario, name: str, we: Ours) -> Verdict:
    """A mutant may break more than a verdict."""
    try:
        return we.judge(scenario.asked[name], scenario.profile)
    except AssertionError as error:
        return Verdict(reason="broken", message=str(error))


async def put_cluster(scenario: Scenario, we: Ours) -> None:
    """Replace what is on the server by what no trial changes of the scenario."""
    await wipe(we.api)
    await wipe(we.api, DEVICES)
    await put(we.api, scenario)
    await put_settings(we.api, scenario)
    await put_budgets(we.api, scenario)


async def _replay(scenario: Scenario, recorded: Mapping[str, Verdict], we: Ours, result: Replay) -> None:
    await put_cluster(scenario, we)
    stage = TrialStage(scenario)
    await stage.set_for(we)
    result.plugins.update(we.plugins(scenario.profile))
    asked = [name for name in scenario.asked if name in recorded]
    missed = {
        name: (
            _missed(scenario, name, _expected(result.version, scenario, name, recorded[name]), we)
            if result.tries_mutants
            else _NOT_TRIED
        )
        for name in asked
    }
    for name in asked:
        verdict = await stage.try_pod(we, name)
        found, wrong = _compared(Run(result.version, Mode.PARITY), scenario, name, recorded[name], verdict)
        result.pods[scenario.key, name] = Replayed(verdict, found, wrong, *missed[name])
    by_default = we.by_default()
    for name in asked:
        verdict = await stage.try_pod(by_default, name)
        compared = _compared(Run(result.version, Mode.DEFAULT), scenario, name, recorded[name], verdict)
        result.by_default[scenario.key, name] = ByDefault(verdict, *compared)


def _expected(version: str, scenario: Scenario, name: str, recorded: Verdict) -> Verdict:
    return expected(version, (scenario.key, name), recorded).without_displaced()


def _compared(
    asked: Run, scenario: Scenario, name: str, recorded: Verdict, verdict: Verdict
) -> tuple[list[str], list[str]]:
    """How we differ from the recording, and what of that is a surprise."""
    return differing(asked.mode, scenario, recorded, verdict), surprises(asked, scenario, name, recorded, verdict)


def _missed(scenario: Scenario, name: str, right: Verdict, we: Ours) -> tuple[frozenset[str], frozenset[str], bool]:
    """Which plugins are missed when switched off, and which mutants are caught; none if the verdict is wrong with all of them."""
    pod, profile = scenario.asked[name], scenario.profile
    if differences(right, we.judge(pod, profile)):
        return frozenset(), frozenset(), False
    only = VOLUME_PLUGINS if scenario.uses_volumes else DEVICE_PLUGINS if scenario.devices else we.plugins(profile)
    tried = [plugin for plugin in we.plugins(profile) if plugin in only]
    needs = frozenset(plugin for plugin in tried if differences(right, we.judge(pod, profile, without=plugin)))
    is_plain = right.reason and not (scenario.uses_volumes or scenario.devices)
    catches = _caught(right, pod, profile, we) if is_plain else ()
    return needs, frozenset(catches), True


def _caught(right: Verdict, pod: Json, profile: str, we: Ours) -> Iterator[str]:
    for mutant in MUTANTS:
        with mutated(mutant):
            if differences(right, we.judge(pod, profile)):
                yield mutant
