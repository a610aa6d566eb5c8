"""Ours decides as the recorded kube-scheduler did: the same texts, one of its best nodes, and the same calls."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping

import pytest

from scheduler.config.load import gates_on, parse
from scheduler.config.types import RunOptions
from scheduler.daemon.app import Daemon
from simulator.apiserver import ApiServer
from tests.e2e.controlplane.build import RELEASES
from tests.parity.api import InProcess, make_lasting
from tests.parity.daily import marks, marks_of_scene
from tests.parity.extenders import ANSWERS, Scene, scenes, verdict
from tests.parity.known import REASONS, pinned
from tests.parity.recordings import RECORDED, RUNS, Provenance, Recording, Run
from tests.parity.replay import Replay
from tests.parity.scenario import Scenario
from tests.parity.suite import recordable
from tests.parity.words import Json

PLACES = [
    pytest.param(asked, one, name, id=f"{asked}: {one.key}: {name}", marks=marks(asked.version, one.key))
    for asked in RUNS
    for one in recordable()
    for name in one.asked
]


@pytest.mark.parametrize(("asked", "scenario", "name"), PLACES)
def test_the_verdict_is_kube_schedulers(
    replayed: Mapping[str, Replay], asked: Run, scenario: Scenario, name: str
) -> None:
    """Both bind, or both refuse, with `parity: true` and without; what is known to differ must differ as it is pinned."""
    told = replayed[asked.version].verdicts_of(asked.mode)
    assert (scenario.key, name) in told, "not recorded: make parity"
    assert told[scenario.key, name].wrong == []


@pytest.mark.parametrize(
    ("version", "scenario"),
    [pytest.param(each, one, id=f"{one.key}-{each}") for each in RECORDED for one in recordable()],
)
def test_the_recording_is_of_this_scenario(
    recorded: Mapping[str, dict[str, Recording]], version: str, scenario: Scenario
) -> None:
    """No file, no short form and no generator was changed without a new recording."""
    recording = recorded[version].get(scenario.key)
    assert recording is not None, "not recorded: make parity"

    assert recording.digest == scenario.digest(), "changed since it was recorded: make parity"
    assert recording.verdicts.keys() == scenario.asked.keys()


def test_no_scenario_is_recorded_twice() -> None:
    """Each seed of a generator draws another scenario, and each scenario in a file is another one."""
    assert len({scenario.digest() for scenario in recordable()}) == len(recordable())


@pytest.mark.parametrize("version", RECORDED)
def test_nothing_else_is_recorded(recorded: Mapping[str, dict[str, Recording]], version: str) -> None:
    """A scenario that is gone takes its recording with it."""
    assert recorded[version].keys() <= {scenario.key for scenario in recordable()}


@pytest.mark.parametrize("asked", RUNS, ids=str)
def test_a_reason_is_of_a_tried_pod(asked: Run) -> None:
    """No line of differences.yaml outlives its scenario."""
    assert REASONS[asked].keys() <= {(one.key, name) for one in recordable() for name in one.asked}


@pytest.mark.parametrize("asked", RUNS, ids=str)
def test_reasons_and_pins_are_of_the_same_pods(asked: Run) -> None:
    """A reason without a pin would excuse any verdict, and a pin without a reason explains nothing."""
    assert REASONS[asked].keys() == pinned(asked).keys(), "python -m tests.parity.pin"


@pytest.mark.parametrize("asked", RUNS, ids=str)
def test_a_pin_shows_what_is_recorded(recorded: Mapping[str, dict[str, Recording]], asked: Run) -> None:
    """The verdict next to ours is the recording's."""
    of_version = recorded[asked.version]
    stale = [
        (key, name) for (key, name), pin in pinned(asked).items() if pin.recorded != of_version[key].verdicts[name]
    ]

    assert stale == [], "python -m tests.parity.pin"


# -- extenders: the same calls as kube-scheduler makes -----------------------------------------------------------------


SCENES = scenes()
PARITY = {"name": "Kubestow", "args": {"apiVersion": "kubestow.dev/v1alpha1", "kind": "KubestowArgs", "parity": True}}


async def ours(scene: Scene, version: str) -> Json:
    """Return the verdict of the daemon, as this version, on a server in this process."""
    async with ApiServer() as server:
        api = InProcess(server)
        await make_lasting(api)

        @contextlib.asynccontextmanager
        async def start(config: Json) -> AsyncIterator[None]:
            config["profiles"][0]["pluginConfig"] = [PARITY]
            read = parse(json.dumps(config), source="test", feature_gates=gates_on({}, version))
            daemon = Daemon(RunOptions(config=read, master=server.url, port=0, emulated_version=version))
            try:
                await daemon.start()
                yield
            finally:
                await daemon.stop(0)

        async def bind(name: str, node_name: str) -> None:
            server.bind(name, node_name)

        return await verdict(scene, api, bind, start)


@pytest.mark.parametrize(
    ("version", "scene"),
    [
        pytest.param(version, scene, id=f"{version}: {scene.key}", marks=marks_of_scene(version, scene.key))
        for version in RECORDED
        for scene in SCENES
    ],
)
async def test_calls_and_verdict_are_kube_schedulers(scene: Scene, version: str) -> None:
    """All calls in their order per extender, the fields that were sent, texts byte for byte, and the victims."""
    assert await ours(scene, version) == ANSWERS.of(version)[scene.key]


@pytest.mark.parametrize("version", RECORDED)
def test_every_scenario_with_extenders_is_recorded(version: str) -> None:
    """And nothing else: `python -m tests.parity.record_extenders`."""
    assert list(ANSWERS.of(version)) == ["provenance", *(scene.key for scene in SCENES)]
    assert Provenance(**ANSWERS.of(version)["provenance"]).flaws(RELEASES[version]) == []
