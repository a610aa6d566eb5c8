"""All scenarios: the hand-written files of `scenarios/`, one group each, and the random ones, regenerated from seeds."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yaml

from tests.e2e.controlplane.harness import scheduler_config
from tests.parity.crowd import CROWDS, crowd
from tests.parity.generate import SEEDS, generate
from tests.parity.mixed import MIXED, mixed
from tests.parity.random_devices import DEVICE_SEEDS, device_seed
from tests.parity.random_volumes import VOLUME_SEEDS, volume_seed
from tests.parity.scenario import Scenario, scenario
from tests.parity.varied_places import SCORING, SHAPED
from tests.parity.varied_volumes import VARIED_SEEDS, varied_volume_seed
from tests.parity.words import Json

_HERE: Final = Path(__file__).parent
RANDOM_GROUP_SIZE: Final = 30
NAMESPACES: Final[dict[str, dict[str, str]]] = {
    "red": {"team": "red", "env": "prod"},
    "blue": {"team": "blue", "env": "test"},
    "grey": {"env": "prod"},
    "bare": {},
    "admins": {"resource.kubernetes.io/admin-access": "true"},
}
"""There for every scenario, besides `default`: a namespace cannot be removed without its controller."""
OWN_WAYS: Final = "own-ways"
"""The profile in which ours may do better than kube-scheduler."""
HASTY_DEVICES: Final = "hasty-devices"
"""The profile in which no pod waits for devices until the next look."""
_HASTE: Final[Json] = {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 0}}
_SHAPE: Final = [{"utilization": at, "score": score} for at, score in ((5, 1), (30, 9), (60, 2), (95, 10))]
_OF_GATES: Final[Mapping[str, Mapping[str, Json]]] = {
    SCORING: {SHAPED: {"pluginConfig": [_HASTE | {"args": {**_HASTE["args"], "shape": _SHAPE}}]}}
}
"""Profiles that a scheduler without the gate would not read."""


@functools.cache
def recordable() -> tuple[Scenario, ...]:
    """In the order in which they are recorded: those in which something else has to run come last.

    Raises ValueError for a key that comes twice.
    """
    found = [
        *written(),
        *random_ones(),
        *crowds(),
        *mixed_ones(),
        *volume_ones(),
        *_by_gates((*varied_volume_ones(), *device_ones(), *random_device_ones())),
    ]
    keys = [one.key for one in found]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f"not unique: {twice}")
    return tuple(found)


def scenarios() -> tuple[Scenario, ...]:
    """Those on which ours runs, in the same order."""
    return tuple(recordable())


def written() -> list[Scenario]:
    """Those of the files."""
    return _of_files("*.yaml")


def device_ones() -> list[Scenario]:
    """Those of the files about devices."""
    return _of_files("devices/*.yaml")


def random_device_ones() -> list[Scenario]:
    """Random ones with slices, classes, claims and all that they depend on."""
    return [scenario(f"devices-{seed // RANDOM_GROUP_SIZE}", device_seed(seed)) for seed in DEVICE_SEEDS]


def _by_gates(found: Iterable[Scenario]) -> list[Scenario]:
    """Those for which the scheduler needs gates come last."""
    return sorted(found, key=lambda one: one.feature_gates)


def _of_files(pattern: str) -> list[Scenario]:
    files = sorted((_HERE / "scenarios").glob(pattern))
    return [scenario(file.stem, short) for file in files for short in yaml.safe_load(file.read_text()) or ()]


def random_ones() -> list[Scenario]:
    """Those of the seeds, in groups that keep a recording's size readable."""
    return [scenario(f"random-{seed // RANDOM_GROUP_SIZE}", generate(seed)) for seed in SEEDS]


def crowds() -> list[Scenario]:
    """Random ones of which most have pods that preempt."""
    return [scenario(f"crowd-{seed // RANDOM_GROUP_SIZE}", crowd(seed)) for seed in CROWDS]


def mixed_ones() -> list[Scenario]:
    """Random ones of what the two above never draw."""
    return [scenario(f"mixed-{seed // RANDOM_GROUP_SIZE}", mixed(seed)) for seed in MIXED]


def volume_ones() -> list[Scenario]:
    """Random ones with claims, PVs and all that they depend on."""
    return [scenario(f"volumes-{seed // RANDOM_GROUP_SIZE}", volume_seed(seed)) for seed in VOLUME_SEEDS]


def varied_volume_ones() -> list[Scenario]:
    """Random ones of all that plugins of volumes read; some for which the scheduler needs gates."""
    size = RANDOM_GROUP_SIZE
    return [scenario(f"volumes-varied-{seed // size}", varied_volume_seed(seed)) for seed in VARIED_SEEDS]


@functools.cache
def profiles() -> dict[str, Json]:
    """Name → what a profile has besides its schedulerName."""
    read: dict[str, Json] = yaml.safe_load((_HERE / "profiles.yaml").read_text())
    return read


def scheduler_configuration(
    prefix: str,
    *,
    more: Mapping[str, Json] = MappingProxyType({}),
    arguments: Sequence[Json] = (),
    gates: Iterable[str] = (),
) -> Json:
    """A KubeSchedulerConfiguration with every profile under `<prefix>-<name>`; `more` are further profiles by name.

    Further feature `gates` that are on may have further profiles.

    Every profile gets the `arguments` of plugins besides its arguments, except `OWN_WAYS`. A pod that was tried is not tried again
    within the time of the trial, and kube-scheduler examines one node after the other. No pod waits for volumes
    that are to be bound or provisioned.
    """
    of_gates = {name: body for gate in gates for name, body in _OF_GATES.get(gate, {}).items()}
    wanted = {
        name: body | {"pluginConfig": [*_hasty(body.get("pluginConfig", ())), *(() if name == OWN_WAYS else arguments)]}
        for name, body in {**profiles(), **of_gates, **more}.items()
    }
    return scheduler_config() | {
        "parallelism": 1,
        "podInitialBackoffSeconds": 60,
        "podMaxBackoffSeconds": 60,
        "profiles": [{"schedulerName": f"{prefix}-{name}", **body} for name, body in wanted.items()],
    }


def _hasty(configured: Sequence[Json]) -> list[Json]:
    return [*configured, *(() if any(one["name"] == _HASTE["name"] for one in configured) else (_HASTE,))]
