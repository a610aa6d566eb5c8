"""Asked pods on which we are known to differ from kube-scheduler v1.36.3, each with the reason.

A line here is a debt or a decision: `test_parity` fails when it has become untrue.
"""

from collections.abc import Mapping
from typing import Final

_TWICE: Final = "DevicePods/§2.2: one claim under two entries"
_LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "92, 93, 94: lists that have something in common": ("common", "two"),
    "95, 96, 97: scalars and lists": ("common", "two"),
    "98: lists of other types": ("ints", "bools", "versions"),
    "101, 102, 103, 104: lists that have nothing in common": ("lists", "mixed"),
    "106: what was in common is restored": ("refused by another constraint",),
}
_OF_DEVICES: Final[dict[tuple[str, str], str]] = {
    ("DeviceConstraints/90: apart, of more than two", "in one request"): (
        "upstream remembers the last device of a request alone, and so lets the same value in again; we remember all"
    ),
    **dict.fromkeys(
        (
            ("DeviceCounters/152: one pool name and two drivers, of each all of its store", "both"),
            ("DeviceCounters/152: one pool name and two drivers, of each all of its store", "the other way round"),
        ),
        "upstream takes pools of one name for one, whatever their drivers, and counts in the wrong store; we do not",
    ),
    ("DeviceCapacities/203: a share of no capacity takes from the store once", "one more share"): (
        "upstream takes a device for unshared if nothing of its capacity is consumed, and charges the store for it again; we do not"
    ),
    **dict.fromkeys(
        ((_TWICE, "fits twice"), (_TWICE, "does not fit twice")),
        "upstream allocates a claim twice that a pod names twice, and cannot write the second; we take it once",
    ),
    ("DeviceClaims/303: allocated without a time", "p"): (
        "upstream adds a time to what was allocated before, which the API server refuses; we leave it as it is"
    ),
    ("DevicePods/§3.4: no time to look for devices", "p"): (
        "we look at the clock once in many steps, and have found the device before that; upstream looks at every step"
    ),
    ("ExtendedDevices/§3.12: beside claims where a device plugin serves it", "p"): (
        "upstream makes a claim without requests, and then has nothing to tell the pod's status; we make none"
    ),
    **dict.fromkeys(
        ((f"DeviceGates/{key}", name) for key, names in _LISTS.items() for name in names),
        "upstream forgets to tell its allocator of the gate, so that constraints never look into lists; ours do",
    ),
}
"""Of scenarios with devices."""
_FOREIGN: Final = "NodeVolumeLimits/Q-13: a pod that is there names an ephemeral claim that is not its own"
_NO_DISK: Final = "NodeVolumeLimits/Q-13: a pod that is there has a disk that cannot be translated"
KNOWN: Final[dict[tuple[str, str], str]] = {
    (
        "DefaultPreemption/two pods that hold one port, and one of them may not leave",
        "the port counts once",
    ): "upstream takes a port for free once one of its two holders has left, and evicts a pod in vain; we count holders",
    (
        "DefaultPreemption/spread takes pods that are leaving off twice",
        "so it seems to fit",
    ): "upstream spreads without pods that are leaving, and yet takes them off when it removes victims; we do not",
    (
        "PodTopologySpread/where the selector is empty nobody counts",
        "where two are nominated",
    ): "upstream counts no pod that is there where the selector is empty, and yet those that are nominated; we count neither",
    **dict.fromkeys(
        (
            ("VolumeBinding/F23: one claim in two volumes", "to be provisioned"),
            ("VolumeBinding/F23: one claim in two volumes", "to be bound"),
            ("VolumeBinding/F23: one claim in two volumes, and one PV", "p"),
        ),
        "upstream takes a claim that a pod names twice for two claims; we do not (docs/spec/volumes.md §12.2 B-16)",
    ),
    **dict.fromkeys(
        ((_FOREIGN, "p"), (_FOREIGN, "too many")),
        "upstream cannot place a pod where another names a claim that is not its own; we do not count it (§12.4 Q-13)",
    ),
    **dict.fromkeys(
        ((_NO_DISK, "p"), (_NO_DISK, "too many")),
        "upstream cannot place a pod where another has a disk that cannot be translated; we do not count it (§12.4 Q-13)",
    ),
    (
        "VolumePreemption/the user of a claim of the same name in another namespace leaves in vain",
        "p",
    ): "upstream evicts the user of a namesake; we compare namespaces (§12.4 B-13)",
    (
        "VolumePreemption/who is nominated holds a place to attach",
        "r",
    ): "a claim that only somebody nominated shares costs a place with us: claims in nobody's use are alike to preemption",
    **dict.fromkeys(
        (
            ("VolumePreemption/two users of a claim for one pod", "p"),
            ("VolumePreemption/two users of a claim for one pod on one node", "p"),
            ("VolumePreemption/two users of a claim for one pod on one node", "q"),
        ),
        "upstream takes a claim for free once one of its users has left, and evicts a pod in vain; we count users",
    ),
    (
        "VolumeRestrictions/an ephemeral claim of a pod that is there",
        "p",
    ): "upstream does not see that a pod uses its ephemeral claim; we do",
    **_OF_DEVICES,
}
"""(scenario, asked pod) → why. Empty is how it should be."""


def surprises(place: tuple[str, str], found: list[str]) -> list[str]:
    """What is wrong at an asked pod: differences that are not known, or a known one that is gone."""
    why = KNOWN.get(place)
    if why is None:
        return found
    return [] if found else [f"no longer a difference, take it out of known.py: {why}"]
